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

from seqkit.generation.decode import DecodingState, evaluating
from seqkit.model import Model


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """Search for the likeliest sequence rather than draw one.

    num_beams: number of prefixes that are kept, k. length_penalty: exponent α of the length. The score of a sequence is
    the sum of its log-probabilities divided by (number of tokens)^α, the stop id counted in both, as in Hugging Face.
    So 0 is the sum, 1 the mean, and more prefers longer sequences. (Wu et al. 2016, equation 14, divide by ((5 +
    number) / 6)^α.)
    early_stopping: when the search for a prompt ends that has k hypotheses, as in Hugging Face. "never": when no prefix
    can still beat the worst of them; False: when none would as long as it is; True: at once.
    Raises ValueError for fewer than one beam, a penalty that is not finite, or another end.
    """

    num_beams: int = 4
    length_penalty: float = 1.0
    early_stopping: bool | str = "never"

    def __post_init__(self) -> None:
        if not isinstance(self.num_beams, int) or self.num_beams < 1:
            raise ValueError(
                f"num_beams={self.num_beams} counts prefixes that are kept; make it 1 or more"
            )
        if not math.isfinite(self.length_penalty):
            raise ValueError(
                f"length_penalty={self.length_penalty}; make it finite: 0 is the sum, 1 the mean"
            )
        if self.early_stopping not in (True, False, "never"):
            raise ValueError(f"early_stopping={self.early_stopping!r}; give true, false or 'never'")

    def score(self, log_probability: float, num_tokens: int) -> float:
        """Score of a sequence of `num_tokens` tokens with that log-probability."""
        return log_probability / num_tokens**self.length_penalty

    def best_possible(self, log_probability: float, num_tokens: int, max_tokens: int) -> float:
        """Upper bound on a prefix's final score (further tokens at log-probability 0); with False, its score now."""
        if self.length_penalty <= 0:
            num_tokens += 1
        elif self.early_stopping == "never":
            num_tokens = max_tokens
        return self.score(log_probability, num_tokens)


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

    The other arguments as in `generate`.
    Raises ValueError, beside what `generate` raises, for more beams than ids.
    """
    beams = BeamSearch() if beams is None else beams
    if beams.num_beams > model.spec.vocab_size:
        raise ValueError(
            f"num_beams={beams.num_beams} is wider than the vocabulary of {model.spec.vocab_size}; make it narrower"
        )
    state = DecodingState(model, prompts, max_new_tokens, **settings)
    search = _Search(state, beams, state.checked_ids("stop", stop))
    with torch.inference_mode(), evaluating(model):
        while search.open:
            search.advance()
    return search.hypotheses


class _Search:
    """Hypotheses so far, and the prompts that are still open. stop: ids [s]."""

    def __init__(self, state: DecodingState, beams: BeamSearch, stop: Tensor):
        self.state = state
        self.beams = beams
        self.stop = stop
        self.hypotheses: list[list[Hypothesis]] = [[] for _ in range(len(state))]
        self.open = list(range(len(state)))  # the prompts that are still searched
        self.sums = torch.zeros(len(state), 1, device=state.device)  # [b w] of log-probabilities

    def advance(self) -> None:
        """One more token."""
        k = self.beams.num_beams
        max_tokens = self.state.max_new_tokens
        length = self.state.new_ids.shape[1] + 1
        b, width = self.sums.shape
        log_probabilities = self.state.log_probabilities()
        v = log_probabilities.shape[-1]
        sums = rearrange(log_probabilities, "(b w) v -> b w v", b=b) + self.sums[..., None]
        # enough candidates for k that go on, even if every stop id is among them for each beam
        num_candidates = min((1 + len(self.stop)) * k, width * v)
        best, index = rearrange(sums, "b w v -> b (w v)").topk(num_candidates)
        beam = index // v
        token = index % v
        stops = torch.isin(token, self.stop)
        ended = (stops | (length == max_tokens)) & (best > -torch.inf)
        new_ids = self.state.new_ids
        for i, j in ended[:, :k].nonzero().tolist():
            ids = new_ids[i * width + int(beam[i, j])]
            if not stops[i, j]:
                ids = torch.cat([ids, token[i, j : j + 1]])
            with torch.inference_mode(False):
                score = self.beams.score(float(best[i, j]), length)
                found = Hypothesis(ids.clone(), score, bool(stops[i, j]))
            hypotheses = self.hypotheses[self.open[i]]
            hypotheses.append(found)
            hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
            del hypotheses[k:]
        if length == max_tokens:
            self.open = []
            return

        ongoing, place = best.masked_fill(stops, -torch.inf).topk(k)
        first_rows = torch.arange(b, device=beam.device)[:, None] * width
        rows = first_rows + beam.gather(1, place)
        still_open = [i for i, top in enumerate(ongoing[:, 0].tolist()) if self._goes_on(i, top)]
        self.open = [self.open[i] for i in still_open]
        if self.open:
            chosen = torch.tensor(still_open, device=beam.device)
            self.sums = ongoing[chosen]
            self.state.reorder(rows[chosen].flatten())
            self.state.append(token.gather(1, place)[chosen].flatten())

    def _goes_on(self, i: int, log_probability: float) -> bool:
        """Whether a prefix of the i-th open prompt, with at most that log-probability, can still add a hypothesis."""
        found = self.hypotheses[self.open[i]]
        length = self.state.new_ids.shape[1] + 1
        bound = self.beams.best_possible(log_probability, length, self.state.max_new_tokens)
        is_full = len(found) == self.beams.num_beams
        if is_full and (self.beams.early_stopping is True or bound <= found[-1].score):
            return False
        return bound > -math.inf
