"""Parts of a batch of joined tokens: for each, its own tokens and the columns at which they stand.

b batch · n columns · r runs of a part · m tokens of the longest run
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces.tokens import Tokens, tensors_of

if TYPE_CHECKING:
    from seqkit.interfaces.batch import TokenBatch


@dataclass(frozen=True, slots=True)
class Part:
    """Runs of one part in a batch.

    batch: tokens of the runs, a row a run; an example without the part has no row. columns: [r m] int64, the column of
    each token in the joined batch, counted through it (example i, column t: i n + t); 0 where the run is padded.
    runs_on: [r] bool, as `Tokens.runs_on` of each run's example.
    """

    batch: TokenBatch
    columns: Tensor
    runs_on: Tensor

    def rows(self, n: int) -> Tensor:
        """Example of each run, [r], in a joined batch of n columns."""
        return self.columns[:, 0] // n

    def to(self, *args: Any, **kwargs: Any) -> Part:
        """The part on another device or of another dtype."""
        return Part(*(getattr(self, x.name).to(*args, **kwargs) for x in fields(self)))


class Parts(dict[str, Part]):
    """Name to part, for each part that some example of the batch has."""

    def of(self, name: str) -> Part:
        """The part of that name. Raises DataError where no example has it."""
        if name not in self:
            raise DataError(
                f"no example of the batch has the part {name} (it has {', '.join(self)})"
            )
        return self[name]

    @classmethod
    def collate(cls, examples: Sequence[Tokens], n: int, make: type[TokenBatch]) -> Parts:
        """Parts of joined examples in a batch of n columns. Raises ValueError where runs of a part differ in kind."""
        runs: dict[str, list[tuple[int, bool, Tokens]]] = {}
        for i, example in enumerate(examples):
            column = i * n
            for name, run in example.parts:
                runs.setdefault(name, []).append((column, example.runs_on, run))
                column += len(run)
        found = cls()
        for name, given in runs.items():
            try:
                batch = make.collate([run for *_, run in given])
            except ValueError as error:
                raise ValueError(f"part {name}: {error}") from None
            first, runs_on = (torch.tensor([one[k] for one in given]) for k in range(2))
            columns = first[:, None] + torch.arange(batch.valid.shape[1])
            found[name] = Part(batch, columns.where(batch.valid, 0), runs_on)
        return found

    def graphs(self, shape: torch.Size) -> Tensor:
        """[b n] int64: number of the graph that a token belongs to, 0: of none."""
        with_edges = [part for part in self.values() if part.batch.adjacency is not None]
        found = torch.zeros(shape.numel(), dtype=torch.int64)
        number = 1
        for part in with_edges:
            numbers = torch.arange(number, number + len(part.batch))[:, None].expand_as(
                part.columns
            )
            found[part.columns[part.batch.valid]] = numbers[part.batch.valid]
            number += len(part.batch)
        return found.reshape(shape)

    def prefix_reach(self, name: str, valid: Tensor) -> Tensor:
        """Reach [b n] where tokens of a part are predicted: their own column; of others, that before its next run.

        After the last run of the part others reach to the end of the example. valid: [b n], of the joined batch.
        """
        b, n = valid.shape
        counted = torch.zeros(b * n, dtype=torch.int64, device=valid.device)
        if name in self:
            part = self[name]
            counted = counted.index_add(
                0, part.columns.reshape(-1), part.batch.valid.reshape(-1).long()
            )
        column = torch.arange(n, device=valid.device).expand(b, n)
        is_own = counted.reshape(b, n) > 0
        following = (
            column.where(is_own, valid.sum(dim=1, keepdim=True))
            .flip(1)
            .cummin(dim=1)
            .values.flip(1)
        )
        return torch.maximum(column.where(is_own, following - 1), column)

    def select(self, rows: Tensor, n: int) -> Parts:
        """Parts of these examples, [b'] indices, as `TokenBatch.select`."""
        found = Parts()
        for name, part in self.items():
            new, old = (rows[:, None] == part.rows(n)).nonzero(as_tuple=True)
            if len(old):
                batch = part.batch.select(old)
                columns = part.columns[old] % n + (new * n)[:, None]
                found[name] = Part(batch, columns.where(batch.valid, 0), part.runs_on[old])
        return found

    def widened(self, n: int, to: int) -> Parts:
        """Parts of a batch of n columns that gets more on the right."""
        return Parts(
            {
                name: replace(x, columns=x.columns // n * to + x.columns % n)
                for name, x in self.items()
            }
        )

    def with_dtype(self, dtype: torch.dtype) -> Parts:
        """Parts with numbers of another dtype."""
        return Parts(
            {name: replace(part, batch=part.batch.with_dtype(dtype)) for name, part in self.items()}
        )

    def to(self, *args: Any, **kwargs: Any) -> Parts:
        """Parts on another device or of another dtype."""
        return Parts({name: x.to(*args, **kwargs) for name, x in self.items()})

    def runs_of(self, row: int, n: int) -> tuple[tuple[str, Tokens], ...]:
        """Name and tokens of each run of an example, in the order of the sequence."""
        found: list[tuple[int, str, Tokens]] = []
        for name, part in self.items():
            for run in (part.rows(n) == row).nonzero()[:, 0].tolist():
                found.append((int(part.columns[run, 0]), name, part.batch.example(run)))
        return tuple((name, tokens) for _, name, tokens in sorted(found, key=lambda x: x[0]))

    def is_running_on(self, row: int, n: int) -> bool:
        """`Tokens.runs_on` of an example."""
        return any(bool(part.runs_on[part.rows(n) == row].any()) for part in self.values())

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name, as text.content."""
        found: dict[str, Tensor] = {}
        for name, part in self.items():
            found |= {f"{name}.columns": part.columns}
            found |= {f"{name}.{key}": tensor for key, tensor in tensors_of(part.batch).items()}
        return found
