"""Bag of tokens: the mean of all tokens (causal: of all so far) between two per-token MLPs.

b batch · n tokens · d width
"""

from __future__ import annotations

from collections.abc import Callable

from einops import rearrange
from torch import Tensor, nn

from seqkit.backbones.sequence import SequenceBackbone, StateCache
from seqkit.interfaces import Embedded
from seqkit.nn.block import MLP
from seqkit.nn.checks import check_at_least, check_probability
from seqkit.nn.precision import float32_or_more


class MeanOverTokens(nn.Module):
    """Mean of the real tokens; causal: of those up to each token. Sums are made in float32 at least."""

    def __init__(self, *, causal: bool):
        super().__init__()
        self.causal = causal

    def forward(self, x: Tensor, valid: Tensor, cache: StateCache | None = None) -> Tensor:
        """[b n d] if causal, else [b 1 d], from x [b n d]. valid: [b n] bool, True = real.

        cache: keeps the sum [b 1 d] and the number [b 1 1] of the real tokens so far.
        """
        real = rearrange(valid, "b n -> b n 1")
        wide = x.to(float32_or_more(x.dtype)).masked_fill(~real, 0.0)
        if not self.causal:
            mean = wide.sum(dim=1, keepdim=True) / real.sum(dim=1, keepdim=True).clamp(min=1)
            return mean.to(x.dtype)
        total = wide.cumsum(dim=1)
        count = real.cumsum(dim=1)
        if cache is not None:
            if cache.states[0] is not None:
                total = total + cache.states[0][0]
                count = count + cache.states[0][1]
            cache.states[0] = total[:, -1:], count[:, -1:]
        return (total / count.clamp(min=1)).to(x.dtype)

    def uncounted_flops(self, x: Tensor) -> int:
        """An addition for each entry, which torch's counter does not see; divisions are few and left out."""
        return x.numel()


class PerTokenMLP(nn.Module):
    """x + dropout(mlp(norm(x))) for each token alone."""

    def __init__(
        self,
        dim: int,
        *,
        mlp: Callable[[int], nn.Module],
        norm: Callable[[int], nn.Module],
        dropout: float,
    ):
        super().__init__()
        self.norm = norm(dim)
        self.mlp = mlp(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.mlp(self.norm(x)))


class MeanPool(SequenceBackbone):
    """Bag of tokens: out_i = rho(mean over j of phi(x_j)) (Deep Sets; Zaheer et al. 2017, theorem 2, with a sum).

    causal: True: j <= i, a running mean. depth: number of per-token MLPs with residual connections in phi, and in rho.
    mlp: MLP, `dim -> nn.Module`; None: there are none, and the output is the norm of the mean of embeddings, which are
    all that fastText has (Joulin et al. 2016, section 2). norm: norm before each MLP and of the last output. dropout:
    probability of dropping an entry of an MLP's output.
    There is one mean, whatever the depth: a running mean of running means would weigh early tokens more, and so know
    their order.
    All tokens have the same output unless causal, and the order of tokens changes nothing: no positions are added
    (`ignores_order`) unless the model is given some.
    Time O(n d^2) for each MLP, memory O(n d). A step with a cache costs one token; the cache is one sum.
    Use it as the baseline that says what order, or interaction between tokens, is worth in a task.
    It refuses adjacency, as the RNNs do (graphs need model.adjacency=ignore: a bag of atoms).
    Raises ValueError for sizes below 1, and for settings of MLPs where there are none.

    >>> from seqkit.interfaces import Embedded
    >>> x = Embedded(torch.randn(2, 7, 8), torch.zeros(2, 7, 1), torch.ones(2, 7, dtype=torch.bool))
    >>> hidden = MeanPool(8)(x)
    >>> hidden.shape, bool((hidden[:, :1] == hidden).all())
    (torch.Size([2, 7, 8]), True)
    """

    ignores_order = True
    needs_unit_inputs = False

    def __init__(
        self,
        dim: int,
        depth: int = 1,
        *,
        causal: bool = False,
        mlp: Callable[[int], nn.Module] | None = MLP,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        dropout: float = 0.0,
    ):
        super().__init__()
        if mlp is None and (depth, dropout) != (1, 0.0):
            raise ValueError(
                f"depth={depth} and dropout={dropout} are of MLPs, and mlp is None; leave both out"
            )
        check_at_least(1, dim=dim, depth=depth)
        check_probability("dropout", dropout)
        self.dim = dim
        self.causal = causal

        def mlps() -> nn.Sequential:
            if mlp is None:
                return nn.Sequential()
            return nn.Sequential(
                *(PerTokenMLP(dim, mlp=mlp, norm=norm, dropout=dropout) for _ in range(depth))
            )

        self.phi = mlps()
        self.mean = MeanOverTokens(causal=causal)
        self.rho = mlps()
        self.norm = norm(dim)

    def run(self, embedded: Embedded, cache: StateCache | None) -> Tensor:
        mean = self.mean(self.phi(embedded.hidden), embedded.valid, cache)
        return self.norm(self.rho(mean)).expand_as(embedded.hidden).clone()

    def new_cache(self) -> StateCache:
        return StateCache(1)
