"""Keys by which cells of a column are equal: files by content, molecules however they are written."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any

from seqkit.data.equal_files import content_keys
from seqkit.data.tables.columns import OF_FILES
from seqkit.data.tables.file_cells import content_of, name_of
from seqkit.data.tables.molecules import canonical


class EqualCells:
    """Keys of a column's cells, which equal cells share.

    kind: what the column holds, as `Columns.kind` or a kind of a mixed column; any other word: texts. folder: folder of
    the files that it names. cells: gives all cells; called only where they name files, which are compared with each
    other.
    """

    def __init__(self, kind: str, folder: Path, cells: Callable[[], Iterable[Any]]):
        self.kind, self.folder = kind, folder
        self._by_path: dict[Path, Hashable] = {}
        self._canonical: dict[str, str] = {}
        if kind in OF_FILES:
            paths = list({folder / name_of(cell): None for cell in cells() if content_of(cell) is None})
            self._by_path = dict(zip(paths, content_keys(paths)))

    def key(self, cell: Any) -> Hashable:
        """A key that cells share which hold the same."""
        if self.kind == "row":
            return repr(cell)
        content = content_of(cell)
        if content is not None:
            return content
        if self.kind in OF_FILES:
            return self._by_path[self.folder / name_of(cell)]
        if not isinstance(cell, str):
            return repr(cell)
        text = cell.strip()
        if self.kind != "smiles":
            return text
        if text not in self._canonical:
            self._canonical[text] = canonical(text)
        return self._canonical[text]
