"""Kernels of a step give what torch's operations give: compiled on a GPU, elsewhere in Triton's interpreter."""

import builtins
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from seqkit.generation import Sampling
from seqkit.generation.sampling import PerSequenceRNG


def check_attend(kernels, device, b, h, g, c, m):
    torch.manual_seed(0)
    heads, keys, values = (
        torch.randn(b, h + 2 * g, c),
        torch.randn(b, g, m, c),
        torch.randn(b, g, m, c),
    )
    positions, scale = torch.tensor([0, m - 1, m // 2])[:b], 0.3
    past = torch.cat([keys, values], dim=1).to(device)
    got = kernels.attend(heads.to(device), past, positions.to(device), scale)
    for i, position in enumerate(positions.tolist()):
        keys[i, :, position], values[i, :, position] = heads[i, h : h + g], heads[i, h + g :]
        k, v = (x[i, :, : position + 1].repeat_interleave(h // g, dim=0) for x in (keys, values))
        right = F.scaled_dot_product_attention(heads[i, :h, None], k, v, scale=scale)
        assert_close(got[i].cpu(), right[:, 0], rtol=1e-4, atol=1e-4)
    assert past.cpu().equal(torch.cat([keys, values], dim=1))


def check_draw(kernels, device, b, v, temperature):
    logits = 3 * torch.randn(b, v, generator=torch.Generator().manual_seed(1))
    logits[:, ::3] = -torch.inf
    right = Sampling(temperature=temperature).choose(logits, None, PerSequenceRNG(3, b))
    drawn = PerSequenceRNG(3, b).next(torch.device("cpu")).float()
    got = kernels.draw(logits.to(device), drawn.to(device), temperature).cpu()
    assert (got != right).sum() <= 2  # a draw next to the border of two ids
    for number in (0.0, 1 - 2**-24):
        got = kernels.draw(
            logits.to(device), torch.full((b,), number, device=device), temperature
        ).cpu()
        assert (logits.gather(1, got[:, None]) > -torch.inf).all()


def check_sum_and_norm(kernels, device, d):
    torch.manual_seed(0)
    for norm in (nn.LayerNorm(d), nn.LayerNorm(d, bias=False), nn.RMSNorm(d)):
        norm.requires_grad_(requires_grad=False).to(device)
        for p in norm.parameters():
            nn.init.normal_(p)
        x, branch = torch.randn(2, 3, d, device=device)
        for added in (None, branch):
            total = x if added is None else x + added
            assert_close(
                kernels.add_norm(x, added, norm), (total, norm(total)), rtol=1e-5, atol=1e-5
            )


def check_product(kernels, device, b, i, o):
    torch.manual_seed(0)
    x, weight, bias = (t.to(device) for t in (torch.randn(b, i), torch.randn(o, i), torch.randn(o)))
    for added in (None, bias):
        assert_close(
            kernels.linear(x, weight, added), F.linear(x, weight, added), rtol=1e-4, atol=1e-4
        )


CHECKS = [
    *((check_attend, sizes) for sizes in [(3, 6, 2, 12, 300), (1, 4, 4, 8, 7), (3, 3, 1, 16, 70)]),
    *((check_draw, (40, v, t)) for v in (5, 1500) for t in (1.0, 0.7, 1e-300)),
    *((check_sum_and_norm, (d,)) for d in (24, 100)),
    *((check_product, sizes) for sizes in [(1, 24, 72), (3, 40, 13), (2, 1000, 130)]),
]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("check", "sizes"), [*CHECKS, (check_draw, (997, 50304, 1.0))])
def test_a_kernel_gives_what_torch_gives(check, sizes):
    from seqkit.generation import kernels

    check(kernels, "cuda", *sizes)


@pytest.mark.slow
def test_interpreted_kernels_give_what_torch_gives():
    """Triton chooses the interpreter when it is imported, so it runs in a process of its own."""
    pytest.importorskip("triton")
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, __file__], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


if __name__ == "__main__":
    from seqkit.generation import kernels as interpreted

    def range_of(*ends):
        """`range` of numbers as the interpreter has them, arrays of one."""
        return builtins.range(
            *(int(x.handle.data.item()) if hasattr(x, "handle") else x for x in ends)
        )

    interpreted.range = range_of
    for check, sizes in CHECKS:
        check(interpreted, "cpu", *sizes)
