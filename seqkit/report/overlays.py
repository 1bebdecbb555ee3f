"""How much each token is read, drawn on the example itself: on the text, the image, the spectrogram, the graph.

n tokens · h heads · l layers · c channels · H W image height and width · p q patch height and width
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
from einops import rearrange, repeat
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from seqkit.contract import Tokenizer, Tokens
from seqkit.report.figures import INK, STYLE, VERMILION, blank
from seqkit.report.graphs import graph_layout
from seqkit.report.pictures import pieces, thumbnail
from seqkit.tokenizers.audio import LogMel
from seqkit.tokenizers.graph import Graph
from seqkit.tokenizers.image import Patches
from seqkit.tokenizers.molecule import Molecule
from seqkit.tokenizers.text import Text

HEAT = colormaps["YlOrRd"]


@singledispatch
def names_of(_tokenizer: Tokenizer, tokens: Tokens) -> list[str]:
    """A short name for each token: its piece of text, its place, its number."""
    if tokens.positions.shape[1] > 1:
        return [",".join(f"{x:g}" for x in row) for row in tokens.positions.tolist()]
    return [str(i) for i in range(len(tokens))]


@names_of.register
def _(tokenizer: Text, tokens: Tokens) -> list[str]:
    return pieces(tokenizer, tokens)


@singledispatch
def overlay(_tokenizer: Tokenizer, _raw: Any, _tokens: Tokens, through: np.ndarray, _received: np.ndarray) -> Figure:
    """The example, each token as hot as it is read. Any tokenizer: bars over the tokens.

    through: [n], of the whole model. received: [l h n], of each head of each layer, the mean over those who read.
    """
    with rc_context(STYLE):
        figure, (axes,) = blank(7.5, 2.6)
        _bars(axes, through)
    return figure


@overlay.register
def _(tokenizer: Text, _raw: Any, tokens: Tokens, through: np.ndarray, received: np.ndarray) -> Figure:
    texts = pieces(tokenizer, tokens)
    rows = {"whole model (rollout)": through}
    rows |= {f"layer {layer}": heads.mean(axis=0) for layer, heads in enumerate(received)}
    widths = [max(len(text) + 0.5, 1.6) for text in texts]
    lines = _broken(widths, 64)
    with rc_context(STYLE):
        figure, (axes,) = blank(9.2, 0.34 * len(rows) * len(lines) + 0.5)
        y = 0.0
        for name, strength in rows.items():
            hottest = max(float(strength.max()), 1e-9)
            for i, line in enumerate(lines):
                left = 0.0
                if i == 0:
                    axes.text(-0.5, y - 0.5, name, ha="right", va="center", fontsize=7.5)
                for token in line:
                    heat = float(strength[token]) / hottest
                    color = HEAT(0.85 * heat)
                    axes.add_patch(Rectangle((left, y - 0.92), widths[token], 0.84, facecolor=color, linewidth=0))
                    ink = "#ffffff" if heat > 0.8 else "#1a1a1a"
                    axes.text(left + widths[token] / 2, y - 0.5, texts[token], ha="center", va="center",
                              family="monospace", fontsize=8, color=ink)  # fmt: skip
                    left += widths[token]
                y -= 1.0
            y -= 0.25
        axes.set(xlim=(-9, 65), ylim=(y, 0.2))
        axes.set_axis_off()
    return figure


@overlay.register
def _(tokenizer: Patches, _raw: Any, tokens: Tokens, through: np.ndarray, received: np.ndarray) -> Figure:
    image = np.clip(tokenizer.decode(tokens).numpy(), 0, 1)
    grey = image.mean(axis=0)
    layers, heads, _ = received.shape
    with rc_context(STYLE):
        figure, axes = blank(1.25 * (heads + 1) + 0.5, 1.4 * layers + 0.2, rows=layers, columns=heads + 1)
        for ax in axes:
            ax.set_axis_off()
        for layer in range(layers):
            for head in range(heads):
                ax = axes[layer * (heads + 1) + head + 1]
                _hot(ax, grey, tokenizer.patch, tokens, received[layer, head])
                ax.set_title(f"layer {layer} · head {head}", fontsize=6.5, loc="center")
        _hot(axes[0], grey, tokenizer.patch, tokens, through)
        axes[0].set_title("rollout", fontsize=7.5, loc="center")
        if layers > 1:
            axes[heads + 1].imshow(image[0] if len(image) != 3 else rearrange(image, "c H W -> H W c"),
                                   cmap="gray", vmin=0, vmax=1)  # fmt: skip
            axes[heads + 1].set_title("the image", fontsize=7.5, loc="center")
    return figure


@overlay.register
def _(tokenizer: LogMel, _raw: Any, tokens: Tokens, through: np.ndarray, received: np.ndarray) -> Figure:
    layers = received.mean(axis=1)
    n = len(tokens)
    with rc_context(STYLE):
        heights = [2.2, 1, 0.35 + 0.12 * len(layers)]
        figure, (mel, line, strips) = blank(8.6, 3.4 + 0.16 * len(layers), rows=3, height_ratios=heights)
        thumbnail(tokenizer, tokens, mel)
        mel.set_ylabel("mel band")
        mel.set_xlim(-0.5, n - 0.5)
        mel.set_title("the sound as the model reads it: a frame a column")
        top = mel.get_ylim()[1]
        scaled = through / max(float(through.max()), 1e-9)
        mel.fill_between(range(n), 0, scaled * 0.45 * top, color=VERMILION, alpha=0.45, linewidth=0, step="mid")
        _bars(line, through)
        line.set(xlim=(-0.5, n - 0.5), xlabel="", ylabel="rollout")
        relative = layers / np.maximum(layers.max(axis=1, keepdims=True), 1e-9)
        strips.imshow(relative, cmap=HEAT, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        strips.set_yticks(range(len(layers)), [f"layer {i}" for i in range(len(layers))], fontsize=6.5)
        strips.set(xlabel="token (time)")
    return figure


@overlay.register(Graph)
@overlay.register(Molecule)
def _(tokenizer: Graph | Molecule, raw: Any, tokens: Tokens, through: np.ndarray, received: np.ndarray) -> Figure:
    places, edges, names, nodes = graph_layout(tokenizer, raw, tokens)
    columns = {"rollout": through, **{f"layer {i}": heads.mean(axis=0) for i, heads in enumerate(received)}}
    shown = list(columns.items())[:5]
    with rc_context(STYLE):
        figure, axes = blank(2.5 * len(shown), 2.8, columns=len(shown))
        for ax, (title, strength) in zip(axes, shown):
            ax.add_collection(LineCollection(list(places[edges.T]), colors="#9aa5b1", linewidths=0.9))
            heat = strength[nodes] / max(float(strength.max()), 1e-9)
            ax.scatter(places[:, 0], places[:, 1], s=60 + 160 * heat, c=heat, cmap=HEAT, vmin=0, vmax=1.15, zorder=2)
            for (x, y), name, hot in zip(places, names, heat):
                color = "#ffffff" if hot > 0.8 else "#1a1a1a"
                ax.text(x, y, name, ha="center", va="center", fontsize=6, color=color)
            ax.set_title(title, loc="center")
            ax.margins(0.12)
            ax.set_aspect("equal")
            ax.set_axis_off()
    return figure


def _hot(axes: Axes, grey: np.ndarray, patch: tuple[int, int], tokens: Tokens, strength: np.ndarray) -> None:
    """A grey image under the heat of its patches."""
    p, q = patch
    rows, columns = (int(x) + 1 for x in tokens.positions.max(dim=0).values)
    heat = np.zeros((rows, columns))
    heat[tuple(tokens.positions.long().T.numpy())] = strength / max(float(strength.max()), 1e-9)
    large = repeat(heat, "r s -> (r p) (s q)", p=p, q=q)
    colors = HEAT(0.85 * large)[..., :3]
    axes.imshow(0.35 * repeat(grey, "H W -> H W c", c=3) + 0.65 * colors, interpolation="nearest")


def _bars(axes: Axes, strength: np.ndarray) -> None:
    axes.bar(range(len(strength)), strength, width=0.9, color=VERMILION)
    axes.axhline(1 / len(strength), color=INK, linestyle="--", linewidth=0.7)
    axes.set(xlabel="token", ylabel="share read")


def _broken(widths: list[float], limit: float) -> list[list[int]]:
    """Numbers of pieces, in lines no wider than `limit`."""
    lines: list[list[int]] = [[]]
    for i in range(len(widths)):
        if lines[-1] and sum(widths[j] for j in lines[-1]) + widths[i] > limit:
            lines.append([])
        lines[-1].append(i)
    return lines
