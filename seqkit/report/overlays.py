"""How much each token is read, drawn on the example itself: on the text, the image, the spectrogram, the graph.

n tokens · h heads · l layers · c channels · H W image height and width · p q patch height and width
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from einops import rearrange, reduce, repeat
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from seqkit.contract import Tokenizer, Tokens
from seqkit.report.figures import INK, STYLE, VERMILION, blank
from seqkit.report.graphs import graph_layout
from seqkit.report.pictures import pieces
from seqkit.tokenizers.audio import LogMel
from seqkit.tokenizers.graph import Graph
from seqkit.tokenizers.image import Patches
from seqkit.tokenizers.molecule import Molecule
from seqkit.tokenizers.text import Text

HEAT = colormaps["YlOrRd"]
FLAME, DENSE = (1.0, 0.19, 0.0), 0.8
"""What a grey picture is tinted with, from not at all to so much, the more a place is read."""
TINT = LinearSegmentedColormap.from_list("tint", [(0.5,) * 3, tuple(0.5 * (1 - DENSE) + DENSE * c for c in FLAME)])
"""The same over middle grey, for a scale of colours."""

BAR = "read (1: as the average token)"
MAX_HOT = 5.0
"""Times the average: from here on all is equally hot, or one token would leave all others cold."""


@dataclass(frozen=True)
class Reach:
    """Who reads whom in a stack. layers: [l h n n] weights. rollout: [n n], through all layers; rows sum to 1.

    last: True: only what the last token reads is asked for, as it alone says what comes next.
    """

    layers: np.ndarray
    rollout: np.ndarray
    last: bool = False

    @property
    def through(self) -> np.ndarray:
        """[n]: how much of each token reaches the output, in times the average token."""
        rows = self.rollout[-1:] if self.last else self.rollout
        return rows.mean(axis=0) * len(self.rollout)

    @property
    def received(self) -> np.ndarray:
        """[l h n]: how much each head of each layer reads each token, in times the average token."""
        rows = self.layers[:, :, -1:] if self.last else self.layers
        received: np.ndarray = reduce(rows, "l h n m -> l h m", "mean") * len(self.rollout)
        return received

    @property
    def rows(self) -> dict[str, np.ndarray]:
        """[n] by name: the whole model, then the mean of each layer's heads."""
        layers = {f"layer {i}, mean of heads": heads.mean(axis=0) for i, heads in enumerate(self.received)}
        return {"all layers (rollout)": self.through} | layers

    def scale(self) -> Normalize:
        """One scale of colour for a whole figure."""
        most = max(float(self.through.max()), float(self.received.max()))
        return Normalize(0, min(max(2.0, most), MAX_HOT), clip=True)


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@singledispatch
def names_of(_tokenizer: Tokenizer, _raw: Any, tokens: Tokens) -> list[str]:
    """A short name for each token: its piece of text, its place, its atom, its number."""
    if tokens.positions.shape[1] > 1:
        return [",".join(f"{x:g}" for x in row) for row in tokens.positions.tolist()]
    return [str(i) for i in range(len(tokens))]


@names_of.register
def _(tokenizer: Text, _raw: Any, tokens: Tokens) -> list[str]:
    return [text if len(text) <= 16 else f"{text[:15]}…" for text in pieces(tokenizer, tokens)]


@names_of.register
def _(tokenizer: Molecule, raw: Any, tokens: Tokens) -> list[str]:
    return [f"{symbol}{i}" for i, symbol in enumerate(graph_layout(tokenizer, raw, tokens)[2])]


# ── pictures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@singledispatch
def overlay(_tokenizer: Tokenizer, _raw: Any, _tokens: Tokens, reach: Reach) -> Figure:
    """The example, each token as hot as it is read. Any tokenizer: bars over the tokens."""
    with rc_context(STYLE):
        figure, axes = blank(7.5, 1.5 * len(reach.rows) + 0.3, rows=len(reach.rows))
        for ax, (name, strength) in zip(axes, reach.rows.items()):
            ax.bar(range(len(strength)), strength, width=0.9, color=VERMILION)
            ax.axhline(1, color=INK, linestyle="--", linewidth=0.7)
            ax.set_title(name)
        axes[-1].set(xlabel="token", ylabel="times the average")
    return figure


