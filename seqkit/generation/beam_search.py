"""Beam search: of each sequence the k best prefixes are kept, and all of them are continued.

b sequences · k beams · w beams so far · v vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from seqkit.generation.decode import DecodingState, checked_stop, evaluating
from seqkit.model import Model


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """Search for the likeliest sequence rather than draw one.

    num_beams: number of prefixes that are kept, k. length_penalty: exponent α of the length. The score of a sequence is
    the sum of its log-probabilities divided by (number of tokens)^α, the stop id counted in both, as in Hugging Face.
    So 0 is the sum, 1 the mean, and more prefers longer sequences. (Wu et al. 2016, equation 14, divide by ((5 +
    number) / 6)^α.) Raises ValueError for fewer than one beam or a penalty that is not finite.
    """

    num_beams: int = 4
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.num_beams, int) or self.num_beams < 1:
            raise ValueError(
                f"num_beams={self.num_beams} counts prefixes that are kept; make it 1 or more"
            )
        if not math.isfinite(self.length_penalty):
            raise ValueError(
                f"length_penalty={self.length_penalty}; make it finite: 0 is the sum, 1 the mean"
            )

    def score(self, log_probability: float, num_tokens: int) -> float:
        """Score of a sequence of `num_tokens` tokens with that log-probability."""
        return log_probability / num_tokens**self.length_penalty

    def best_possible(self, log_probability: float, num_tokens: int, max_tokens: int) -> float:
        """Upper bound on a prefix's final score (further tokens at log-probability 0)."""
        return self.score(
            log_probability, max_tokens if self.length_penalty > 0 else num_tokens + 1
        )


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished sequence. ids: [t], without the stop id. score: as in `BeamSearch`. stopped: False: cut off."""

    ids: Tensor
    score: float
    stopped: bool


def beam_search(
    model: Model,
    prompts: Sequence[Tensor],
    max_new_tokens: int,
    *,
    beams: BeamSearch | None = None,
    stop: Sequence[int] = (),
    **settings: Any,
) -> list[list[Hypothesis]]:
    """Search up to `num_beams` continuations of each prompt; returns them with the best first.

    The search for a prompt ends when no prefix can still beat its worst hypothesis (Hugging Face's
    `early_stopping="never"`). The other arguments as in `generate`.
    Raises ValueError, beside what `generate` raises, for more beams than ids.
    """
    beams = BeamSearch() if beams is None else beams
    if beams.num_beams > model.spec.vocab_size:
        raise ValueError(
            f"num_beams={beams.num_beams} is wider than the vocabulary of {model.spec.vocab_size}; make it narrower"
        )
    state = DecodingState(model, prompts, max_new_tokens, **settings)
    search = _Search(
        state, len(prompts), max_new_tokens, beams, checked_stop(stop, model, state.device)
    )
    with evaluating(model):
        return search.run()


class _Search:
    """Hypotheses so far, and the prompts that are still open."""

    def __init__(
        self,
        state: DecodingState,
        num_prompts: int,
        max_new_tokens: int,
        beams: BeamSearch,
        stop: Tensor,
    ):
        self.state = state
        self.beams = beams
        self.stop = stop
        self.max_new_tokens = max_new_tokens
        self.hypotheses: list[list[Hypothesis]] = [[] for _ in range(num_prompts)]
        self.open = list(range(num_prompts))  # the prompts that are still searched
        self.sums = torch.zeros(num_prompts, 1, device=state.device)  # [b w] of log-probabilities

    @torch.inference_mode()
    def run(self) -> list[list[Hypothesis]]:
        for length in range(1, self.max_new_tokens + 1):
            self._advance(length)
            if not self.open:
                break
        return self.hypotheses

    def _advance(self, length: int) -> None:
        k = self.beams.num_beams
        width = self.sums.shape[1]
        b = len(self.open)
        log_probabilities = self.state.next_logits().float().log_softmax(dim=-1)
        v = log_probabilities.shape[-1]
        sums = rearrange(log_probabilities, "(b w) v -> b w v", b=b) + rearrange(
            self.sums, "b w -> b w 1"
        )
        # enough candidates for k that go on, even if every stop id is among them for each beam
        best, index = rearrange(sums, "b w v -> b (w v)").topk(
            min((1 + len(self.stop)) * k, width * v)
        )
        beam = index // v
        token = index % v
        stops = torch.isin(token, self.stop)
        ended = stops | (length == self.max_new_tokens)
        self._collect(best[:, :k], beam[:, :k], token[:, :k], stops[:, :k], ended[:, :k], length)
        if length == self.max_new_tokens:
            self.open = []
            return

        ongoing, place = best.masked_fill(stops, -torch.inf).topk(k)
        rows = rearrange(torch.arange(b, device=beam.device), "b -> b 1") * width + beam.gather(
            1, place
        )
        bounds = [
            self.beams.best_possible(top, length, self.max_new_tokens)
            for top in ongoing[:, 0].tolist()
        ]
        still_open = [i for i, bound in enumerate(bounds) if not self._is_done(self.open[i], bound)]
        if not still_open:
            self.open = []
            return
        chosen = torch.tensor(still_open, device=beam.device)
        self.open = [self.open[i] for i in still_open]
        self.sums = ongoing[chosen]
        self.state.reorder(rearrange(rows[chosen], "b k -> (b k)"))
        self.state.append(rearrange(token.gather(1, place)[chosen], "b k -> (b k)"))

    def _collect(
        self, best: Tensor, beam: Tensor, token: Tensor, stops: Tensor, ended: Tensor, length: int
    ) -> None:
        """Add those of the k best candidates [b k] that ended, and keep the k best hypotheses of each prompt."""
        new_ids = self.state.new_ids
        width = self.sums.shape[1]
        for i, j in (ended & (best > -torch.inf)).nonzero().tolist():
            prefix = new_ids[i * width + int(beam[i, j])]
            stopped = bool(stops[i, j])
            ids = prefix if stopped else torch.cat([prefix, token[i, j : j + 1]])
            with torch.inference_mode(False):
                found = Hypothesis(
                    ids.clone(), self.beams.score(float(best[i, j]), length), stopped
                )
            hypotheses = self.hypotheses[self.open[i]]
            hypotheses.append(found)
            hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
            del hypotheses[self.beams.num_beams :]

    def _is_done(self, prompt: int, bound: float) -> bool:
        """True: no prefix of this prompt, whose final score is at most `bound`, can add a hypothesis."""
        found = self.hypotheses[prompt]
        return bound == -math.inf or (
            len(found) == self.beams.num_beams and bound <= found[-1].score
        )
