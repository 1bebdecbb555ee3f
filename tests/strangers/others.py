"""Families of other libraries on the page: lines that make `model`, `call` and, if it has a state, `step`.

`call(x)` or `call(x, valid)` maps vectors [b n d] of width d = 32; `step(x, state)` gives vectors and the next state.
"""

import inspect
import sys
from dataclasses import dataclass
from typing import Any

import torch
from strangers.laws import Subject
from torch import Tensor, nn

from seqkit.testing.checks import NotCheckedError

WIDTH = 32


@dataclass(frozen=True)
class Other:
    """A module of a library. package: what is imported. distribution: whose version is named.

    state_inside: its state is inside the module, as its documentation says.
    """

    name: str
    group: str
    package: str
    distribution: str
    lines: str
    causal: bool = True
    state_inside: bool = False


RECURRENT = "Recurrent, other libraries"
ATTENTION = "Attention, other libraries"
TORCH = "torch and timm"

_XLSTM = """\
from xlstm import *
{extra}sizes = dict(num_blocks=2, embedding_dim=32, context_length=160, dropout=0.0)
model = xLSTMBlockStack(xLSTMBlockStackConfig({kind}, **sizes))
call = lambda x: model(x)
"""
_STEPS = """\
def step(x, state):
    ys = []
    for t in range(x.shape[1]):
        y, state = model.step(x[:, t:t + 1], state); ys.append(y)
    return torch.cat(ys, 1), state
"""

