"""Beam search: of each text the best few beginnings are kept, and all of them go on.

b batch · k beams · v vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor

from seqkit.contract import TokenBatch
from seqkit.generate.writer import Writer, checked_stop
from seqkit.model import Model


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """Search for the likeliest text rather than draw one.

    num_beams: k. length_penalty: α; a text's score is the sum of its log-probabilities, the stop id's too, divided by
    the number of its tokens, the stop id too, to the power of α, as in Hugging Face; so 0 is the sum, 1 the mean, and
    more prefers longer texts. (Wu et al. 2016, equation 14, divide by ((5 + number) / 6)^α.)
    Raises ValueError for fewer than one beam or a penalty that is not finite.
    """

    num_beams: int = 4
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.num_beams, int) or self.num_beams < 1:
            raise ValueError(f"num_beams={self.num_beams} counts beginnings that are kept; make it 1 or more")
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"length_penalty={self.length_penalty}; make it finite: 0 is the sum, 1 the mean")

    def score(self, log_probability: float, num_tokens: int) -> float:
        """Of a text of so many tokens."""
        return log_probability / num_tokens**self.length_penalty

    def best_possible(self, log_probability: float, num_tokens: int, max_tokens: int) -> float:
        """What a beginning of so many tokens can come to, at best: every further token for nothing."""
        return self.score(log_probability, max_tokens if self.length_penalty > 0 else num_tokens + 1)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A text that was found. ids: [t], without the stop id. score: see `BeamSearch`. stopped: False: cut off."""

    ids: Tensor
    score: float
    stopped: bool


def beam_search(
    model: Model,
    prompts: Sequence[Tensor],
    max_new_tokens: int,
    *,
    beams: BeamSearch | None = None,
    memory: TokenBatch | None = None,
    stop: Sequence[int] = (),
    context: int | None = None,
    use_cache: bool | None = None,
) -> list[list[Hypothesis]]:
    """For each prompt up to `num_beams` continuations, the best first.

    A text is done when none of its beginnings could still come to more than the worst that was found (Hugging Face's
    `early_stopping="never"`). The rest as in `generate`.
    Raises ValueError, beside what `generate` raises, for more beams than ids.
    """
    beams = BeamSearch() if beams is None else beams
    if beams.num_beams > model.spec.vocab_size:
        raise ValueError(f"num_beams={beams.num_beams} is wider than the vocabulary of {model.spec.vocab_size}; "
                         "make it narrower")  # fmt: skip
    writer = Writer(model, prompts, max_new_tokens, memory=memory, context=context, use_cache=use_cache)
    search = _Search(writer, len(prompts), max_new_tokens, beams, checked_stop(stop, model, writer.device))
    training = model.training
    model.eval()
    try:
        return search.run()
    finally:
        model.train(training)


class _Search:
    """What has been found so far, and what is still searched."""

    def __init__(self, writer: Writer, num_texts: int, max_new_tokens: int, beams: BeamSearch, ends: Tensor):
        self.writer, self.beams, self.ends, self.max_new_tokens = writer, beams, ends, max_new_tokens
        self.found: list[list[Hypothesis]] = [[] for _ in range(num_texts)]
        self.open = list(range(num_texts))  # the texts that are still searched
        self.sums = torch.zeros(num_texts, 1, device=writer.device)  # [open, beams] of log-probabilities

    @torch.inference_mode()
    def run(self) -> list[list[Hypothesis]]:
        for length in range(1, self.max_new_tokens + 1):
            self._advance(length)
            if not self.open:
                break
        return self.found

    def _advance(self, length: int) -> None:
        k, width, b = self.beams.num_beams, self.sums.shape[1], len(self.open)
        scores = self.writer.scores().float().log_softmax(dim=-1)
        v = scores.shape[-1]
        sums = rearrange(scores, "(b w) v -> b w v", b=b) + rearrange(self.sums, "b w -> b w 1")
        # enough candidates for k that go on, were every stop id among them for each beam
        best, index = rearrange(sums, "b w v -> b (w v)").topk(min((1 + len(self.ends)) * k, width * v))
        beam, token = index // v, index % v
        stops = torch.isin(token, self.ends)
        over = stops | (length == self.max_new_tokens)
        self._collect(best[:, :k], beam[:, :k], token[:, :k], stops[:, :k], over[:, :k], length)
        if length == self.max_new_tokens:
            self.open = []
            return

        going, place = best.masked_fill(stops, -torch.inf).topk(k)
        rows = torch.arange(b, device=beam.device)[:, None] * width + beam.gather(1, place)
        hopes = [self.beams.best_possible(top, length, self.max_new_tokens) for top in going[:, 0].tolist()]
        still = [i for i, hope in enumerate(hopes) if not self._done(self.open[i], hope)]
        if not still:
            self.open = []
            return
        chosen = torch.tensor(still, device=beam.device)
        self.open, self.sums = [self.open[i] for i in still], going[chosen]
        self.writer.select(rearrange(rows[chosen], "b k -> (b k)"))
        self.writer.append(rearrange(token.gather(1, place)[chosen], "b k -> (b k)"))

    def _collect(self, best: Tensor, beam: Tensor, token: Tensor, stops: Tensor, over: Tensor, length: int) -> None:
        """Take down what ended among the k best candidates [b k]; of all so far the k best stay."""
        written, width = self.writer.written, self.sums.shape[1]
        for i, j in (over & (best > -torch.inf)).nonzero().tolist():
            beginning, stopped = written[i * width + int(beam[i, j])], bool(stops[i, j])
            ids = beginning if stopped else torch.cat([beginning, token[i, j : j + 1]])
            with torch.inference_mode(False):
                found = Hypothesis(ids.clone(), self.beams.score(float(best[i, j]), length), stopped)
            mine = self.found[self.open[i]]
            mine.append(found)
            mine.sort(key=lambda hypothesis: -hypothesis.score)
            del mine[self.beams.num_beams :]

    def _done(self, text: int, hope: float) -> bool:
        found = self.found[text]
        return hope == -math.inf or (len(found) == self.beams.num_beams and hope <= found[-1].score)
