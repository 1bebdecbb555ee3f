"""Gradient flow: how strongly the last token's output depends on each earlier input, by distance.

b batch · n tokens · d width · k projections
"""

from __future__ import annotations

import torch
from einops import einsum, reduce
from torch import Tensor

from seqkit.interfaces import TokenBatch
from seqkit.model import Model


def gradient_flow(
    model: Model, batch: TokenBatch, *, num_projections: int = 8, seed: int = 0
) -> list[tuple[int, float]]:
    """Pairs (T - t, norm of ∂h_T/∂x_t), from distance 0 on: x are the backbone's input embeddings, h its outputs.

    batch: batch as the objective prepares it. T is the last real token of each example, for a bidirectional backbone
    too; in an encoder–decoder both are of the target. The norm of the Jacobian is Frobenius', by k random orthonormal
    directions u, whose products are gradients (Haar-distributed, so the mean is unbiased; with k = d it is exact):

        ||∂h_T/∂x_t||² = d / k Σ_u ||uᵀ ∂h_T/∂x_t||²

    and the root of its mean over the examples that have that distance.
    num_projections: number k of directions, at most d. seed: seed of the directions.
    In a recurrent network the norm falls or grows as a power of the distance (Hochreiter 1991; Pascanu et al. 2013,
    section 2). The model runs in evaluation mode; its parameters get no gradient.
    Raises ValueError for a model that uses adjacency: columns of a graph have no order, so T - t is no distance.
    """
    if num_projections < 1:
        raise ValueError(f"num_projections={num_projections} counts random directions; make it 1 or more")
    spec = model.embedder.spec if model.source_embedder is None else model.source_embedder.spec
    if spec.num_edge_types:
        raise ValueError(
            "these tokens have an adjacency, so columns are no distance; measure a model of sequences, or one "
            "built with adjacency=ignore"
        )
    training = model.training
    model.eval()
    try:
        squares = _squared_norms(model, batch, num_projections, seed)
    finally:
        model.train(training)
    last = batch.valid.sum(dim=1) - 1
    if bool((last < 0).any()):
        raise ValueError("an example has no real token; leave it out")
    sums, counts = squares.new_zeros(batch.valid.shape[1]), squares.new_zeros(batch.valid.shape[1])
    for row, end in zip(squares, last.tolist()):
        sums[: end + 1] += row[: end + 1].flip(0)
        counts[: end + 1] += 1
    norms = (sums / counts).sqrt()[: int(last.max()) + 1]
    return list(enumerate(norms.tolist()))


def _squared_norms(model: Model, batch: TokenBatch, num_projections: int, seed: int) -> Tensor:
    """Estimated ||∂h_T/∂x_t||², [b n], in float64."""
    with torch.no_grad():
        embedded = model.embed(batch)
    inputs = embedded.hidden.requires_grad_()
    device, d = inputs.device, inputs.shape[-1]
    rows, last = torch.arange(len(batch), device=device), batch.valid.sum(dim=1) - 1
    directions = _directions(d, min(num_projections, d), seed).to(inputs)
    # cuDNN's recurrent layers have no backward pass in evaluation mode
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        output = model.backbone(embedded)[rows, last]
        projected = einsum(output, directions, "b d, k d -> k b")
    total = torch.zeros(inputs.shape[:2], dtype=torch.float64, device=device)
    for one in projected:  # examples do not depend on each other, so one pass serves all
        (gradient,) = torch.autograd.grad(one.sum(), inputs, retain_graph=True)
        total += reduce(gradient.double().square(), "b n d -> b n", "sum")
    return total * d / len(directions)


def _directions(d: int, k: int, seed: int) -> Tensor:
    """Random orthonormal directions [k d], uniform over the sphere."""
    gaussian = torch.randn(d, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    q, r = torch.linalg.qr(gaussian)
    return (q * r.diagonal().sign()).T
