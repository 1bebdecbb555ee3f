"""Joined tokens, part by part: each run drawn as its own tokenizer's renderer draws it."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from itertools import repeat
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import imread

from seqkit.interfaces import Tokens
from seqkit.report.figures import STYLE, new_figure
from seqkit.report.modality.base import HEAT, MAX_RECEIVED, AttentionSummary, Renderer
from seqkit.tokenizers.join import Join

MAX_FROM, PER_ROW = 24, 8
"""Most tokens from which attention is drawn, and how many pictures stand in a row."""

MAX_STRIP = 12
"""Most tokens of a strip that have names."""

DPI, GAP = 150, 0.25
"""Dots per inch of a run's picture within the whole, and inches between two of them."""


class JoinRenderer(Renderer):
    """Draws each run of joined tokens by the renderer of its part, one below the other."""

    tokenizer: Join
    size = (2.8, 1.4)
    note = "Each picture has the parts of the example beside each other."
    overlay_note = "Each part has its own picture; 1 is the average over all tokens of the sequence."

    def picture(self, raw: Any, tokens: Tokens) -> Figure:
        """Pictures of the runs, one below the other."""
        figures = [
            (f"{name}: {len(run)} token{'s' * (len(run) > 1)}", one.picture(part, run))
            for name, one, part, run, _ in self._runs(raw, tokens)
        ]
        return _below_each_other(figures)

    def overlay(self, raw: Any, tokens: Tokens, summary: AttentionSummary) -> Figure:
        """The attention that the tokens of each run receive, drawn on the run."""
        figures = []
        for name, one, part, run, columns in self._runs(raw, tokens):
            own = AttentionSummary(summary.weights[..., columns], summary.rollout[:, columns], summary.last_query)
            figures.append((name, one.overlay(part, run, own)))
        return _below_each_other(figures)

    def from_tokens(self, raw: Any, tokens: Tokens, summary: AttentionSummary) -> Figure | None:
        """Attention from each token of the shortest run to every other run; None for one run, or a longer one.

        Runs with positions on two axes are grids, others strips, with names of their tokens where there are few.
        """
        runs = list(self._runs(raw, tokens))
        _, one, part, run, columns = min(runs, key=lambda x: len(x[3]))
        others = [x for x in runs if x[4] != columns]
        if not others or len(run) > MAX_FROM:
            return None
        labels = one.token_names(part, run)
        with rc_context(STYLE):
            across = min(PER_ROW, len(run))
            rows = -(-len(run) // across)
            named = [not drawn.has_picture and len(keys) <= MAX_STRIP for _, drawn, _, keys, _ in others]
            height = rows * sum(2.6 if has_names else 1.6 for has_names in named)
            figure, axes = new_figure(1.35 * across + 0.9, height, columns=across, rows=rows * len(others))
            for ax in axes:
                ax.set_axis_off()
            for k, (other, drawn, raw_keys, keys, place) in enumerate(others):
                names = drawn.token_names(raw_keys, keys) if named[k] else []
                received = summary.rollout[columns, place]
                received = received / received.mean(axis=1, keepdims=True).clip(1e-12)
                for i, row in enumerate(received):
                    ax = axes[(k * rows + i // across) * across + i % across]
                    extent = None
                    if drawn.has_picture:
                        drawn.thumbnail(keys, ax)
                        extent = (*ax.get_xlim(), *ax.get_ylim())
                    ax.imshow(
                        drawn.on_a_grid(keys, row), cmap=HEAT, alpha=0.6 if drawn.has_picture else 1, vmin=0,
                        vmax=MAX_RECEIVED, extent=extent, aspect="auto", interpolation="nearest",
                    )  # fmt: skip
                    if names:
                        ax.set_axis_on()
                        ax.set_xticks(range(len(names)), names, rotation=90, fontsize=6, parse_math=False)
                        ax.set_yticks([])
                    ax.set_title(f"{labels[i]} → {other}" if i == 0 else labels[i], fontsize=8)
            colors = ScalarMappable(Normalize(0, MAX_RECEIVED), HEAT)
            bar = figure.colorbar(colors, ax=axes, extend="max", aspect=12, shrink=min(1.0, 2.6 / height), pad=0.02)
            bar.set_label("times average", fontsize=7)
            bar.ax.tick_params(labelsize=6.5)
        return figure

    def thumbnail(self, tokens: Tokens, axes: Axes, raw: Any = None) -> None:
        """Thumbnails of the runs side by side, those that `tokens` has."""
        axes.set_axis_off()
        width = 1 / len(tokens.parts)
        raws = repeat(None) if raw is None else (part for _, part in self.tokenizer.runs(raw))
        for i, ((name, run), part) in enumerate(zip(tokens.alone(), raws)):
            self._renderer(name).thumbnail(run, axes.inset_axes((i * width, 0, 0.94 * width, 1)), part)

    def token_names(self, raw: Any, tokens: Tokens) -> list[str]:
        """Names of the tokens of each run, the first of each after the part's."""
        found: list[str] = []
        for name, one, part, run, _ in self._runs(raw, tokens):
            first, *others = one.token_names(part, run)
            found += [f"{name} {first}", *others]
        return found

    def _renderer(self, part: str) -> Renderer:
        from seqkit.report.modality import find_renderer

        return find_renderer(self.tokenizer.parts[part])

    def _runs(self, raw: Any, tokens: Tokens) -> Iterator[tuple[str, Renderer, Any, Tokens, slice]]:
        """Name, renderer, raw example, tokens and columns of each run."""
        start = 0
        for (name, part), (_, run) in zip(self.tokenizer.runs(raw), tokens.alone()):
            yield name, self._renderer(name), part, run, slice(start, start + len(run))
            start += len(run)


def _below_each_other(figures: list[tuple[str, Figure]]) -> Figure:
    """One figure of several, each under its title, in their own sizes."""
    pictures = []
    for _, figure in figures:
        with rc_context(STYLE):
            # with all that stands beyond its edges, such as the title above a square matrix
            file = BytesIO()
            figure.savefig(file, format="png", dpi=DPI, bbox_inches="tight", pad_inches=0.05)
            file.seek(0)
            pictures.append(imread(file))
    sizes = [(one.shape[1] / DPI, one.shape[0] / DPI) for one in pictures]
    width, height = max(w for w, _ in sizes), sum(h for _, h in sizes) + GAP * len(sizes)
    with rc_context(STYLE):
        whole, top = Figure(figsize=(width, height), dpi=DPI), height
        for (title, _), picture, (w, h) in zip(figures, pictures, sizes):
            top -= GAP + h
            axes = whole.add_axes((0, top / height, w / width, h / height))
            axes.imshow(picture, interpolation="nearest", aspect="auto")
            axes.set_axis_off()
            whole.text(0.01, (top + h + 0.06) / height, title, fontsize=10, fontweight="bold")
    return whole
