"""Named tables."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from seqkit.data.download import Wheel, find, missing, writable
from seqkit.data.sample import Splits
from seqkit.data.source import DataSource
from seqkit.data.sources.table import Division, Table
from seqkit.data.tables.schema import Given, Schema, TargetKind
from seqkit.files import write_atomic

log = logging.getLogger("seqkit")

VEGA = Wheel(
    "vega_datasets",
    "0.9.0",
    "3d7c63917be6ca9b154b565f4779a31fedce57b01b5b9d99d8a34a7608062a1d",
    ("vega_datasets/_data/cars.json",),
)


class Cars(DataSource):
    """`cars`: 406 cars of 1970 to 1982 from vega_datasets' wheel (0.2 MB): name, weight, power and more, with gaps.

    target: the column to learn; None: miles per gallon, which 398 of them have, or for classes the origin, USA, Europe
    or Japan. target_kind: what it holds. columns: kinds of columns that are other than `KINDS`.
    Split: a fifth is test, by class for classes. seed: of its choice.
    """

    KINDS: ClassVar[Mapping[str, str]] = {
        "Name": "text", "Miles_per_Gallon": "number", "Cylinders": "number", "Displacement": "number",
        "Horsepower": "number", "Weight_in_lbs": "number", "Acceleration": "number", "Year": "date",
        "Origin": "category",
    }  # fmt: skip

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
        """Raises DataError if the table can be neither found nor downloaded."""
        return self._table().divided(log.debug)

    def _table(self) -> Table:
        rows: list[Mapping[str, Any]] = json.loads(VEGA.files()["cars.json"])
        file = writable("vega_datasets/cars.jsonl")
        write_atomic(file, "".join(f"{json.dumps(row)}\n" for row in rows).encode())
        columns = {name: kind for name, kind in self.KINDS.items() if name != self.target} | (self.columns or {})
        given = Given(target=self.target, target_kind=self.target_kind, columns=columns)
        table = Table(str(file), given, Division(seed=self.seed))
        table.read_for(self._tokenizer)
        return table


class SmsSpam(DataSource):
    """`sms-spam`: 5,574 text messages, `ham` or `spam` (13.4 %), from the UCI collection (Almeida and Hidalgo 2011).

    Split: a fifth of each class is test, `stratified(labels, 0.2, seed=0)`. 114 of the 1,114 test messages are in
    training, too, word for word.
    """

    def splits(self) -> Splits:
        """Raises DataError where `sms-spam/messages.tsv` is missing."""
        path = find("sms-spam/messages.tsv")
        if path is None:
            raise missing(
                "sms-spam/messages.tsv",
                "put the UCI SMS Spam Collection there, a line a message: ham or spam, a tab, the text",
            )
        given = Given(input="text", target="label", target_kind="classes", columns=["label", "text"])
        return Table(str(path), given).divided(log.debug)
