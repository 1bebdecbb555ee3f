"""Sound: each token as a frame of the spectrogram.

n tokens · m mel bands · s frames of a token · l layers · h heads
"""

from __future__ import annotations

from typing import Any

import numpy as np
from einops import rearrange, repeat
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from seqkit.interfaces import Tokens
from seqkit.report.figures import BLUE, INK, STYLE, VERMILION, new_figure, svg
from seqkit.report.modality.base import HEAT, TINT, AttentionSummary, Renderer, blend, color_bar, whole_numbers
from seqkit.tokenizers.audio import LogMel

MAX_STRIPS = 32
"""At most this many heads have a line and a name each."""


class AudioRenderer(Renderer):
    """The spectrogram beside its waveform, or tinted by the attention that its frames receive."""

    tokenizer: LogMel
    size = (2.6, 1.7)
    note = "Each picture is a spectrogram: yellow is loud for its frequency, dark blue is quiet."

    def picture(self, raw: Any, tokens: Tokens) -> Figure:
        """Waveform above spectrogram, and the vector of the token in the middle."""
        samples, rate = np.atleast_2d(np.asarray(raw[0]))[0], raw[1]
        hop, m, stack = self._hop_seconds, self.tokenizer.num_mels, self.tokenizer.stack
        end, chosen = len(tokens) * hop, len(tokens) // 2
        own, (low, high) = self._own_frames(tokens)
        with rc_context(STYLE):
            figure, (wave, empty, mel, frame) = new_figure(
                9.2, 4.4, rows=2, columns=2, width_ratios=[4, 1], height_ratios=[1, 1.7]
            )
            empty.set_axis_off()
            wave.plot(np.arange(len(samples)) / rate, samples, color=BLUE, linewidth=0.5)
            wave.set(ylabel="amplitude", xlim=(-hop / 2, end - hop / 2), xlabel="time (s)")
            wave.set_title(
                f"{len(samples):,} samples at {rate:,} Hz → {len(tokens)} tokens, one each {1000 * hop:g} ms"
            )
            image = mel.imshow(own, aspect="auto", origin="lower", cmap="cividis", vmin=low, vmax=high)
            mel.add_patch(Rectangle((chosen - 0.5, -0.5), 1, m, fill=False, edgecolor=VERMILION, linewidth=1.6))
            mel.set(xlabel="token", ylabel="mel band")
            whole_numbers(mel.xaxis)
            label = "normalised log-energy" if self.tokenizer.normalize else "log-energy"
            figure.colorbar(image, ax=mel, location="right", pad=0.01, label=label)
            frame.barh(range(m), own[:, chosen], color=BLUE)
            frame.axvline(0, color=INK, linewidth=0.6)
            frame.set(xlabel="value", ylim=(-0.5, m - 0.5), yticks=[])
            factors = "" if stack == 1 else f"\n= {stack} frames × {m}"  # the axes are narrow
            frame.set_title(f"token {chosen}: f = {stack * m}{factors}", color=VERMILION)
        return figure

    def small_svg(self, raw: Any, tokens: Tokens) -> str:
        """The spectrogram with seconds and kilohertz."""
        span, m = (-self._hop_seconds / 2, (len(tokens) - 0.5) * self._hop_seconds), self.tokenizer.num_mels
        with rc_context(STYLE):
            figure, (axes,) = new_figure(*self.size)
            self.thumbnail(tokens, axes)
            axes.images[0].set_extent((*span, -0.5, m - 0.5))
            axes.set(xlabel="seconds", ylabel="kHz")
            axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
            kilohertz = [f for f in (0.25, 1, 2, 4, 8, 16) if f <= self.tokenizer.sample_rate / 2000]
            axes.set_yticks([self._band(1000 * f) for f in kilohertz], [f"{f:g}" for f in kilohertz])
        return svg(figure)

    def thumbnail(self, tokens: Tokens, axes: Axes, raw: Any = None) -> None:
        """The spectrogram, each frame once: of the frames stacked in a token, the one at its position."""
        own, (low, high) = self._own_frames(tokens)
        axes.imshow(own, aspect="auto", origin="lower", cmap="cividis", vmin=low, vmax=high, interpolation="nearest")
        axes.set(xticks=[], yticks=[])

    def overlay(self, raw: Any, tokens: Tokens, summary: AttentionSummary) -> Figure:
        """The spectrogram tinted by rollout, rollout as bars, and a strip for each head, on one time axis."""
        (layers, heads, n), m, hop = summary.by_head.shape, self.tokenizer.num_mels, self._hop_seconds
        span = (-hop / 2, (n - 0.5) * hop)
        own, (low, high) = self._own_frames(tokens)
        grey = np.clip((own - low) / max(float(high - low), 1e-9), 0, 1)
        strips = rearrange(summary.by_head, "l h n -> (l h) n")
        tall = 0.5 + (0.13 if len(strips) <= MAX_STRIPS else 0.05) * len(strips)
        with rc_context(STYLE):
            figure, (mel, line, heat) = new_figure(8.8, 3.6 + tall, rows=3, height_ratios=[2.2, 0.9, tall], sharex=True)
            received = repeat(summary.by_rollout, "n -> m n", m=m)
            place: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest"}
            mel.imshow(blend(grey, received, summary.scale()), origin="lower", extent=(*span, -0.5, m - 0.5), **place)
            mel.set_ylabel("mel band")
            mel.set_title("the sound, white where it is loud, tinted by the attention received (rollout)")
            line.bar(np.arange(n) * hop, summary.by_rollout, width=0.9 * hop, color=VERMILION)
            line.axhline(1, color=INK, linestyle="--", linewidth=0.7)
            line.set(ylabel="rollout", ylim=(0, None))
            heat.imshow(strips, cmap=HEAT, norm=summary.scale(), extent=(*span, len(strips) - 0.5, -0.5), **place)
            names = [f"layer {i} · head {j}" for i in range(layers) for j in range(heads)]
            step = 1 if len(strips) <= MAX_STRIPS else heads
            heat.set_yticks(range(0, len(strips), step), names[::step], fontsize=6.5)
            for layer in range(1, layers):
                heat.axhline(layer * heads - 0.5, color="#ffffff", linewidth=1.2)
            heat.set_xlabel(f"time (s), a token each {1000 * hop:g} ms")
            color_bar(figure, [mel, line], summary, height=2.6, colors=TINT)
            color_bar(figure, [heat], summary, height=tall)
        return figure

    def _band(self, frequency: float) -> float:
        """The place among the mel bands (0: the centre of the lowest) of a frequency in Hz.

        Centres are evenly spaced between 0 and half the sample rate on the scale of torchaudio's mel_scale="htk".
        """
        share = np.log1p(frequency / 700) / np.log1p(self.tokenizer.sample_rate / 2 / 700)
        return float(share * (self.tokenizer.num_mels + 1) - 1)

    @property
    def _hop_seconds(self) -> float:
        """Time from a token to the next."""
        return self.tokenizer.stride * self.tokenizer.hop_samples / self.tokenizer.sample_rate

    def _own_frames(self, tokens: Tokens) -> tuple[np.ndarray, np.ndarray]:
        """The frames [m n] at the tokens' positions, without their neighbours in a stack, and the limits of colour."""
        frames = rearrange(tokens.content.numpy(), "n (s m) -> s m n", m=self.tokenizer.num_mels)
        own = frames[self.tokenizer.stack // 2]
        return own, np.percentile(own, [1, 99])  # one loud frame must not hide the others
