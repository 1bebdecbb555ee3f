"""Test examples of a run, drawn for its report, with what the trained model gives for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from seqkit.data.module import DataModule
from seqkit.interfaces import LabeledBatch, LossOutput, TokenBatch, Tokens
from seqkit.objectives.metric import DASH
from seqkit.raw import Waveform
from seqkit.report.modality import Renderer, find_renderer
from seqkit.report.modality.audio import MAX_SECONDS, player_source
from seqkit.report.samples.section import WHOLE, Section, Shown, Span
from seqkit.runs.trained_model import TrainedModel

NUM_SHOWN = 8
MAX_CHARACTERS = 600


class Error(NamedTuple):
    """A test example that is predicted wrongly: how wrong, what to say of it, and its place in the test split."""

    size: float
    caption: str
    place: int


@dataclass(frozen=True)
class Picker:
    """Picks test examples of a run, with what its trained model gives for them."""

    trained: TrainedModel
    data: DataModule

    @property
    def renderer(self) -> Renderer:
        """How the examples are drawn."""
        return find_renderer(self.trained.tokenizer)

    @property
    def examples(self) -> Any:
        """The encoded test examples, in the data's order; the loader begins with the shortest."""
        return self.data.test_dataloader().examples

    def first(self, count: int = NUM_SHOWN) -> LabeledBatch:
        """The first examples with their labels (None without)."""
        batch: LabeledBatch = self.examples[0, list(range(min(count, len(self.examples))))]
        return batch

    def outputs(self) -> Iterator[tuple[list[int], Any, LossOutput]]:
        """Batches of the split: places of their examples in it, labels (None without), and the step's output."""
        loader = self.data.test_dataloader()
        for places, batch in zip(loader.batch_indices(), loader):
            yield places, batch[1], self.trained.step(batch, self.raws(places))

    def raws(self, places: Sequence[int]) -> list[Any]:
        """The raw examples at these places of the split."""
        test = self.data.splits().test
        return [test[place].raw for place in places]

    def origin(self, place: int) -> str:
        """Where an example is from, as its data source says; a path begins in the folder that the source was given."""
        source = self.trained.config["data"]["source"]
        name: str = self.examples.name(place)
        given = source.values() if isinstance(source, Mapping) else ()
        for one in given:
            if isinstance(one, str):
                path = Path(one).expanduser()
                folder = path if path.is_dir() else path.parent
                name = name.removeprefix(f"{folder}/")
        return name

    def shown(self, place: int, caption: str = "", *, only: str = "", without: str = "") -> Shown:
        """An example under a caption, with where it is from; of joined tokens one part alone, or all but one.

        Texts are text, cells a table, others small pictures, and sound can be heard.
        """
        batch, _ = self.examples[0, [place]]
        runs = self.renderer.runs(self.data.splits().test[place].raw, example(batch, 0))
        kept = [run for run in runs if only in ("", run.name) and without in ("", run.name)]
        figures = list[str]()
        spans = list[Span]()
        cells = list[tuple[str, str]]()
        looks = [(run.name, run.renderer.look(run.raw, run.tokens)) for run in kept]
        is_row = any(look.cells is not None for _, look in looks)
        for name, look in looks:
            cells += look.cells or ()
            if look.figure is not None:
                figures.append(look.figure)
            if look.text is None:
                continue
            text = look.text[:MAX_CHARACTERS]
            if is_row:
                cells.append((name, text))
            elif len(looks) > 1:
                spans.append((f"{name}: {text}\n", ""))
            else:
                spans.append((text, ""))
        sounds = (player_source(run.raw) for run in kept if isinstance(run.raw, Waveform))
        sound = next(filter(None, sounds), "")
        origin = "" if only else self.origin(place)
        return Shown(caption, origin, figures, sound, spans, cells)

    def gallery(
        self, title: str, note: str, examples: Sequence[Shown], *, pictures: int = 1
    ) -> list[Section]:
        """A section of examples, with how to read them; none without examples. pictures: of one example."""
        if not examples:
            return []
        is_drawn = any(one.figures for one in examples)
        is_heard = any(one.sound for one in examples)
        if not (is_drawn or is_heard) and all(one.cells for one in examples):
            return [_rows(title, note, examples)]
        if is_drawn and self.renderer.note:
            note += f" {self.renderer.note}"
        if is_heard:
            note += f" A player has at most the first {MAX_SECONDS:g} seconds."
        points = 72 * self.renderer.size[0] * pictures if is_drawn else 0
        return [Section(title, note, examples=examples, points=points)]

    def largest(self, title: str, note: str, errors: Sequence[Error]) -> list[Section]:
        """A gallery of the largest errors; none where there is no error."""
        shown = [self.shown(one.place, one.caption) for one in by_size(errors)[:NUM_SHOWN]]
        return self.gallery(title, note, shown)


def by_size(errors: Sequence[Error]) -> list[Error]:
    return sorted(errors, key=lambda error: error.size, reverse=True)


def _rows(title: str, note: str, examples: Sequence[Shown]) -> Section:
    """Examples that are rows of a table, below each other."""
    # in the order of the table: rows with gaps would change it
    fullest = sorted(examples, key=lambda one: len(one.cells), reverse=True)
    names = list(dict.fromkeys(name for one in fullest for name, _ in one.cells))
    rows = []
    for one in examples:
        row = dict(one.cells)
        cells = [row.get(name, DASH) for name in names]
        rows.append((one.caption, *cells, Path(one.origin).name))
    return Section(title, note, columns=("prediction", *names, "from"), rows=rows, points=WHOLE)


def example(batch: TokenBatch, index: int) -> Tokens:
    """One example of a batch, without padding and without adjacency."""
    return batch.replace(adjacency=None).example(index)
