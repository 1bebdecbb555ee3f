"""What every registered mixer keeps beside the laws: its start in a block, its groups in optimizers, its FLOPs."""

from functools import partial

import pytest
import torch
from nn.mixers.definitions import assert_continues, perturbed, sequences, state_bytes
from torch.testing import assert_close

from seqkit.analysis.cost import describe_model
from seqkit.backbones import Transformer
from seqkit.interfaces import Embedded, TokenSpec
from seqkit.model import Model
from seqkit.nn.block import ParallelBlock, PreNormBlock
from seqkit.objectives import Masked, NextToken
from seqkit.registry import components, find
from seqkit.training.optim import AdamW, Muon
from seqkit.training.widths import input_widths

NAMES = [name for name in components("mixer") if find("mixer", name).load().carries_state]
EACH = pytest.mark.parametrize("name", NAMES)
CAUSAL = pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
DIM = 24
HEADS = 4


def stack(name, causal=True, depth=1, dim=DIM, **settings):
    mixer = partial(find("mixer", name).load(), **settings)
    return Transformer(dim, depth, num_heads=HEADS, causal=causal, mixer=mixer)


def model_of(backbone):
    objective = NextToken(tied=False) if backbone.causal else Masked()
    return Model(TokenSpec(vocab_size=29), backbone, objective)


# ── states ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@EACH
def test_ragged_sequences_in_parts_are_each_by_itself_and_the_state_does_not_grow(name):
    mixer = perturbed(find("mixer", name).load()(DIM, HEADS))
    assert_continues(mixer, lambda mixer, x: mixer.mix(x[None], None)[0], sequences(DIM, 10, b=3))
    assert state_bytes(mixer, 1) == state_bytes(mixer, 200)


# ── start ────────────────────────────────────────────────────────────────────────────────────────────────────────────

WITHOUT_PROJECTION = {"LSTM", "GRU", "RNN", "SLSTM", "MinGRU", "MinLSTM"}


@EACH
@CAUSAL
@pytest.mark.parametrize("block", [PreNormBlock, ParallelBlock])
def test_with_zero_init_a_mixer_with_an_output_projection_adds_nothing(name, causal, block):
    settings = {"expand": 2} if name.startswith("Min") else {}
    mixer = partial(find("mixer", name).load(), **settings)
    backbone = Transformer(
        DIM, 2, num_heads=HEADS, causal=causal, mixer=mixer, block=partial(block, zero_init=True)
    )
    x = torch.randn(2, 5, DIM)
    given = Embedded(x, torch.zeros(2, 5, 1), torch.ones(2, 5, dtype=torch.bool))
    starts_as_identity = torch.equal(backbone(given), backbone.norm(x))
    assert starts_as_identity == (name not in WITHOUT_PROJECTION or bool(settings))


# ── optimizers ───────────────────────────────────────────────────────────────────────────────────────────────────────

OF_MUON = {"weight", "weight_ih_l0", "weight_hh_l0"}
"""Last words of the names of matrices [out in]."""
OF_HEADS = {"gate_weight", "input_weight", "recurrent_weight"}
"""Stacks of matrices [h in out], which Muon leaves to AdamW, as it does convolutions [k 1 d] and S4D's C."""


def names_of(groups, model):
    by_id = {id(p): name for name, p in model.backbone.blocks.named_parameters()}
    return {by_id[id(p)] for group in groups for p in group["params"] if id(p) in by_id}


@EACH
@CAUSAL
def test_neither_decay_nor_muon_touches_biases_norms_and_decays(name, causal):
    model = model_of(stack(name, causal))
    decayed = names_of([g for g in AdamW().build(model).param_groups if g["weight_decay"]], model)
    of_muon = names_of(Muon().build(model).by_name["muon"].param_groups, model)
    words = {one: one.rpartition(".")[2] for one in decayed}
    assert not any("norm" in one for one in decayed)
    assert set(words.values()) <= OF_MUON | OF_HEADS | {"C"}
    right = {one for one in decayed if words[one] in OF_MUON and "convolution" not in one}
    assert of_muon == right
    assert of_muon


@EACH
def test_the_rate_of_a_mixers_matrices_transfers_over_width(name):
    """The witness is a model of twice the width, of as many heads; matrices of a head are left out by design."""
    narrow = model_of(stack(name, dim=48))
    wide = model_of(stack(name, dim=96))
    scaled = input_widths(wide)
    for one, p in wide.backbone.blocks.named_parameters():
        grows = p.ndim == 2 and p.shape[1] == 2 * narrow.backbone.blocks.get_parameter(one).shape[1]
        assert (p in scaled) == grows, one


# ── FLOPs ────────────────────────────────────────────────────────────────────────────────────────────────────────────

N = 64
M = 32
"""Tokens, and those of a chunk."""


def scan(h, c, e, *, delta=False):
    """Of the chunked scan, for each token: products of matrices, decays, the state of each chunk."""
    of_scores = 2 * M * (c + e)
    of_states = 2 * 2 * c * e
    beside = 2 * M + 3 + 2 * c + e + 2 * c * e / M
    if delta:
        of_scores *= 2
        of_states += 2 * c * e
        beside += M * M + 2 * (c + e)
    return h * (of_scores + of_states + beside)


def maps(*shapes):
    return sum(2 * inputs * outputs for inputs, outputs in shapes)


def of_s4d():
    fft = 2.5 * 2 * N * 7
    pairs = 32
    blocks = 8 + 8  # as many exponents for each half of a power
    of_examples = 3 * DIM * fft + 6 * DIM * (N + 1) + 6 * DIM * pairs * blocks
    return of_examples / N + 2 * DIM * 2 * pairs + 2 * DIM + maps((DIM, 2 * DIM))


BY_HAND = {
    "LSTM": maps((DIM, 4 * DIM), (DIM, 4 * DIM)),
    "GRU": maps((DIM, 3 * DIM), (DIM, 3 * DIM)),
    "RNN": maps((DIM, DIM), (DIM, DIM)),
    "S4D": of_s4d(),
    "Mamba": maps((DIM, 96), (48, 2 + 32), (2, 48), (48, DIM)) + 48 * (7 * 16 + 1 + 9 + 2),
    "MinGRU": maps((DIM, 2 * DIM)) + 2 * DIM,
    "MinLSTM": maps((DIM, 3 * DIM)) + 2 * DIM,
    "Mamba2": maps((DIM, 356), (48, DIM)) + scan(4, 128, 12) + 304 * 9 + 2 * 48,
    "GatedDeltaNet": maps((DIM, 104), (32, DIM)) + scan(4, 4, 8, delta=True) + 64 * 8,
    "MLSTM": maps((DIM, 72), (DIM, 8), (DIM, DIM)) + scan(4, 3, 7),
    "RGLRU": maps((DIM, 64), (32, 2 * 8), (32, DIM)) + 32 * (2 + 9),
    "ShortConvolution": maps((DIM, 3 * DIM), (DIM, DIM)) + DIM * (2 * 3 + 2),
    "SLSTM": 2 * maps((DIM, 4 * 6)) + DIM * (9 + 16),
}
"""FLOPs of a token in one direction."""


@pytest.mark.slow
@EACH
@CAUSAL
def test_flops_are_those_by_hand_in_each_direction(name, causal):
    beside = maps((DIM, 4 * DIM), (4 * DIM, DIM), (DIM, 29))
    found = describe_model(model_of(stack(name, causal)), N).flops / N - beside
    directions = 1 if causal else 2
    assert_close(found, directions * float(BY_HAND[name]), rtol=1e-9, atol=0)