@overlay.register
def _(tokenizer: Text, raw: Any, tokens: Tokens, reach: Reach) -> Figure:
    texts, scale = names_of(tokenizer, raw, tokens), reach.scale()
    widths = [max(len(text) + 0.5, 1.6) for text in texts]
    lines = _broken(widths, 64.5)
    broad = max(22.0, *(sum(widths[i] for i in line) for line in lines))
    with rc_context(STYLE):
        figure, (axes,) = blank(0.125 * (broad + 17) + 0.9, 0.3 * len(reach.rows) * (len(lines) + 0.4) + 0.3)
        y = 0.0
        for name, strength in reach.rows.items():
            axes.text(-2.4, y - 0.5, name, ha="right", va="center", fontsize=8)
            for line in lines:
                left = 0.0
                axes.text(-0.5, y - 0.5, str(line[0]), ha="right", va="center", fontsize=6)
                for token in line:
                    box = Rectangle(
                        (left, y - 0.94), widths[token], 0.88, facecolor=HEAT(scale(strength[token])), linewidth=0
                    )
                    axes.add_patch(box)
                    axes.text(left + widths[token] / 2, y - 0.5, texts[token], ha="center", va="center",
                              family="monospace", fontsize=8, color=_ink(scale(strength[token])))  # fmt: skip
                    left += widths[token]
                y -= 1.0
            y -= 0.4
        axes.set(xlim=(-17, broad), ylim=(y + 0.3, 0.1))
        axes.set_axis_off()
        _bar(figure, [axes], scale, reach, height=0.3 * len(reach.rows) * (len(lines) + 0.4))
    return figure


