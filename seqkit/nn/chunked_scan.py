"""Linear recurrence of a matrix with a scalar decay, with or without the delta rule, by chunks of tokens.

b batch · h heads · n tokens · c keys · e values · k chunks · m tokens of one chunk · i, j: two of them
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqkit.nn.precision import float32_or_more, no_autocast
from seqkit.nn.recurrence import is_exporting, scan_tokens
from seqkit.nn.scan_fla import fla_scan, runs_fla

CHUNK = 32
"""Tokens of a chunk: of 16, 32 and 64 the fastest on a CPU with 32 keys and values, and as fast as 64 with 64."""
BLOCK = 2**13
"""Tokens, over all heads of the batch, that a CPU works on at once: what is computed of them stays in its cache."""


def chunked_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    state: Tensor | None = None,
    beta: Tensor | None = None,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """y_t = S_t q_t of a state S [b h c e] that each token makes smaller and adds to, as in linear attention.

    Without beta: S_t = a_t S_(t-1) + k_t v_t, with a = exp(log_decay): Mamba-2's SSD (Dao and Gu 2024), mLSTM (Beck et
    al. 2024). With it: S_t = a_t (I - beta_t k_t k_t) S_(t-1) + beta_t k_t v_t, the gated delta rule (Yang, Kautz and
    Hatamizadeh 2024, equation 10), which is bounded for beta |k|^2 in [0, 2].
    q, k: [b h n c], scaled and normalised by the caller. v: [b h n e]. log_decay: [b h n], <= 0; -inf forgets the
    state, and 0 with k = 0 leaves it as it is (padding). beta: [b h n]. state: S_0 [b h c e]; None: zero.
    chunk: tokens that become matrix products.
    Returns y [b h n e] in the dtype of v and the last state [b h c e], computed in float32, or float64 where v is.

    The tokens of a chunk are matrix products, with the delta rule as the solution of a triangular system (ibid.,
    section 3.3), and the chunks a loop. Decays are multiplied, and never divided by: none overflows, however long the
    sequence. The backward pass is written out; it needs memory of the order of q, k and v, and gradients can be taken
    once. A single token takes the recurrence itself.
    On CUDA in half precision the kernels of flash-linear-attention run in its place where they are installed and right.
    `torch.compile` leaves it as it is; `torch.export` gets one operation, a loop over the tokens.

    >>> q, k, v = torch.randn(3, 2, 5, 7, 4)
    >>> log_decay, beta = -torch.rand(2, 5, 7), torch.rand(2, 5, 7)
    >>> y, state = chunked_scan(q, k / k.norm(dim=-1, keepdim=True), v, log_decay, beta=beta)
    >>> y.shape, state.shape
    (torch.Size([2, 5, 7, 4]), torch.Size([2, 5, 4, 4]))
    """
    exact = float32_or_more(v.dtype)
    if state is None:
        state = v.new_zeros(*k.shape[:2], k.shape[3], v.shape[3], dtype=exact)
    tokens = [q, k, v, log_decay] if beta is None else [q, k, v, log_decay, beta]
    if is_exporting():
        y, last = scan_tokens(_step, state.to(exact), (t.to(exact) for t in tokens), dim=2)
        return y.to(v.dtype), last
    return _scan(chunk, state, *tokens)


def chunked_scan_flops(
    b: int, h: int, n: int, c: int, e: int, *, delta: bool, chunk: int = CHUNK
) -> int:
    """FLOPs of one scan of more than one token that are no matrix product of torch, without padding.

    For each token and head, with m of a chunk: 2 m + 3 of the decays and their exponentials, 2 c + e of products with
    them; with beta m^2 of the triangular system, 2 (c + e) of its two sides. For each chunk 2 c e of the state.
    """
    m = tokens_of_chunk(n, chunk)
    each = 2 * m + 3 + 2 * c + e
    if delta:
        each += m * m + 2 * (c + e)
    return b * h * (n * each + -(-n // m) * 2 * c * e)


def tokens_of_chunk(n: int, chunk: int = CHUNK) -> int:
    """The fewest tokens, `chunk` at most, of which as many chunks as before hold all n: 20 are two of 10, not of 16.

    >>> [tokens_of_chunk(n) for n in (5, 16, 20, 33, 160)]
    [5, 16, 10, 11, 16]
    """
    return -(-n // -(-n // chunk))


@torch.compiler.disable
def _scan(chunk: int, state: Tensor, *tokens: Tensor) -> tuple[Tensor, Tensor]:
    """tokens: q, k, v, log_decay and, for the delta rule, beta."""
    v = tokens[2]
    with no_autocast(v):
        if v.shape[2] > 1 and runs_fla(_by_torch, *tokens):
            return fla_scan(state, *tokens)
        return _by_torch(state, *tokens, chunk=chunk)


def _by_torch(state: Tensor, *tokens: Tensor, chunk: int = CHUNK) -> tuple[Tensor, Tensor]:
    """`_scan` by torch's operations."""
    b, h, n, _ = tokens[0].shape
    v = tokens[2]
    exact = float32_or_more(v.dtype)
    state = state.to(exact)
    size = max(BLOCK // (b * h * chunk), 1) * chunk if v.device.type == "cpu" else n
    ys = []
    for part in zip(*(t.to(exact).split(size, dim=2) for t in tokens)):
        scan = _token if part[0].shape[2] == 1 else partial(_chunks, chunk)
        y, state = scan(state, *part)
        ys.append(y)
    return torch.cat(ys, dim=2).to(v.dtype), state


def _token(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """A single token."""
    decayed = rearrange(log_decay.exp(), "b h 1 -> b h 1 1") * state
    if beta is not None:
        v = rearrange(beta, "b h 1 -> b h 1 1") * (v - k @ decayed)
    last = decayed + k.mT * v
    return q @ last, last


def _step(state: Tensor, token: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """`_token` as `scan_tokens` takes it, of tensors without the axis of tokens."""
    y, last = _token(state, *(rearrange(t, "b h ... -> b h 1 ...") for t in token))
    return last, rearrange(y, "b h 1 e -> b h e")


def _chunks(chunk: int, state: Tensor, *tokens: Tensor) -> tuple[Tensor, Tensor]:
    """More than one."""
    b, _, n, _ = tokens[0].shape
    m = tokens_of_chunk(n, chunk)
    padding = -n % m

    def by_chunk(t: Tensor) -> Tensor:
        """[(b h) k m …]; what pads the last chunk adds nothing to the state and leaves it as it is."""
        if padding:
            t = F.pad(t, [0, 0] * (t.ndim - 3) + [0, padding])
        return rearrange(t, "b h (k m) ... -> (b h) k m ...", m=m).contiguous()

    of_heads = rearrange(state, "b h c e -> (b h) c e")
    y, last, *_ = _Chunks.apply(of_heads, *(by_chunk(t) for t in tokens))
    y = rearrange(y, "(b h) k m e -> b h (k m) e", b=b)
    return y[:, :, :n], rearrange(last, "(b h) c e -> b h c e", b=b)


class _Chunks(torch.autograd.Function):
    """y [b k m e], the last state [b c e], and what the backward pass needs. Heads are examples here.

    Of a chunk, with S the state before it, G_i the sum of the logarithms up to token i and D_ij = exp(G_i - G_j) for
    j <= i, or else 0: P_ij = D_ij q_i k_j, y_i = exp(G_i) q_i S + sum_j P_ij u_j, S' = exp(G_m) S + sum_j D_mj k_j u_j.
    Without beta, u = v. With it, u = (1 + L)^-1 (beta r), r_i = v_i - exp(G_i) k_i S and L_ij = beta_i D_ij k_i k_j for
    j < i, which is the recurrence with u_i = beta_i (v_i - k_i (a_i S_(i-1))).
    """

    @staticmethod
    def forward(
        state: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, *of_delta: Tensor
    ) -> tuple[Tensor, ...]:
        decay = _decays(log_decay)
        from_start = _column(log_decay.cumsum(dim=-1).exp())
        kept = from_start[:, :, -1:].unbind(1)
        to_end = (_column(decay[:, :, -1]) * k).mT
        scores = (q @ k.mT).mul_(decay)
        states = [state]
        u = v
        solved = []
        if not of_delta:
            for added, factor in zip((to_end @ v).unbind(1), kept):
                states.append(torch.addcmul(added, factor, states[-1]))
        else:
            beta = _column(of_delta[0])
            inverse = _inverse((beta * k @ k.mT).mul_(decay))
            rs = []
            us = []
            parts = (v, from_start * k, beta, inverse, to_end)
            for v_, reads, beta_, inverse_, writes, factor in zip(*_by_chunk(*parts), kept):
                rs.append(torch.baddbmm(v_, reads, states[-1], alpha=-1))
                us.append(inverse_ @ (beta_ * rs[-1]))
                states.append(torch.baddbmm(factor * states[-1], writes, us[-1]))
            u = torch.stack(us, dim=1)
            solved = [u, torch.stack(rs, dim=1), inverse]
        starts = torch.stack(states[:-1], dim=1)
        y = _add_product(scores @ u, from_start * q, starts)
        return y, states[-1], starts, decay, from_start, scores, *solved

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        _, *tokens = inputs
        _, last, *found = output
        ctx.mark_non_differentiable(*found)
        ctx.set_materialize_grads(False)
        ctx.num_tokens = len(tokens)
        ctx.save_for_backward(*tokens, last, *found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, dlast: Tensor | None, *_: None) -> tuple[Tensor, ...]:
        saved = ctx.saved_tensors  # read once: checkpointing gives them once
        tokens = saved[: ctx.num_tokens]
        last, *found = saved[ctx.num_tokens :]
        if dy is None:
            dy = torch.zeros_like(tokens[2])
        if dlast is None:
            dlast = torch.zeros_like(last)
        with no_autocast(dy):
            return _gradients(tokens, last, found, dy.contiguous(), dlast)


def _gradients(
    tokens: tuple[Tensor, ...], last: Tensor, found: list[Tensor], dy: Tensor, dlast: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of the inputs of `_Chunks`.

    exp(G_i) stands beside q_i and beside k_i where it reads the state, exp(-G_j) beside k_j where it writes to it: so
    dG is q dq + k dk of the reading less k dk of the writing, and that of the last token has S' dS' too.
    """
    q, k, v, log_decay, *of_delta = tokens
    starts, decay, from_start, scores, *solved = found
    u = solved[0] if solved else v
    dreads = from_start * dy
    du = scores.mT @ dy
    to_end = _column(decay[:, :, -1])
    parts = [q.mT @ dreads, from_start[:, :, -1:]]
    dstate = dlast
    dends = []
    if not solved:
        for dstart, factor in zip(*_by_chunk(*parts, backwards=True)):
            dends.append(dstate)
            dstate = torch.addcmul(dstart, factor, dstate)
    else:
        _, r, inverse = solved
        beta = _column(of_delta[0])
        reading = beta * from_start
        parts += [du, to_end * k, inverse, reading, k]
        drs = []
        for dstart, factor, du_, writes, inverse_, reading_, k_ in zip(
            *_by_chunk(*parts, backwards=True)
        ):
            dends.append(dstate)
            drs.append(inverse_.mT @ torch.baddbmm(du_, writes, dstate))
            dstate = torch.addcmul(dstart, factor, dstate)
            dstate = torch.baddbmm(dstate, k_.mT, reading_ * drs[-1], alpha=-1)
    dend = torch.stack(dends[::-1], dim=1)
    dscores = (dy @ u.mT).mul_(decay)
    dq = _add_product(dscores @ k, dreads, starts.mT)
    dk = _add_product(dscores.mT @ q, to_end * u, dend.mT)
    dgates = []
    if not solved:
        dv = _add_product(du, to_end * k, dend)
        dG = (q * dq).addcmul_(k, dk, value=-1).sum(dim=-1)
    else:
        dr = torch.stack(drs[::-1], dim=1)
        dsystem = (dr @ u.mT).mul_(decay).tril_(-1)
        through = dsystem @ k
        dgates.append((dr * r).sum(dim=-1) - (k * through).sum(dim=-1))
        dk_reads = _add_product(through.mul_(-beta), reading * dr, starts.mT, alpha=-1)
        dk = _add_product(dk, dsystem.mT, beta * k, alpha=-1)
        dG = (q * dq).addcmul_(k, dk_reads - dk).sum(dim=-1)
        dk = dk.add_(dk_reads)
        dv = beta * dr
    ends = torch.cat([starts[:, 1:], rearrange(last, "b c e -> b 1 c e")], dim=1)
    dG[:, :, -1] += (ends * dend).sum(dim=(-2, -1))
    dlog = dG.flip(-1).cumsum(dim=-1).flip(-1).masked_fill(log_decay == -torch.inf, 0.0)
    return dstate, dq, dk, dv, dlog, *dgates


def _decays(log_decay: Tensor) -> Tensor:
    """Product of the decays of the tokens after j up to i, [… i j], zero for j > i. log_decay: [… m].

    A difference of two sums of logarithms would lose digits, and be nan at -inf.
    """
    m = log_decay.shape[-1]
    is_later = torch.ones(m, m, dtype=torch.bool, device=log_decay.device).tril(-1)
    return torch.where(is_later, _column(log_decay.exp()), 1.0).cumprod(dim=-2).tril_()


def _inverse(lower: Tensor) -> Tensor:
    """(1 + L)^-1 with the part L below the diagonal of `lower` [… m m]; the solver reads nothing else of it."""
    identity = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    identity = identity.expand_as(lower)
    return torch.linalg.solve_triangular(lower, identity, upper=False, unitriangular=True)


def _column(t: Tensor) -> Tensor:
    return rearrange(t, "b k m -> b k m 1")


def _by_chunk(*tensors: Tensor, backwards: bool = False) -> list[tuple[Tensor, ...]]:
    """The chunks of each tensor [b k …]."""
    order = -1 if backwards else 1
    return [t.unbind(1)[::order] for t in tensors]


def _add_product(out: Tensor, a: Tensor, b: Tensor, alpha: float = 1) -> Tensor:
    """out + alpha a b, in place; torch's FLOP counter does not see `baddbmm_`."""
    flat, a, b = (t.flatten(0, 1) for t in (out, a, b))
    torch.baddbmm(flat, a, b, alpha=alpha, out=flat)
    return out
