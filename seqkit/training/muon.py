"""Muon with a float32 step on CPUs, and without a loop over matrices on accelerators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from seqkit.training.private_names import add_to_all, lerp_all, lerped, multiply_all


class Muon(torch.optim.Muon):
    """`torch.optim.Muon` (torch 2.11) that computes its iteration in float32 on a CPU; torch computes it in bfloat16.

    A CPU without bfloat16 instructions needs 13 to 35 times as long for it, and different CPUs would end with different
    weights. On accelerators the iteration is torch's, over stacks of matrices (`batched_step`), and the attribute
    `found_inf`, a tensor, skips the step where it is not 0, as in torch's fused optimizers.
    The learning rate is scaled as with `adjust_lr_fn="match_rms_adamw"`.
    """

    _step_supports_amp_scaling = True  # torch's name for an optimizer that heeds `found_inf`

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One optimizer step. closure: computes the loss once more; what it returns is returned."""
        matrices = [p for group in self.param_groups for p in group["params"]]
        is_batched = any(p.device.type != "cpu" for p in matrices)
        if is_batched and any(isinstance(p, DTensor) for p in matrices):
            return super().step(closure)  # the parts of a sharded matrix do not stack
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters: list[Tensor] = []
            gradients: list[Tensor] = []
            momenta: list[Tensor] = []
            self._init_group(group, parameters, gradients, momenta)
            if is_batched:
                batched_step(
                    group, parameters, gradients, momenta, getattr(self, "found_inf", None)
                )
                continue
            for parameter, gradient, momentum in zip(parameters, gradients, momenta):
                momentum.lerp_(gradient, 1 - group["momentum"])
                if group["nesterov"]:
                    update = gradient.lerp(momentum, group["momentum"])
                else:
                    update = momentum
                update = orthogonalized(
                    update.float(), group["ns_coefficients"], group["ns_steps"], group["eps"]
                )
                rate = float(group["lr"])
                parameter.mul_(1 - rate * group["weight_decay"])
                parameter.add_(update.to(parameter.dtype), alpha=-rate * rms_scale(parameter))
        return loss


def batched_step(
    group: dict[str, Any],
    parameters: list[Tensor],
    gradients: list[Tensor],
    momenta: list[Tensor],
    found_inf: Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Muon's step over stacks of matrices [s r c] of one shape, or of the transposed one; it reads no value.

    group: settings, whose `lr` may be a tensor on the device. found_inf: not 0 where nothing shall change. dtype: of
    the Newton-Schulz iteration.
    """
    taken: Tensor | float = 1.0
    if found_inf is not None:  # a momentum moves towards itself by nothing, and the rate is 0
        taken = (found_inf == 0).to(parameters[0].dtype)
        gradients = [torch.where(found_inf == 0, g, m) for g, m in zip(gradients, momenta)]
    lerp_all(momenta, gradients, 1 - group["momentum"])
    updates = momenta
    if group["nesterov"]:
        updates = list(lerped(gradients, momenta, group["momentum"]))
    rate = group["lr"] * taken
    multiply_all(parameters, 1 - rate * group["weight_decay"])
    for places in _of_one_shape(parameters):
        wide = [updates[i].T if _is_tall(updates[i]) else updates[i] for i in places]
        stack = orthogonalized(
            torch.stack(wide).to(dtype), group["ns_coefficients"], group["ns_steps"], group["eps"]
        )
        own = [parameters[i] for i in places]
        changes = (stack.to(own[0].dtype) * (-rate * rms_scale(own[0]))).unbind()
        add_to_all(own, [x.T if _is_tall(p) else x for x, p in zip(changes, own)])


def _of_one_shape(matrices: list[Tensor]) -> list[list[int]]:
    """Places of the matrices that have the same shape, or the transposed one."""
    places: dict[tuple[int, ...], list[int]] = {}
    for i, matrix in enumerate(matrices):
        places.setdefault(tuple(sorted(matrix.shape)), []).append(i)
    return list(places.values())


def _is_tall(matrix: Tensor) -> bool:
    return matrix.shape[-2] > matrix.shape[-1]


def rms_scale(matrix: Tensor) -> float:
    """Factor that makes an update as large as AdamW's (Liu et al. 2025, equation 4)."""
    return 0.2 * max(matrix.shape) ** 0.5


def orthogonalized(
    x: Tensor, coefficients: tuple[float, float, float], num_steps: int, eps: float
) -> Tensor:
    """The orthogonal matrix nearest to x [n m], roughly: singular values become 0.7 to 1.2 (Jordan et al. 2024).

    x may be a stack of matrices [s n m]. coefficients, num_steps: of the Newton-Schulz iteration
    a x + b (x xᵀ) x + c (x xᵀ)² x, in the precision of x. eps: least norm by which x is divided.
    """
    a, b, c = coefficients
    add_product = torch.addmm if x.ndim == 2 else torch.baddbmm
    is_tall = _is_tall(x)
    x = x.mT if is_tall else x
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp(min=eps)
    for _ in range(num_steps):
        gram = x @ x.mT
        x = add_product(x, add_product(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x