@overlay.register
def _(tokenizer: Patches, _raw: Any, tokens: Tokens, reach: Reach) -> Figure:
    image = np.clip(tokenizer.decode(tokens).numpy(), 0, 1)
    layers, heads, _ = reach.received.shape
    rows, columns, scale = max(layers, 2), heads + 1, reach.scale()
    side = 1.3 if layers * heads <= 64 else 0.9
    shape = min(max(image.shape[1] / image.shape[2], 0.4), 2.5)
    with rc_context(STYLE):
        figure, axes = blank(side * columns + 0.9, (side * shape + 0.2) * rows + 0.1, rows=rows, columns=columns)
        for ax in axes:
            ax.set_axis_off()
        colored = rearrange(image, "c H W -> H W c") if len(image) == 3 else image.mean(axis=0)
        axes[0].imshow(colored, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes[0].set_title("the image", fontsize=7.5, loc="center")
        _hot(axes[columns], image, tokenizer.patch, tokens, reach.through, scale)
        axes[columns].set_title("all layers (rollout)", fontsize=7.5, loc="center")
        for layer in range(layers):
            for head in range(heads):
                ax = axes[layer * columns + head + 1]
                _hot(ax, image, tokenizer.patch, tokens, reach.received[layer, head], scale)
                ax.set_title(f"layer {layer} · head {head}", fontsize=7, loc="center")
        _bar(figure, axes, scale, reach, height=(side * shape + 0.2) * rows, colors=TINT)
    return figure


@overlay.register
def _(tokenizer: LogMel, _raw: Any, tokens: Tokens, reach: Reach) -> Figure:
    (layers, heads, n), m, scale = reach.received.shape, tokenizer.num_mels, reach.scale()
    hop = tokenizer.stride * tokenizer.hop_samples / tokenizer.sample_rate  # seconds from a token to the next
    span = (-hop / 2, (n - 0.5) * hop)
    own = rearrange(tokens.content.numpy(), "n (s m) -> s m n", m=m)[tokenizer.stack // 2]
    low, high = np.percentile(own, [1, 99])
    grey = np.clip((own - low) / max(float(high - low), 1e-9), 0, 1)
    strips = rearrange(reach.received, "l h n -> (l h) n")
    tall = 0.5 + (0.13 if len(strips) <= 32 else 0.05) * len(strips)
    with rc_context(STYLE):
        figure, (mel, line, heat) = blank(8.8, 3.6 + tall, rows=3, height_ratios=[2.2, 0.9, tall], sharex=True)
        hot = repeat(reach.through, "n -> m n", m=m)
        place: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest"}
        mel.imshow(_blend(grey, hot, scale), origin="lower", extent=(*span, -0.5, m - 0.5), **place)
        mel.set_ylabel("mel band")
        mel.set_title("the sound, white where it is loud, tinted by how much of it reaches the output (rollout)")
        line.bar(np.arange(n) * hop, reach.through, width=0.9 * hop, color=VERMILION)
        line.axhline(1, color=INK, linestyle="--", linewidth=0.7)
        line.set(ylabel="rollout", ylim=(0, None))
        heat.imshow(strips, cmap=HEAT, norm=scale, extent=(*span, len(strips) - 0.5, -0.5), **place)
        names = [f"layer {i} · head {j}" for i in range(layers) for j in range(heads)]
        step = 1 if len(strips) <= 32 else heads
        heat.set_yticks(range(0, len(strips), step), names[::step], fontsize=6.5)
        for layer in range(1, layers):
            heat.axhline(layer * heads - 0.5, color="#ffffff", linewidth=1.2)
        heat.set_xlabel(f"time (s), a token each {1000 * hop:g} ms")
        _bar(figure, [mel, line], scale, reach, height=2.6, colors=TINT)
        _bar(figure, [heat], scale, reach, height=tall)
    return figure


@overlay.register(Graph)
@overlay.register(Molecule)
def _(tokenizer: Graph | Molecule, raw: Any, tokens: Tokens, reach: Reach) -> Figure:
    places, edges, names, nodes = graph_layout(tokenizer, raw, tokens)
    scale, few = reach.scale(), len(nodes) <= 20
    matrices = [reach.rollout, *reduce(reach.layers, "l h n m -> l n m", "mean")]
    ends = nodes[edges]
    columns = min(len(matrices), 3 if few else 2)
    rows = -(-len(matrices) // columns)
    broad, tall = np.maximum(np.ptp(places, axis=0), 1e-9)
    side = 2.6 if few else 4.2
    high = side * float(np.clip(tall / broad, 0.5, 1.5))
    with rc_context(STYLE):
        figure, axes = blank(side * columns + 0.9, (high + 0.25) * rows, rows=rows, columns=columns)
        for ax in axes:
            ax.set_axis_off()
        for ax, (title, strength), pairs in zip(axes, reach.rows.items(), matrices):
            both = (pairs[ends[0], ends[1]] + pairs[ends[1], ends[0]]) / 2
            wide = 0.3 + 4 * np.sqrt(both)
            ax.add_collection(LineCollection(list(places[edges.T]), colors="#8795a3", linewidths=wide))
            heat = scale(strength[nodes])
            ax.scatter(
                places[:, 0],
                places[:, 1],
                s=120 if few else 140,
                c=HEAT(heat),
                edgecolors="#8795a3",
                linewidths=0.5,
                zorder=2,
            )
            for i, ((x, y), name) in enumerate(zip(places, names)):
                ax.text(x, y, name, ha="center", va="center", fontsize=6.5, color=_ink(heat[i]), zorder=3)
                if isinstance(tokenizer, Molecule):
                    ax.annotate(str(i), (x, y), (6, 4), textcoords="offset points", fontsize=5.5)
            ax.set_title(title, loc="center", fontsize=8.5)
            ax.margins(0.12)
            ax.set_aspect("equal")
        if len(nodes) < len(tokens):
            figure.supxlabel(f"{len(nodes)} of {len(tokens):,} nodes are drawn", fontsize=8)
        _bar(figure, axes, scale, reach, height=high * rows)
    return figure


# ── colours ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _hot(
    axes: Axes, image: np.ndarray, patch: tuple[int, int], tokens: Tokens, strength: np.ndarray, scale: Normalize
) -> None:
    """An image [c H W] in grey, in the colours of its patches' heat."""
    p, q = patch
    rows, columns = (int(x) + 1 for x in tokens.positions.max(dim=0).values)
    heat = np.zeros((rows, columns))
    heat[tuple(tokens.positions.long().T.numpy())] = strength
    large = repeat(heat, "r s -> (r p) (s q)", p=p, q=q)
    axes.imshow(_blend(image.mean(axis=0), large, scale), interpolation="nearest")


def _blend(grey: np.ndarray, strength: np.ndarray, scale: Normalize) -> np.ndarray:
    """Colours [H W 3]: the picture, tinted by the heat."""
    share = DENSE * np.asarray(scale(strength))[..., None]
    blended: np.ndarray = grey[..., None] * (1 - share) + np.array(FLAME) * share
    return blended


def _ink(heat: float) -> str:
    return "#ffffff" if heat > 0.7 else "#1a1a1a"


def _bar(
    figure: Figure, axes: Sequence[Axes], scale: Normalize, reach: Reach, *, height: float, colors: Colormap = HEAT
) -> None:
    most = max(float(reach.through.max()), float(reach.received.max()))
    more = "max" if most > MAX_HOT else "neither"
    bar = figure.colorbar(
        ScalarMappable(scale, colors), ax=list(axes), extend=more, aspect=18, shrink=min(1.0, 2.2 / height), pad=0.02
    )
    bar.set_label(BAR if height > 1.6 else "times average", fontsize=7)
    bar.ax.tick_params(labelsize=6.5)
    bar.ax.yaxis.set_major_locator(MaxNLocator(integer=True))


def _broken(widths: list[float], limit: float) -> list[list[int]]:
    """Numbers of pieces, in lines no wider than `limit`."""
    lines: list[list[int]] = [[]]
    for i in range(len(widths)):
        if lines[-1] and sum(widths[j] for j in lines[-1]) + widths[i] > limit:
            lines.append([])
        lines[-1].append(i)
    return lines
