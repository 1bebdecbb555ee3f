"""What the tokens of one example look like: a full picture for `seqkit inspect`, a thumbnail for reports.

Both go by the tokenizer's class; one that is not known here is drawn by what the contract says of all tokens.

n tokens · f features · c channels · H W image height and width
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
from einops import rearrange
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from seqkit.contract import Tokenizer, Tokens
from seqkit.report.figures import BLUE, INK, STYLE, VERMILION, blank
from seqkit.tokenizers.audio import LogMel
from seqkit.tokenizers.image import Patches
from seqkit.tokenizers.text import Text

MAX_PIECES = 72
"""So many tokens of a text are drawn."""

_TINTS = ("#cfe3f3", "#fbe3c0", "#cdeadf", "#f3dbe8")
_VISIBLE = str.maketrans({"\n": "↵", " ": "␣", "\t": "⇥", "\r": "␍"})


@singledispatch
def picture(tokenizer: Tokenizer, _raw: Any, tokens: Tokens) -> Figure:
    """How the raw example became `tokens`. Any tokenizer: content as a matrix or row, beside it the positions."""
    with rc_context(STYLE):
        axes: list[Axes]
        figure, axes = blank(8.6, 3.6, columns=2, width_ratios=[3, 1])
        _content(axes[0], figure, tokens)
        axes[0].set_title(f"content: {len(tokens)} tokens of {type(tokenizer).__name__}")
        if tokens.positions.shape[1]:
            for axis, values in enumerate(tokens.positions.T.numpy()):
                axes[1].plot(values, label=f"axis {axis}", marker=".", linewidth=0.8)
            axes[1].set(xlabel="token", ylabel="position")
            axes[1].legend()
        else:
            axes[1].text(0.5, 0.5, "no positions:\nthese tokens have no order", ha="center", va="center")
            axes[1].set_axis_off()
    return figure


@singledispatch
def thumbnail(_tokenizer: Tokenizer, tokens: Tokens, axes: Axes) -> None:
    """A small picture of tokens alone, on axes without scales. Any tokenizer of vectors: features over tokens."""
    axes.imshow(_matrix(tokens), aspect="auto", cmap="cividis", interpolation="nearest", origin="lower")
    axes.set(xticks=[], yticks=[])


def pieces(tokenizer: Text, tokens: Tokens) -> list[str]:
    """The text of each token by itself; spaces are made visible, a byte that is no character is hexadecimal."""
    texts = []
    for i in tokens.content.tolist():
        text = tokenizer.decode([i])
        broken = "\N{REPLACEMENT CHARACTER}" in text or not text.translate(_VISIBLE).isprintable()
        texts.append(f"‹{i:02x}›" if broken else text.translate(_VISIBLE))
    return texts


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@picture.register
def _(tokenizer: Text, _raw: Any, tokens: Tokens) -> Figure:
    texts = pieces(tokenizer, Tokens(tokens.content[:MAX_PIECES], tokens.positions[:MAX_PIECES]))
    ids = [str(i) for i in tokens.content[:MAX_PIECES].tolist()]
    # widths in characters of the monospaced pieces; ids are smaller
    widths = [max(len(text) + 0.9, 0.7 * len(i) + 0.7, 2.0) for text, i in zip(texts, ids)]
    rows: list[list[int]] = [[]]
    for i in range(len(texts)):
        if rows[-1] and sum(widths[j] for j in rows[-1]) + widths[i] > 64:
            rows.append([])
        rows[-1].append(i)
    with rc_context(STYLE):
        figure, (axes,) = blank(9.2, 0.75 + 0.72 * len(rows))
        for line, members in enumerate(rows):
            left = 0.0
            for i in members:
                box = Rectangle(
                    (left + 0.06, -line - 0.44),
                    widths[i] - 0.12,
                    0.44,
                    facecolor=_TINTS[i % 4],
                    edgecolor=INK,
                    linewidth=0.5,
                )
                axes.add_patch(box)
                middle = left + widths[i] / 2
                axes.text(middle, -line - 0.23, texts[i], ha="center", va="center", family="monospace", fontsize=11)
                axes.text(middle, -line - 0.55, ids[i], ha="center", va="center", fontsize=7.5, color=BLUE)
                position = ", ".join(f"{p:g}" for p in tokens.positions[i].tolist())
                axes.text(middle, -line - 0.73, position, ha="center", va="center", fontsize=6.5)
                left += widths[i]
        axes.set(xlim=(-0.3, 64.5), ylim=(-len(rows) + 0.15, 0.15))
        axes.set_axis_off()
        axes.set_title(
            f"{type(tokenizer).__name__}: {len(texts)} tokens, vocabulary {tokenizer.spec.vocab_size:,}"
            " · box: piece of text · below: id (blue), position"
        )
    return figure


# ── images ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@picture.register
def _(tokenizer: Patches, _raw: Any, tokens: Tokens) -> Figure:
    (p, q), places = tokenizer.patch, tokens.positions.long().tolist()
    chosen = int(tokens.content.std(dim=1).argmax())
    row, column = places[chosen]
    with rc_context(STYLE):
        figure, (whole, patch, vector) = blank(10.2, 3.7, columns=3, width_ratios=[1.25, 0.9, 1.1])
        _show(whole, tokenizer.decode(tokens).numpy())
        height, width = (int(x) + 1 for x in tokens.positions.max(dim=0).values)
        whole.set_xticks(np.arange(width) * q + (q - 1) / 2, [str(x) for x in range(width)], fontsize=6)
        whole.set_yticks(np.arange(height) * p + (p - 1) / 2, [str(y) for y in range(height)], fontsize=6)
        for y in range(1, height):
            whole.axhline(y * p - 0.5, color=BLUE, linewidth=0.6)
        for x in range(1, width):
            whole.axvline(x * q - 0.5, color=BLUE, linewidth=0.6)
        whole.add_patch(
            Rectangle((column * q - 0.5, row * p - 0.5), q, p, fill=False, edgecolor=VERMILION, linewidth=2.2)
        )
        whole.set(xlabel="column (position axis 1)", ylabel="row (position axis 0)")
        whole.set_title(f"{height * p}x{width * q} pixels → {len(tokens)} patches of {p}x{q}")
        one = Tokens(tokens.content[chosen][None], tokens.positions[chosen][None] * 0)
        pixels = tokenizer.decode(one).numpy()
        _show(patch, pixels)
        patch.set(xticks=[], yticks=[])
        patch.spines[:].set_visible(False)
        patch.set_title(f"token {chosen}, position ({row}, {column})", color=VERMILION)
        if len(pixels) == 1 and p * q <= 64:
            for (y, x), value in np.ndenumerate(pixels[0]):
                color = "#000000" if value > 0.5 else "#ffffff"
                patch.text(x, y, f"{value:.1f}", ha="center", va="center", color=color, fontsize=7)
        values = tokens.content[chosen].numpy()
        vector.bar(range(len(values)), values, width=0.9, color=BLUE)
        vector.axhline(0, color=INK, linewidth=0.6)
        vector.xaxis.set_major_locator(MaxNLocator(integer=True))
        vector.set(xlabel="feature", ylabel="value that the model reads")
        vector.set_title(f"its vector: f = {tokenizer.channels}·{p}·{q} = {len(values)}")
    return figure


@thumbnail.register
def _(tokenizer: Patches, tokens: Tokens, axes: Axes) -> None:
    _show(axes, tokenizer.decode(tokens).numpy())
    axes.set(xticks=[], yticks=[])


def _show(axes: Axes, image: np.ndarray) -> None:
    """An image [c H W]: in colour if it has three channels, the mean of its channels in grey otherwise."""
    image = np.clip(image, 0, 1)
    if len(image) == 3:
        axes.imshow(rearrange(image, "c H W -> H W c"), interpolation="nearest")
    else:
        axes.imshow(image.mean(axis=0), cmap="gray", vmin=0, vmax=1, interpolation="nearest")


# ── sound ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@picture.register
def _(tokenizer: LogMel, raw: Any, tokens: Tokens) -> Figure:
    samples = np.atleast_2d(np.asarray(raw[0]))[0]
    hop = tokenizer.stride * tokenizer.hop_samples / tokenizer.sample_rate
    end, chosen = len(tokens) * hop, len(tokens) // 2
    with rc_context(STYLE):
        figure, (wave, empty, mel, frame) = blank(
            9.2, 4.4, rows=2, columns=2, width_ratios=[4, 1], height_ratios=[1, 1.7]
        )
        empty.set_axis_off()
        wave.plot(np.arange(len(samples)) / raw[1], samples, color=BLUE, linewidth=0.5)
        wave.set(ylabel="amplitude", xlim=(-hop / 2, end - hop / 2), xlabel="time (s)")
        wave.set_title(f"{len(samples):,} samples at {raw[1]:,} Hz → {len(tokens)} tokens, one each {1000 * hop:g} ms")
        m, stack = tokenizer.num_mels, tokenizer.stack
        own = _matrix(tokens)[stack // 2 * m : (stack // 2 + 1) * m]  # of a stack, the frame at the token's position
        low, high = np.percentile(own, [1, 99])  # one loud frame must not hide the others
        image = mel.imshow(own, aspect="auto", origin="lower", cmap="cividis", vmin=low, vmax=high)
        mel.add_patch(Rectangle((chosen - 0.5, -0.5), 1, m, fill=False, edgecolor=VERMILION, linewidth=1.6))
        mel.set(xlabel="token", ylabel="mel band")
        label = "normalised log-energy" if tokenizer.normalize else "log-energy"
        figure.colorbar(image, ax=mel, location="right", pad=0.01, label=label)
        frame.barh(range(m), own[:, chosen], color=BLUE)
        frame.axvline(0, color=INK, linewidth=0.6)
        frame.set(xlabel="value", ylim=(-0.5, m - 0.5), yticks=[])
        seen = "" if stack == 1 else f" = {stack} frames × {m}"
        frame.set_title(f"token {chosen}: f = {stack * m}{seen}", color=VERMILION)
    return figure


# ── any ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _matrix(tokens: Tokens) -> np.ndarray:
    """Content as [f n]; ids are a single row."""
    content = tokens.content.numpy()
    return rearrange(content, "n -> 1 n") if content.ndim == 1 else rearrange(content, "n f -> f n")


def _content(axes: Axes, figure: Figure, tokens: Tokens) -> None:
    image = axes.imshow(_matrix(tokens), aspect="auto", cmap="cividis", interpolation="nearest")
    axes.set(xlabel="token", ylabel="feature" if tokens.content.ndim == 2 else "id")
    figure.colorbar(image, ax=axes, label="value" if tokens.content.ndim == 2 else "id", pad=0.01)
