"""Linear recurrence of a matrix with a scalar decay, with or without the delta rule, by chunks of tokens.

b batch · h heads · n tokens · c keys · e values · k chunks · m tokens of one chunk · i, j: two of them
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from seqkit.nn.precision import float32_or_more, no_autocast
from seqkit.nn.recurrence import check_not_exporting


def chunked_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    state: Tensor | None = None,
    beta: Tensor | None = None,
    chunk: int = 64,
) -> tuple[Tensor, Tensor]:
    """y_t = q_t S_t of a matrix S [b h c e] that each token makes smaller and adds to, as in linear attention.

    Without beta: S_t = a_t S_(t-1) + k_t v_t, with a = exp(log_decay): Mamba-2's SSD (Dao and Gu 2024), mLSTM (Beck et
    al. 2024). With it: S_t = a_t (I - beta_t k_t k_t) S_(t-1) + beta_t k_t v_t, the gated delta rule (Yang, Kautz and
    Hatamizadeh 2024, equation 10), which is bounded for beta |k|^2 in [0, 2].
    q, k: [b h n c], scaled and normalised by the caller. v: [b h n e]. log_decay: [b h n], <= 0; -inf forgets the
    state, and 0 with k = 0 leaves it as it is (padding). beta: [b h n]. state: S_0 [b h c e]; None: zero.
    chunk: tokens that are worked on at once.
    Returns y [b h n e] in the dtype of v and the last state [b h c e], computed in float32, or float64 where v is.

    The tokens of a chunk are matrix products, with the delta rule as the solution of a triangular system (ibid.,
    section 3.3), and the chunks a loop. An exponent is a sum of decays <= 0 and no difference of such sums, so none
    overflows and none loses digits, however long the sequence. A single token takes the recurrence itself.
    `torch.compile` leaves it as it is. Raises ValueError in `torch.export`.

    >>> q, k, v = torch.randn(3, 2, 5, 7, 4)
    >>> log_decay, beta = -torch.rand(2, 5, 7), torch.rand(2, 5, 7)
    >>> y, state = chunked_scan(q, k / k.norm(dim=-1, keepdim=True), v, log_decay, beta=beta)
    >>> y.shape, state.shape
    (torch.Size([2, 5, 7, 4]), torch.Size([2, 5, 4, 4]))
    """
    check_not_exporting("a chunked scan", "an LSTM or GRU")
    return _scan(q, k, v, log_decay, state, beta, chunk)


@torch.compiler.disable
def _scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    state: Tensor | None,
    beta: Tensor | None,
    chunk: int,
) -> tuple[Tensor, Tensor]:
    exact = float32_or_more(v.dtype)
    if state is None:
        state = v.new_zeros(*k.shape[:2], k.shape[3], v.shape[3])
    dtype = v.dtype
    q, k, v, log_decay, state = (t.to(exact) for t in (q, k, v, log_decay, state))
    if beta is not None:
        beta = beta.to(exact)
    with no_autocast(v):
        if v.shape[2] == 1:
            y, last = _token(q, k, v, log_decay, state, beta)
        else:
            y, last = _chunks(q, k, v, log_decay, state, beta, chunk)
    return y.to(dtype), last


def _token(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor, beta: Tensor | None
) -> tuple[Tensor, Tensor]:
    """A single token."""
    decayed = rearrange(log_decay.exp(), "b h 1 -> b h 1 1") * state
    if beta is not None:
        v = rearrange(beta, "b h 1 -> b h 1 1") * (v - k @ decayed)
    last = decayed + k.mT * v
    return q @ last, last


def _chunks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    state: Tensor,
    beta: Tensor | None,
    chunk: int,
) -> tuple[Tensor, Tensor]:
    n = v.shape[2]
    m = min(chunk, n)
    padding = -n % m

    def by_chunk(t: Tensor) -> Tensor:
        """[b h k m …]; what pads the last chunk adds nothing to the state and leaves it as it is."""
        padded = F.pad(t, [0, 0] * (t.ndim - 3) + [0, padding])
        return rearrange(padded, "b h (k m) ... -> b h k m ...", m=m)

    q, k, v, log_decay = (by_chunk(t) for t in (q, k, v, log_decay))
    decay = _decays(log_decay)
    from_start = rearrange(log_decay.cumsum(dim=-1).exp(), "b h k m -> b h k m 1")
    reading = from_start * k
    written = v
    if beta is not None:
        factors = rearrange(by_chunk(beta), "b h k m -> b h k m 1")
        # unit lower triangular: the solver reads neither the diagonal nor what is above it
        system = factors * decay * (k @ k.mT)
        solved = torch.linalg.solve_triangular(
            system, factors * torch.cat([v, reading], dim=-1), upper=False, unitriangular=True
        )
        written, reading = solved.split([v.shape[-1], k.shape[-1]], dim=-1)
    to_end = (rearrange(decay[..., -1, :], "b h k m -> b h k m 1") * k).mT
    kept = rearrange(from_start[..., -1, :], "b h k 1 -> k b h 1 1")
    states = [state]
    for i, of_chunk in enumerate(kept):
        state = states[-1]
        added = written[:, :, i]
        if beta is not None:
            added = added - reading[:, :, i] @ state
        states.append(torch.addcmul(to_end[:, :, i] @ added, of_chunk, state))
    starts = torch.stack(states[:-1], dim=2)
    if beta is not None:
        written = written - reading @ starts
    y = (from_start * q) @ starts + (decay * (q @ k.mT)) @ written
    return rearrange(y, "b h k m e -> b h (k m) e")[:, :, :n], states[-1]


def _decays(log_decay: Tensor) -> Tensor:
    """Product of the decays of the tokens after j up to i, [… i j], zero for j > i. log_decay: [… m].

    The logarithms are summed for each j by itself: a difference of two sums would lose digits, and be nan at -inf.
    """
    m = log_decay.shape[-1]
    is_later = torch.ones(m, m, dtype=torch.bool, device=log_decay.device).tril(-1)
    each = rearrange(log_decay, "... i -> ... i 1").expand(*log_decay.shape, m)
    return each.masked_fill(~is_later, 0.0).cumsum(dim=-2).exp().tril()
