"""Small generating models of every kind, with weights sharp enough that the context decides."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from seqkit.backbones import GRU, LSTM, RNN, EncoderDecoder, Transformer
from seqkit.backbones.rnn_decoder import RNNDecoder
from seqkit.generation import stream
from seqkit.interfaces import Backbone, TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.additive import AdditiveAttention
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import NextToken
from seqkit.objectives.seq2seq import Seq2Seq
from seqkit.registry import components
from seqkit.tokenizers import Characters

VOCAB, SOURCE_VOCAB = 13, 7


def _cross_attending() -> Transformer:
    return Transformer(
        24, 2, num_heads=3, causal=True, block=partial(PreNormBlock, cross_attention=True)
    )


def _with(mechanism: Callable[..., nn.Module]) -> Backbone:
    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=mechanism))
    return Transformer(24, 2, num_heads=3, causal=True, block=block)


ONE: dict[str, Callable[[], Backbone]] = {
    "Transformer": lambda: Transformer(24, 2, causal=True),
    "Transformer-rotary": lambda: Transformer(24, 2, causal=True, position=Rotary()),
    "LSTM": lambda: LSTM(24, causal=True),
    "GRU": lambda: GRU(24, causal=True),
    "RNN": lambda: RNN(24, causal=True),
}
TWO: dict[str, Callable[[], Backbone]] = {
    "Transformer, Transformer": lambda: EncoderDecoder(
        Transformer(24, 1, num_heads=3), _cross_attending()
    ),
    "GRU, Transformer": lambda: EncoderDecoder(GRU(24, 1), _cross_attending()),
    "GRU, RNNDecoder": lambda: EncoderDecoder(GRU(24, 1), RNNDecoder(24, 2)),
    "GRU, Bahdanau": lambda: EncoderDecoder(
        GRU(24, 1),
        RNNDecoder(
            24, attention=partial(MultiHeadAttention, mechanism=AdditiveAttention), cell="LSTM"
        ),
    ),
}
STEPWISE = AttentionFeature.CAUSAL | AttentionFeature.CACHE
MECHANISMS = sorted(
    name
    for name, component in components("mechanism").items()
    if STEPWISE in component.load().supports
)
"""Those that generate with a cache."""
REQUIRED = {
    "TopKAttention": {"k": 3},
    "SlidingWindowAttention": {"size": 2},
    "LinformerAttention": {"max_tokens": 29, "rank": 5},
    "LSHAttention": {"bucket_size": 4},
}
"""Arguments that some of them require."""


def build(name: str) -> Backbone:
    return (
        {**ONE, **TWO}[name]()
        if name in ONE or name in TWO
        else _with(partial(components("mechanism")[name].load(), **REQUIRED.get(name, {})))
    )


def generating_model(name: str = "Transformer", num_axes: int = 1, **settings) -> Model:
    torch.manual_seed(0)
    objective = NextToken()
    if name in TWO:
        objective = Seq2Seq(Characters("abcdefghijk"), tied=False)  # and bos and eos: 13 ids
    spec = TokenSpec(vocab_size=SOURCE_VOCAB if name in TWO else VOCAB, num_axes=num_axes)
    return sharpened(Model(spec, build(name), objective, **settings))


def sharpened(model: Model) -> Model:
    """The model in float64, with weights so large that the context decides which id is the likeliest."""
    for p in model.parameters():
        if p.ndim == 2:
            nn.init.normal_(p, std=p.shape[1] ** -0.5)
    for matrix in (model.embedder.content.weight, model.head.linear.weight):
        nn.init.normal_(matrix)
    return model.double().eval()


RAGGED = [torch.tensor([3, 1, 4, 1, 5]), torch.tensor([2]), torch.tensor([7, 1, 8])]


def sources(name: str, rows=(0, 1, 2)) -> TokenBatch | None:
    """Batch for the encoder beside RAGGED, ragged too; None for models of one sequence."""
    if name not in TWO:
        return None
    ids = [[1, 2, 3], [4, 4, 0, 6, 1], [5]]
    return TokenBatch.collate(
        [Tokens(torch.tensor(ids[i]), torch.arange(float(len(ids[i])))[:, None]) for i in rows]
    )


def columns(model: Model, prompts, steps: int, **settings) -> torch.Tensor:
    """[b t] ids that `stream` yields."""
    return torch.stack(list(stream(model, prompts, steps, **settings)), dim=1)


def last_logits(model: Model, ids: torch.Tensor, source: TokenBatch | None = None) -> torch.Tensor:
    """[v] logits after a sequence, in one pass from its start; no cache, no batch."""
    positions = torch.arange(float(len(ids)))[None, :, None].expand(-1, -1, model.spec.num_axes)
    batch = TokenBatch(ids[None], positions, torch.ones(1, len(ids)).bool(), source=source)
    with torch.no_grad():
        return model(batch)[0, -1]
