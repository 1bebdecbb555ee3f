"""Cars of 1970 to 1982: rows with a name, numbers, a date and a category, some of them missing."""

import json
import logging
from typing import Any

from seqkit.data import DataSource, Division, Given, Schema, Splits, Table
from seqkit.data.download import writable
from seqkit.data.tables.schema import TargetKind
from seqkit.files import write_atomic
from seqkit.recipes.wheels import Wheel

VEGA = Wheel(
    "vega_datasets", "0.9.0", "3d7c63917be6ca9b154b565f4779a31fedce57b01b5b9d99d8a34a7608062a1d"
)

KINDS = {
    "Name": "text", "Miles_per_Gallon": "number", "Cylinders": "number", "Displacement": "number",
    "Horsepower": "number", "Weight_in_lbs": "number", "Acceleration": "number", "Year": "date", "Origin": "category",
}  # fmt: skip


class Cars(DataSource):
    """`cars`: 406 cars of 1970 to 1982 from vega_datasets' wheel (0.2 MB): name, weight, power and more, with gaps.

    target: the column to learn; None: miles per gallon, which 398 of them have, or for classes the origin, USA, Europe
    or Japan. target_kind: as of `Table`. columns: kinds of columns that are other than `KINDS`, as of `Table`.
    Split: a fifth is test, by class for classes. seed: of its choice.
    """

    def __init__(
        self,
        *,
        target: str | None = None,
        target_kind: TargetKind | None = None,
        columns: dict[str, str] | None = None,
        seed: int = 0,
    ):
        self.target = target or ("Origin" if target_kind == "classes" else "Miles_per_Gallon")
        self.target_kind, self.columns, self.seed = target_kind, columns, seed
        self._tokenizer: Any = None

    def read_for(self, tokenizer: Any) -> None:
        """Keeps the tokenizer, as `Table.read_for`."""
        self._tokenizer = tokenizer

    def schema(self) -> Schema:
        """What the columns hold."""
        return self._table().schema()

    def decided(self) -> dict[str, Any]:
        """What is learned from which columns; a run keeps it."""
        settings = self.schema().settings()
        return {name: settings[name] for name in ("target", "target_kind", "columns")}

    def splits(self) -> Splits:
        return self._table().divided(logging.getLogger("seqkit").debug)

    def _table(self) -> Table:
        file = writable("vega_datasets/cars.jsonl")
        write_atomic(file, "".join(f"{json.dumps(row)}\n" for row in cars()).encode())
        columns = {name: kind for name, kind in KINDS.items() if name != self.target} | (
            self.columns or {}
        )
        given = Given(target=self.target, target_kind=self.target_kind, columns=columns)
        table = Table(str(file), given, Division(seed=self.seed))
        table.read_for(self._tokenizer)
        return table


def cars() -> list[dict[str, Any]]:
    """All cars as they ship. Raises DataError if the wheel can be neither found nor downloaded."""
    return list(json.loads(VEGA.files("vega_datasets/_data/cars.json")["cars.json"]))
