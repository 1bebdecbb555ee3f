"""Muon with a float32 step on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Muon(torch.optim.Muon):
    """`torch.optim.Muon` (torch 2.11) that computes its iteration in float32 on a CPU; torch computes it in bfloat16.

    A CPU without bfloat16 instructions needs 13 to 35 times as long for it, and different CPUs would end with different
    weights. On accelerators the step is torch's. The learning rate is scaled as with `adjust_lr_fn="match_rms_adamw"`.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One optimizer step. closure: computes the loss once more; what it returns is returned."""
        if any(p.device.type != "cpu" for group in self.param_groups for p in group["params"]):
            return super().step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters: list[Tensor] = []
            gradients: list[Tensor] = []
            momenta: list[Tensor] = []
            self._init_group(group, parameters, gradients, momenta)
            for parameter, gradient, momentum in zip(parameters, gradients, momenta):
                momentum.lerp_(gradient, 1 - group["momentum"])
                update = gradient.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum
                update = orthogonalized(update.float(), group["ns_coefficients"], group["ns_steps"], group["eps"])
                rate = float(group["lr"])
                parameter.mul_(1 - rate * group["weight_decay"])
                scale = 0.2 * max(parameter.shape) ** 0.5  # the size of AdamW's updates (Liu et al. 2025, equation 4)
                parameter.add_(update.to(parameter.dtype), alpha=-rate * scale)
        return loss


def orthogonalized(x: Tensor, coefficients: tuple[float, float, float], num_steps: int, eps: float) -> Tensor:
    """The orthogonal matrix nearest to x [n m], roughly: singular values become 0.7 to 1.2 (Jordan et al. 2024).

    coefficients, num_steps: of the Newton-Schulz iteration a x + b (x xᵀ) x + c (x xᵀ)² x, in the precision of x. eps:
    least norm by which x is divided.
    """
    a, b, c = coefficients
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(num_steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x
