"""Several MLPs in the place of one, of which each token uses the few that fit it best.

b batch · n tokens · d width · t real tokens of the batch · e experts · a experts that a token uses
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from einops import einsum, rearrange, reduce
from torch import Tensor, nn

from seqkit.layers.mlp import MLP


class MixtureOfExperts(nn.Module):
    """A router sends each real token to some of the experts, and adds their answers, weighed by gates (Shazeer et al.
    2017, equation 1, without noise; Fedus et al. 2022, Switch; Jiang et al. 2024, Mixtral).

    Dropless: an expert takes all tokens that are sent to it. A capacity would let batch mates push a token out.
    Gates: softmax over all experts, divided by its sum over the chosen, which is Mixtral's softmax over the chosen.
    With one chosen that would be 1 and teach the router nothing: there it is the probability itself (Switch,
    equation 2).
    num_active: experts that a token uses. expert: `dim -> nn.Module` on [t d], where t may be 0. balance: weight of the
    loss that keeps experts equally busy (Switch: 0.01).
    Raises ValueError for fewer experts than active, none active, a balance below 0, or experts that fail on no tokens.
    """

    reads_valid = True

    def __init__(
        self,
        dim: int,
        *,
        num_experts: int,
        num_active: int = 2,
        expert: Callable[[int], nn.Module] = MLP,
        balance: float = 0.01,
    ):
        super().__init__()
        if num_active < 1 or num_experts < num_active:
            raise ValueError(
                f"num_experts={num_experts} with num_active={num_active}; "
                "a token uses at least one expert, and there are at least as many as it uses"
            )
        if not balance >= 0:
            raise ValueError(f"balance={balance} weighs a loss; make it 0 or more")
        self.num_active, self.balance = num_active, balance
        self.router = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList(expert(dim) for _ in range(num_experts))
        try:
            self.experts[0](self.router.weight.new_zeros(0, dim))
        except RuntimeError as error:
            name = type(self.experts[0]).__name__
            raise ValueError(f"{name} fails on no tokens ({error}), and an expert may get none; use MLP") from None
        # probabilities [t e] and chosen experts [t a] of the last forward pass
        self._routed: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """x: [b n d]. valid: [b n], True = real; None: all are. Padding goes to no expert, counts nowhere, is zero."""
        tokens = rearrange(x, "b n d -> (b n) d")
        if valid is None or valid.is_meta:  # tensors without numbers are taken to have no padding
            mixed = self._mix(tokens)
        else:
            real = rearrange(valid, "b n -> (b n)").nonzero()[:, 0]
            read = self._mix(tokens.index_select(0, real))
            mixed = read.new_zeros(tokens.shape).index_copy(0, real, read)
        return rearrange(mixed, "(b n) d -> b n d", b=x.shape[0])

    def _mix(self, x: Tensor) -> Tensor:
        """x: [t d]."""
        gates, chosen = self._route(x)
        by_expert = rearrange(chosen, "t a -> (t a)").argsort(stable=True)  # first all that go to expert 0, and so on
        parts = x.index_select(0, by_expert // self.num_active).split(self._loads(chosen))
        # an expert without tokens runs too: its gradient is then zero and not missing, which DDP would wait for
        answers = torch.cat([expert(part) for expert, part in zip(self.experts, parts)])
        answers = rearrange(answers.index_select(0, by_expert.argsort()), "(t a) d -> t a d", a=self.num_active)
        return einsum(gates.to(answers.dtype), answers, "t a, t a d -> t d")

    def _route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gates and chosen experts, both [t a], the best first."""
        with _full_precision(x.device.type):
            scores = self.router(x.to(self.router.weight.dtype))
        probabilities = scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        gates, chosen = probabilities.topk(self.num_active, dim=-1)
        if self.num_active > 1:
            gates = gates / reduce(gates, "t a -> t 1", "sum")
        self._routed = (probabilities if self.training else probabilities.detach(), chosen)
        return gates, chosen

    def _loads(self, chosen: Tensor) -> list[int]:
        """How many tokens go to each expert; equally many where tensors have no numbers (device meta)."""
        num_experts = len(self.experts)
        if chosen.is_meta:
            share, left = divmod(chosen.numel(), num_experts)
            return [share + (i < left) for i in range(num_experts)]
        counts: list[int] = rearrange(chosen, "t a -> (t a)").bincount(minlength=num_experts).tolist()
        return counts

    def extra_loss(self) -> Tensor:
        """balance * e * sum_i f_i P_i of the last forward pass, a scalar (Switch, equations 4 to 6); 0 before any.

        f_i: expert i's share of what was sent, all shares together 1; P_i: its mean probability. So it is `balance`
        where all are equally busy, however many are active, and e / num_active times that where the same few do all.
        """
        return self.balance * self._balance()[0]

    def statistics(self) -> dict[str, float]:
        """Of the last forward pass: load of the busiest and of the idlest expert (1: an equal share), entropy of the
        router's choice per token (nats), and the balance loss before it is weighed. Empty before any."""
        if self._routed is None:
            return {}
        with torch.no_grad():
            balance, loads = self._balance()
            entropy = torch.special.entr(self._routed[0]).sum() / max(len(self._routed[0]), 1)
            figures = torch.stack([loads.max(), loads.min(), entropy, balance]).tolist()
        return dict(zip(("router_load_max", "router_load_min", "router_entropy", "router_balance"), figures))

    def _balance(self) -> tuple[Tensor, Tensor]:
        """The balance loss, a scalar, and each expert's load [e], 1 for an equal share."""
        if self._routed is None:
            return self.router.weight.new_zeros(()), self.router.weight.new_zeros(len(self.experts))
        probabilities, chosen = self._routed
        sent = rearrange(chosen, "t a -> (t a)").bincount(minlength=len(self.experts)).to(probabilities.dtype)
        loads = sent * len(self.experts) / max(chosen.numel(), 1)
        return loads @ reduce(probabilities, "t e -> e", "sum") / max(len(probabilities), 1), loads

    def __getstate__(self) -> dict[str, Any]:
        """Without the last forward pass, whose graph cannot be copied."""
        return {**self.__dict__, "_routed": None}


def _full_precision(device_type: str) -> AbstractContextManager[Any]:
    """No autocast, as for Switch's router (section 2.4); device meta has none to switch off."""
    return nullcontext() if device_type == "meta" else torch.autocast(device_type, enabled=False)