OTHERS = {
    other.name: other
    for other in (
        Other(
            "minGRU",
            RECURRENT,
            "minGRU_pytorch",
            "minGRU-pytorch",
            "from minGRU_pytorch import minGRU\n"
            "model = minGRU(32)\n"
            "call = lambda x: model(x)\n"
            "step = lambda x, state: model(x, state, return_next_prev_hidden=True)\n",
        ),
        Other(
            "xLSTM, mLSTM blocks",
            RECURRENT,
            "xlstm",
            "xlstm",
            _XLSTM.format(extra="", kind="mLSTMBlockConfig(mlstm=mLSTMLayerConfig(num_heads=4))")
            + _STEPS,
        ),
        Other(
            "xLSTM, mLSTM and sLSTM blocks",
            RECURRENT,
            "xlstm",
            "xlstm",
            _XLSTM.format(
                extra='slstm = sLSTMBlockConfig(slstm=sLSTMLayerConfig(backend="vanilla", num_heads=4))\n',
                kind="mLSTMBlockConfig(mlstm=mLSTMLayerConfig(num_heads=4)), slstm_block=slstm, slstm_at=[1]",
            )
            + _STEPS,
        ),
        Other(
            "Mamba of mambapy",
            RECURRENT,
            "mambapy",
            "mambapy",
            "from mambapy.mamba import Mamba, MambaConfig\n"
            "model = Mamba(MambaConfig(d_model=32, n_layers=2, d_state=8))\n"
            "call = lambda x: model(x)\n"
            "def step(x, state):\n"
            "    state = state or [(None, torch.zeros(x.shape[0], 64, 3).to(x)) for _ in model.layers]\n"
            "    ys = []\n"
            "    for t in range(x.shape[1]):\n"
            "        y, state = model.step(x[:, t], list(state)); ys.append(y)\n"
            "    return torch.stack(ys, 1), state\n",
        ),
        Other(
            "S5",
            RECURRENT,
            "s5",
            "s5-pytorch",
            "from s5 import S5Block\n"
            "model = S5Block(32, 16, bidir=False)\n"
            "call = lambda x: model(x)\n"
            "step = lambda x, state: model(x, state=state, return_state=True)\n",
        ),
        Other(
            "GateLoop",
            RECURRENT,
            "gateloop_transformer",
            "gateloop-transformer",
            "from gateloop_transformer import SimpleGateLoopLayer\n"
            "model = SimpleGateLoopLayer(32)\n"
            "call = lambda x: model(x)\n"
            "step = lambda x, state: model(x, cache=state, return_cache=True)\n",
        ),
        Other(
            "RetNet, by chunks",
            RECURRENT,
            "yet_another_retnet",
            "yet-another-retnet",
            "from yet_another_retnet.retnet import RetNetDecoder, RetNetDecoderLayer\n"
            "model = RetNetDecoder(RetNetDecoderLayer(32, 4, dropout=0.0, dim_feedforward=64), 2)\n"
            "call = lambda x: model(x)\n"
            "def step(x, state):\n"
            "    at, states = state or (0, ())\n"
            "    y, states = model.forward_chunkwise(x, at, states)\n"
            "    return y, (at + x.shape[1], states)\n",
        ),
        Other(
            "RetNet, recurrent",
            RECURRENT,
            "yet_another_retnet",
            "yet-another-retnet",
            "from yet_another_retnet.retnet import RetNetDecoder, RetNetDecoderLayer\n"
            "model = RetNetDecoder(RetNetDecoderLayer(32, 4, dropout=0.0, dim_feedforward=64), 2)\n"
            "call = lambda x: model(x)\n"
            "def step(x, state):\n"
            "    at, states = state or (0, ())\n"
            "    ys = []\n"
            "    for t in range(x.shape[1]):\n"
            "        y, states = model.forward_recurrent(x[:, t], at + t, states); ys.append(y)\n"
            "    return torch.stack(ys, 1), (at + x.shape[1], states)\n",
        ),
        Other(
            "TCN, causal",
            RECURRENT,
            "pytorch_tcn",
            "pytorch-tcn",
            "from pytorch_tcn import TCN\n"
            "model = TCN(32, [32, 32], kernel_size=3, causal=True, dropout=0.0)\n"
            "call = lambda x: model(x.mT).mT\n"
            "def step(x, state):\n"
            "    if state is None: model.reset_buffers()\n"
            "    return model(x.mT, inference=True).mT, True\n",
            state_inside=True,
        ),
        *(
            Other(
                f"fla, {title}",
                RECURRENT,
                "fla",
                "flash-linear-attention",
                f"from fla.ops.{module} import {function}\n"
                "qkv, gate = torch.nn.Linear(32, 96), torch.nn.Linear(32, 8)\n"
                "model = torch.nn.ModuleList([qkv, gate])\n"
                "def step(x, state):\n"
                "    q, k, v = qkv(x).unflatten(-1, (12, 8)).chunk(3, -2)\n"
                "    g, beta = gate(x).sigmoid().chunk(2, -1)\n"
                "    k = torch.nn.functional.normalize(k, dim=-1)\n"
                f"    y, state = {function}({arguments}, initial_state=state, output_final_state=True)\n"
                "    return y.flatten(-2).to(x), state\n"
                "call = lambda x: step(x, None)[0]\n",
            )
            for title, module, function, arguments in (
                (
                    "gated delta rule, recurrent",
                    "gated_delta_rule.naive",
                    "naive_recurrent_gated_delta_rule",
                    "q, k, v, beta, g.log()",
                ),
                (
                    "gated delta rule, chunks",
                    "gated_delta_rule.naive",
                    "naive_chunk_gated_delta_rule",
                    "q, k, v, g.log(), beta, chunk_size=16",
                ),
                (
                    "gated linear attention",
                    "gla.naive",
                    "naive_recurrent_gla",
                    "q, k, v, g.log()[..., None].expand_as(k)",
                ),
                (
                    "Kimi delta attention, recurrent",
                    "kda.naive",
                    "naive_recurrent_kda",
                    "q, k, v, g.log()[..., None].expand_as(k), beta",
                ),
                (
                    "simple GLA, recurrent",
                    "simple_gla.naive",
                    "naive_recurrent_simple_gla",
                    "q, k, v, g.log()",
                ),
            )
        ),
        Other(
            "Decoder of x-transformers",
            ATTENTION,
            "x_transformers",
            "x-transformers",
            "from x_transformers import Decoder\n"
            "model = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, rotary_pos_emb=True)\n"
            "call = lambda x, valid: model(x, mask=valid)\n"
            "def step(x, state):\n"
            "    seen, cache = state or (x[:, :0], None)\n"
            "    x = torch.cat([seen, x], 1)\n"
            "    y, cache = model(x, cache=cache, cache_age=x.shape[1] - seen.shape[1], return_hiddens=True)\n"
            "    return y[:, -(x.shape[1] - seen.shape[1]):], (x, cache)\n",
        ),
        Other(
            "Encoder of x-transformers",
            ATTENTION,
            "x_transformers",
            "x-transformers",
            "from x_transformers import Encoder\n"
            "model = Encoder(dim=32, depth=2, heads=4, attn_dim_head=8)\n"
            "call = lambda x, valid: model(x, mask=valid)\n",
            causal=False,
        ),
        Other(
            "Decoder of x-transformers, shifted tokens",
            ATTENTION,
            "x_transformers",
            "x-transformers",
            "from x_transformers import Decoder\n"
            "model = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, shift_tokens=1)\n"
            "call = lambda x, valid: model(x, mask=valid)\n",
        ),
        Other(
            "local-attention, causal",
            ATTENTION,
            "local_attention",
            "local-attention",
            "from local_attention import LocalMHA\n"
            "model = LocalMHA(dim=32, window_size=8, heads=4, dim_head=8, causal=True, use_xpos=False)\n"
            "call = lambda x, valid: model(x, mask=valid)\n",
        ),
        Other(
            "ViT blocks of timm",
            TORCH,
            "timm",
            "timm",
            "from timm.models.vision_transformer import Block\n"
            "model = torch.nn.ModuleList([Block(32, 4), Block(32, 4)])\n"
            "def call(x, valid):\n"
            "    for block in model: x = block(x, attn_mask=valid[:, None, None])\n"
            "    return x\n",
            causal=False,
        ),
        Other(
            "EVA blocks of timm",
            TORCH,
            "timm",
            "timm",
            "from timm.models.eva import EvaBlock\n"
            "model = torch.nn.ModuleList([EvaBlock(32, 4), EvaBlock(32, 4)])\n"
            "def call(x, valid):\n"
            "    for block in model: x = block(x, attn_mask=valid[:, None, None])\n"
            "    return x\n",
            causal=False,
        ),
        Other(
            "nn.GRU",
            TORCH,
            "torch",
            "torch",
            "model = torch.nn.GRU(32, 32, 3, batch_first=True)\n"
            "call = lambda x: model(x)[0]\n"
            "step = lambda x, state: model(x, state)\n",
        ),
        Other(
            "nn.LSTM",
            TORCH,
            "torch",
            "torch",
            "model = torch.nn.LSTM(32, 32, 3, batch_first=True)\n"
            "call = lambda x: model(x)[0]\n"
            "step = lambda x, state: model(x, state)\n",
        ),
        Other(
            "nn.TransformerEncoder",
            TORCH,
            "torch",
            "torch",
            "layer = torch.nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)\n"
            "model = torch.nn.TransformerEncoder(layer, 2)\n"
            "call = lambda x, valid: model(x, src_key_padding_mask=~valid)\n",
            causal=False,
        ),
    )
}


