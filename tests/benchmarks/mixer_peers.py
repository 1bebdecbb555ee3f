"""Independent implementations of mixers, each in plain pre-norm blocks, as bodies of `plain_peers`.

They come from packages: transformers, and three that seqkit does not require: `pip install --no-deps minGRU-pytorch
xlstm mlstm_kernels`. Each module begins with its package's own weights; the MLPs as GPT-2's.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import TokenBatch

NUM_HEADS = 2


def gated_delta_net(dim: int) -> nn.Module:
    """That of Qwen3-Next, in transformers."""
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

    head_dim = dim // NUM_HEADS
    config = Qwen3NextConfig(
        hidden_size=dim,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
        linear_num_key_heads=NUM_HEADS,
        linear_num_value_heads=NUM_HEADS,
        linear_key_head_dim=head_dim,
        linear_value_head_dim=head_dim,
    )
    return Qwen3NextGatedDeltaNet(config, 0)


def mamba2(dim: int) -> nn.Module:
    """That of transformers."""
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    config = Mamba2Config(
        hidden_size=dim,
        num_hidden_layers=1,
        expand=2,
        num_heads=NUM_HEADS,
        head_dim=2 * dim // NUM_HEADS,
        state_size=64,
        n_groups=1,
        chunk_size=64,
    )
    return Mamba2Mixer(config, 0)


class Griffin(nn.Module):
    """The recurrent block of RecurrentGemma, in transformers."""

    def __init__(self, dim: int):
        super().__init__()
        from transformers import RecurrentGemmaConfig
        from transformers.models.recurrent_gemma import modeling_recurrent_gemma as theirs

        config = RecurrentGemmaConfig(
            hidden_size=dim, lru_width=dim, num_attention_heads=NUM_HEADS, num_hidden_layers=1
        )
        self.net = theirs.RecurrentGemmaRecurrentBlock(config, 0)
        gates = self.net.rg_lru
        with torch.no_grad():  # the package leaves them empty; as its `_init_weights`
            for weight in (gates.input_gate_weight, gates.recurrent_gate_weight):
                nn.init.normal_(weight, std=(config.w_init_variance_scale / dim) ** 0.5)
            for bias in (gates.input_gate_bias, gates.recurrent_gate_bias):
                nn.init.zeros_(bias)
            square = torch.empty(dim).uniform_(0.9**2 + 1e-8, 0.999**2 + 1e-8)
            gates.recurrent_param.copy_((-0.5 * square.log()).exp().sub(1.0).log())

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[1]).expand(x.shape[:2])
        return self.net(x, positions, None, use_cache=False)[0]


def min_gru(dim: int) -> nn.Module:
    from minGRU_pytorch.minGRU import minGRU

    return minGRU(dim)


def min_lstm(dim: int) -> nn.Module:
    from minGRU_pytorch.minLSTM import minLSTM

    return minLSTM(dim)


class Matrix(nn.Module):
    """The mLSTM of xLSTM 7B, in the package xlstm."""

    def __init__(self, dim: int):
        super().__init__()
        from xlstm.xlstm_large.model import mLSTMBackendConfig, mLSTMLayer, mLSTMLayerConfig

        backend = mLSTMBackendConfig(
            chunkwise_kernel="chunkwise--native_autograd", mode="train", return_last_states=True
        )
        self.net = mLSTMLayer(
            mLSTMLayerConfig(embedding_dim=dim, num_heads=NUM_HEADS, mlstm_backend=backend)
        )

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]  # it takes whole chunks
        return self.net(F.pad(x, [0, 0, 0, -n % 64]))[0][:, :n]


class Scalar(nn.Module):
    """The sLSTM of the package xlstm, in plain torch."""

    def __init__(self, dim: int):
        super().__init__()
        from xlstm.blocks.slstm.layer import sLSTMLayer, sLSTMLayerConfig

        config = sLSTMLayerConfig(embedding_dim=dim, num_heads=NUM_HEADS, backend="vanilla")
        self.net = sLSTMLayer(config)
        self.net.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Mixed(nn.Module):
    """x + mixer(norm(x)), x + mlp(norm(x)), and a norm at the end."""

    def __init__(self, mixer, dim: int, depth: int, causal: bool, length: int):
        super().__init__()
        assert causal
        self.layers = nn.ModuleList()
        for _ in range(depth):
            mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
            for linear, shrink in ((mlp[0], 1.0), (mlp[2], (2 * depth) ** -0.5)):
                nn.init.normal_(linear.weight, std=0.02 * shrink)
            self.layers.append(
                nn.ModuleList([nn.LayerNorm(dim), mixer(dim), nn.LayerNorm(dim), mlp])
            )
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, batch: TokenBatch) -> Tensor:
        for first, mixer, second, mlp in self.layers:
            mixed = mixer(first(x))
            x = x + (mixed[0] if isinstance(mixed, tuple) else mixed)
            x = x + mlp(second(x))
        return self.norm(x)


MIXERS = {
    name: partial(Mixed, mixer)
    for name, mixer in {
        "GatedDeltaNet": gated_delta_net,
        "Mamba2": mamba2,
        "RGLRU": Griffin,
        "MinGRU": min_gru,
        "MinLSTM": min_lstm,
        "MLSTM": Matrix,
        "SLSTM": Scalar,
    }.items()
}
"""Bodies by the mixer's name in the registry."""


def tried() -> None:
    """Run each once, forward and backward."""
    for name, body in MIXERS.items():
        net = body(32, 2, True, 20)
        x = torch.randn(3, 20, 32, requires_grad=True)
        net(x, None).sum().backward()
        size = sum(p.numel() for p in net.parameters())
        print(name, size, rearrange(x.grad, "b n d -> (b n d)").norm())


if __name__ == "__main__":
    tried()
