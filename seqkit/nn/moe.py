"""Mixture of experts: several MLPs in the place of one, of which each token is routed to the top k.

b batch · n tokens · d width · t real tokens of the batch · e experts · k experts of a token
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from einops import einsum, rearrange, reduce
from torch import Tensor, nn

from seqkit.interfaces.tokens import may_read
from seqkit.nn.block import MLP, PaddingAwareMLP
from seqkit.nn.padding import zero_padded
from seqkit.nn.precision import float32_or_more, no_autocast
from seqkit.nn.recurrence import is_exporting


class AuxiliaryLoss(ABC):
    """A module with a loss of its own beside the objective's, such as load balancing."""

    @abstractmethod
    def aux_loss(self) -> Tensor:
        """Scalar, already weighted, of the last forward pass; 0 before any."""

    @abstractmethod
    def statistics(self) -> dict[str, float]:
        """Figures of the last forward pass to be logged, by name; empty before any."""


class MixtureOfExperts(PaddingAwareMLP, AuxiliaryLoss):
    """Sparse mixture of experts: a router sends each real token to `top_k` experts, whose outputs are added with gates.

    Shazeer et al. 2017, equation 1, without noise; Fedus et al. 2022, Switch; Jiang et al. 2024, Mixtral.

    Dropless: an expert processes all tokens that are routed to it. A capacity would let batch mates push a token out.
    Gates: softmax over all experts, divided by its sum over the chosen, which is Mixtral's softmax over the chosen.
    With one chosen that would be 1 and the router would get no gradient: there it is the probability itself (Switch,
    equation 2). normalize_gates: False: it is for any top_k (`norm_topk_prob` of Qwen3; Qwen team 2025).
    num_experts: number of experts. top_k: experts that a token uses. expert: one of them, `dim -> nn.Module` on [t d],
    where t may be 0. aux_loss_weight: weight of the load-balancing loss (Switch: 0.01). shared_expert: one more, which
    all tokens use (Dai et al. 2024, DeepSeekMoE); None: none. shared_gate: True: its output times sigmoid(w x), one
    factor for a token (Qwen3-Next). router_bias: whether the router has a bias (gpt-oss).
    Raises ValueError for fewer experts than top_k, a top_k below 1, a negative weight, or experts that fail on no
    tokens.

    >>> experts = MixtureOfExperts(8, num_experts=4, top_k=2)
    >>> experts(torch.randn(2, 7, 8)).shape, experts.aux_loss().shape
    (torch.Size([2, 7, 8]), torch.Size([]))
    """

    def __init__(
        self,
        dim: int,
        *,
        num_experts: int,
        top_k: int = 2,
        expert: Callable[[int], nn.Module] = MLP,
        aux_loss_weight: float = 0.01,
        normalize_gates: bool = True,
        shared_expert: Callable[[int], nn.Module] | None = None,
        shared_gate: bool = False,
        router_bias: bool = False,
    ):
        super().__init__()
        if top_k < 1 or num_experts < top_k:
            raise ValueError(
                f"num_experts={num_experts} with top_k={top_k}; "
                "a token uses at least one expert, and there are at least as many as it uses"
            )
        if not aux_loss_weight >= 0:
            raise ValueError(f"aux_loss_weight={aux_loss_weight} weighs a loss; make it 0 or more")
        self.top_k = top_k
        self.aux_loss_weight = aux_loss_weight
        self.normalize_gates = normalize_gates and top_k > 1
        self.router = nn.Linear(dim, num_experts, bias=router_bias)
        self.experts = nn.ModuleList(expert(dim) for _ in range(num_experts))
        self.shared_expert = None if shared_expert is None else shared_expert(dim)
        self.shared_gate = nn.Linear(dim, 1, bias=False) if shared_gate else None
        if shared_gate and shared_expert is None:
            raise ValueError("shared_gate is of a shared expert, and there is none; leave it out")
        try:
            self.experts[0](self.router.weight.new_zeros(0, dim))
        except RuntimeError as error:
            name = type(self.experts[0]).__name__
            raise ValueError(
                f"{name} fails on no tokens ({error}), and an expert may get none; use MLP"
            ) from None
        # probabilities [t e] and chosen experts [t k] of the last forward pass
        self._routed: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """[b n d] from x [b n d]. valid: [b n] bool, True = real; None: all real.

        Padding goes to no expert and gives zero.
        """
        tokens = rearrange(x, "b n d -> (b n) d")
        if is_exporting():
            output = self._mix_all(tokens)
            if valid is not None:
                output = output.masked_fill(~rearrange(valid, "b n -> (b n) 1"), 0.0)
        elif valid is None or valid.is_meta or (may_read(valid) and bool(valid.all())):
            output = self._mix(tokens)  # tensors without data are taken to have no padding
        else:
            real = rearrange(valid, "b n -> (b n)").nonzero()[:, 0]
            mixed = self._mix(tokens.index_select(0, real))
            output = mixed.new_zeros(tokens.shape).index_copy(0, real, mixed)
        output = rearrange(output, "(b n) d -> b n d", b=x.shape[0])
        if self.shared_expert is None:
            return output
        shared = self.shared_expert(x)
        if self.shared_gate is not None:
            shared = shared * self.shared_gate(x).sigmoid()
        return output + (shared if valid is None else zero_padded(shared, valid))

    def _mix(self, x: Tensor) -> Tensor:
        """[t d] from x [t d]."""
        gates, chosen = self._route(x)
        # first all that go to expert 0, and so on
        by_expert = rearrange(chosen, "t k -> (t k)").argsort(stable=True)
        inputs = x.index_select(0, by_expert // self.top_k).split(self._loads(chosen))
        # an expert without tokens runs too: its gradient is then zero and not missing, which DDP would wait for
        outputs = torch.cat([expert(one) for expert, one in zip(self.experts, inputs)])
        outputs = rearrange(
            outputs.index_select(0, by_expert.argsort()), "(t k) d -> t k d", k=self.top_k
        )
        return einsum(gates.to(outputs.dtype), outputs, "t k, t k d -> t d")

    def _mix_all(self, x: Tensor) -> Tensor:
        """`_mix` with every expert over every token: how many an expert gets is no size of an exported graph."""
        gates, chosen = self._route(x)
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)
        weights = gates.new_zeros(outputs.shape[:2]).scatter(1, chosen, gates)
        return einsum(weights.to(outputs.dtype), outputs, "t e, t e d -> t d")

    def _route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gates and chosen experts, both [t k], the best first."""
        with no_autocast(x):
            scores = self.router(x.to(self.router.weight.dtype))
        probabilities = scores.softmax(dim=-1, dtype=float32_or_more(scores.dtype))
        gates, chosen = probabilities.topk(self.top_k, dim=-1)
        if self.normalize_gates:
            gates = gates / reduce(gates, "t k -> t 1", "sum")
        if not is_exporting():
            self._routed = (probabilities if self.training else probabilities.detach(), chosen)
        return gates, chosen

    def _loads(self, chosen: Tensor) -> list[int]:
        """How many tokens go to each expert; equally many where tensors have no data (device meta)."""
        num_experts = len(self.experts)
        if chosen.is_meta:
            share, left = divmod(chosen.numel(), num_experts)
            return [share + (i < left) for i in range(num_experts)]
        counts: list[int] = (
            rearrange(chosen, "t k -> (t k)").bincount(minlength=num_experts).tolist()
        )
        return counts

    def aux_loss(self) -> Tensor:
        """aux_loss_weight * e * sum_i f_i P_i of the last forward pass (Switch, equations 4 to 6); 0 before any.

        f_i: expert i's share of the routed tokens, all shares together 1; P_i: its mean probability. So it is
        `aux_loss_weight` where the load is equal, for any top_k, and e / top_k times that where the same top_k get all.
        """
        return self.aux_loss_weight * self._balance()[0]

    def statistics(self) -> dict[str, float]:
        """Load of the busiest and of the idlest expert in the last forward pass (1: an equal share), entropy of the
        router's choice per token (nats), and the load-balancing loss without its weight. Empty before any."""
        if self._routed is None:
            return {}
        with torch.no_grad():
            balance, loads = self._balance()
            entropy = torch.special.entr(self._routed[0]).sum() / max(len(self._routed[0]), 1)
            figures = torch.stack([loads.max(), loads.min(), entropy, balance]).tolist()
        return dict(
            zip(("router_load_max", "router_load_min", "router_entropy", "router_balance"), figures)
        )

    def _balance(self) -> tuple[Tensor, Tensor]:
        """The balance loss, a scalar, and each expert's load [e], 1 for an equal share."""
        if self._routed is None:
            return self.router.weight.new_zeros(()), self.router.weight.new_zeros(len(self.experts))
        probabilities, chosen = self._routed
        sent = (
            rearrange(chosen, "t k -> (t k)")
            .bincount(minlength=len(self.experts))
            .to(probabilities.dtype)
        )
        loads = sent * len(self.experts) / max(chosen.numel(), 1)
        return loads @ reduce(probabilities, "t e -> e", "sum") / max(len(probabilities), 1), loads

    def __getstate__(self) -> dict[str, Any]:
        """State to be copied; the last forward pass is left out, since its graph cannot be copied."""
        return {**self.__dict__, "_routed": None}