def other_lines(other: Other, dtype: str) -> list[str]:
    """Lines that make `model`, `call` and `step`, with `p` times 3 for weights that are matrices."""
    made = other.lines.rstrip("\n").split("\n")
    at = next(i for i, line in enumerate(made) if line.startswith("model =")) + 1
    cast = "" if dtype == "float32" else f".to(torch.{dtype})"
    scale = [
        f"model = model{cast}.eval()",
        "for p in model.parameters(): p.data.mul_(3 if p.dim() > 1 else 1)",
    ]
    first = "import torch; torch.manual_seed(0); torch.set_grad_enabled(False)"
    return [first, *made[:at], *scale, *made[at:]]


def built_other(other: Other, dtype: str) -> Subject:
    """A module of another library. Raises ImportError if that is not installed."""
    for package in ("fla", "xlstm", "mamba_ssm", "causal_conv1d"):
        if sys.modules.get(package, package) is None:
            del sys.modules[package]
    if dtype == "float64" and other.name == "S5":
        raise NotCheckedError("has no float64")
    made: dict[str, Any] = {}
    with torch.enable_grad():  # which the lines turn off
        exec("\n".join(other_lines(other, dtype)), made)
    call = made["call"]
    takes_mask = len(inspect.signature(call).parameters) == 2
    step = made.get("step")

    def draw(rows: int, length: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(rows, length, WIDTH, generator=generator, dtype=torch.float64)
        return drawn.to(getattr(torch, dtype))

    def called(module: nn.Module, x: Tensor, valid: Tensor) -> Tensor:
        return call(x, valid) if takes_mask else call(x)

    def stepped(module: nn.Module, x: Tensor, valid: Tensor, state: Any) -> Any:
        if not bool(valid.all()):
            raise NotCheckedError("its state takes no mask")
        return step(x, state)

    return Subject(
        module=made["model"],
        draw=draw,
        call=called,
        causal=other.causal,
        state_inside=other.state_inside,
        takes_mask=takes_mask,
        step=None if step is None else stepped,
        reorder=None if step is None else reordered,
    )


def reordered(state: Any, rows: Tensor) -> Any:
    """A state with rows chosen anew, on the first axis that has as many; the second is that of nn.GRU and nn.LSTM."""
    if isinstance(state, Tensor):
        for axis in (0, 1):
            if state.shape[axis] == len(rows):
                return state.index_select(axis, rows)
    if isinstance(state, dict):
        return {name: reordered(value, rows) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(reordered(value, rows) for value in state)
    if isinstance(state, int):
        return state
    raise NotCheckedError("its state cannot be reordered")
