"""Small models that write, of every kind, with weights sharp enough for contexts to tell."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from seqkit.backbones import GRU, LSTM, RNN, Seq2Seq, Transformer
from seqkit.backbones.recurrent_decoder import RecurrentDecoder
from seqkit.contract import Backbone, TokenBatch, Tokens, TokenSpec
from seqkit.generate import generate
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.position import Rotary
from seqkit.layers.scores import Additive
from seqkit.model import Model
from seqkit.objectives import NextToken
from seqkit.objectives.translate import Translate
from seqkit.registry import parts
from seqkit.tokenizers import Characters

VOCAB, SOURCE_VOCAB = 13, 7


def _crossing() -> Transformer:
    return Transformer(24, 2, num_heads=3, causal=True, block=partial(Block, cross=True))


def _with(mechanism: Callable[..., nn.Module]) -> Backbone:
    block = partial(Block, attention=partial(Attention, mechanism=mechanism))
    return Transformer(24, 2, num_heads=3, causal=True, block=block)


ONE: dict[str, Callable[[], Backbone]] = {
    "Transformer": lambda: Transformer(24, 2, causal=True),
    "Transformer-rotary": lambda: Transformer(24, 2, causal=True, position=Rotary()),
    "LSTM": lambda: LSTM(24, causal=True),
    "GRU": lambda: GRU(24, causal=True),
    "RNN": lambda: RNN(24, causal=True),
}
TWO: dict[str, Callable[[], Backbone]] = {
    "Transformer, Transformer": lambda: Seq2Seq(Transformer(24, 1, num_heads=3), _crossing()),
    "GRU, Transformer": lambda: Seq2Seq(GRU(24, 1), _crossing()),
    "GRU, RecurrentDecoder": lambda: Seq2Seq(GRU(24, 1), RecurrentDecoder(24, 2)),
    "GRU, Bahdanau": lambda: Seq2Seq(
        GRU(24, 1), RecurrentDecoder(24, attention=partial(Attention, mechanism=Additive), cell="LSTM")
    ),
}
MECHANISMS = sorted(name for name, part in parts("mechanism").items() if {"causal", "cache"} <= part.load().honours)
"""Those that can go on step by step."""
MUST = {
    "TopK": {"k": 3},
    "Window": {"size": 2},
    "Linformer": {"max_tokens": 29, "rank": 5},
    "LSH": {"bucket_size": 4},
}
"""What some of them must be told."""


def build(name: str) -> Backbone:
    return (
        {**ONE, **TWO}[name]()
        if name in ONE or name in TWO
        else _with(partial(parts("mechanism")[name].load(), **MUST.get(name, {})))
    )


def writing_model(name: str = "Transformer", **settings) -> Model:
    torch.manual_seed(0)
    objective = NextToken()
    if name in TWO:
        objective = Translate(Characters("abcdefghijk"), tied=False)  # and begin and end: 13 ids
    spec = TokenSpec(vocab_size=SOURCE_VOCAB if name in TWO else VOCAB)
    model = Model(spec, build(name), objective, **settings)
    for p in model.parameters():
        if p.ndim == 2:
            nn.init.normal_(p, std=p.shape[1] ** -0.5)
    for matrix in (model.embedder.content.weight, model.head.linear.weight):
        nn.init.normal_(matrix)
    return model.eval()


RAGGED = [torch.tensor([3, 1, 4, 1, 5]), torch.tensor([2]), torch.tensor([7, 1, 8])]


def sources(name: str, rows=(0, 1, 2)) -> TokenBatch | None:
    """What an encoder reads beside RAGGED, ragged too; None for models that read one sequence."""
    if name not in TWO:
        return None
    ids = [[1, 2, 3], [4, 4, 0, 6, 1], [5]]
    return TokenBatch.collate([Tokens(torch.tensor(ids[i]), torch.arange(float(len(ids[i])))[:, None]) for i in rows])


def columns(model: Model, prompts, steps: int, **settings) -> torch.Tensor:
    """[b t] ids that `generate` yields."""
    return torch.stack(list(generate(model, prompts, steps, **settings)), dim=1)


def last_scores(model: Model, text: torch.Tensor, memory: TokenBatch | None = None) -> torch.Tensor:
    """[v] after a text that is read from its start; no cache, no batch."""
    positions = torch.arange(float(len(text)))[None, :, None]
    batch = TokenBatch(text[None], positions, torch.ones(1, len(text)).bool(), memory=memory)
    with torch.no_grad():
        return model(batch)[0, -1]
