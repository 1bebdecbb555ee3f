"""What a backbone without a norm before its first layer gets has about unit size, or is named: law of the kit."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from seqkit.backbones import LSTM, EncoderDecoder, RNNDecoder, Towers
from seqkit.interfaces import Embedded, TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import Contrastive
from seqkit.testing import check_embedded_backbone, synthetic
from seqkit.testing.input_sizes import input_sizes, wrong_size

DIM = 24
ONLY = {"only": ["inputs_have_unit_size"]}


class SmallTable(nn.Embedding):
    """A tokenizer's own lookup table with the spread that GPT-2 begins with."""

    def __init__(self, dim):
        super().__init__(101, dim)
        nn.init.normal_(self.weight, std=0.02)


def bare():
    return LSTM(DIM, 1, residual=False)


def scaled(tokens, factor):
    return replace(tokens, content=tokens.content * factor)


@pytest.mark.parametrize("modality", ["text", "image", "series", "joined"])
def test_nothing_is_said_of_tokens_of_size_1(modality):
    spec, examples = synthetic()[modality]
    assert len(check_embedded_backbone(spec, bare(), examples, **ONLY)) == 1


def test_a_table_of_002_before_a_bare_lstm_is_named():
    spec, examples = synthetic()["text"]
    small = replace(spec, embedder=SmallTable)
    with pytest.raises(
        AssertionError, match=r"inputs_have_unit_size: inputs have a root mean square of 0\.0[12]"
    ):
        check_embedded_backbone(small, bare(), examples, **ONLY)


def test_a_network_with_a_norm_before_its_first_layer_takes_any_size():
    spec, examples = synthetic()["text"]
    small = replace(spec, embedder=SmallTable)
    assert len(check_embedded_backbone(small, LSTM(DIM, 1), examples, **ONLY)) == 1
    assert list(input_sizes(LSTM(DIM, 1), vectors(0.02))) == []


@pytest.mark.parametrize("factor", [1e3, 1e-3])
def test_frames_in_another_unit_are_named(factor):
    spec, examples = synthetic()["series"]
    with pytest.raises(AssertionError, match="scale what the tokenizer gives"):
        check_embedded_backbone(spec, bare(), [scaled(x, factor) for x in examples], **ONLY)


def test_the_part_of_another_size_is_named():
    spec, examples = synthetic()["joined"]
    unlike = []
    for tokens in examples:
        parts = tuple(
            (name, scaled(run, 100.0) if name == "series" else run) for name, run in tokens.parts
        )
        unlike.append(replace(tokens, parts=parts))
    with pytest.raises(AssertionError, match="inputs of series have"):
        check_embedded_backbone(spec, bare(), unlike, **ONLY)


def vectors(size, n=5):
    generator = torch.Generator().manual_seed(n)
    hidden = size * torch.randn(3, n, DIM, generator=generator)
    return Embedded(hidden, torch.zeros(3, n, 1), torch.ones(3, n, dtype=torch.bool))


def test_the_source_of_an_encoder_decoder_is_measured_by_itself():
    both = EncoderDecoder(LSTM(DIM, 1, residual=False), RNNDecoder(DIM))
    sizes = dict(input_sizes(both, vectors(1.0).replace(source=vectors(0.01, n=7))))
    assert sizes == {"source": pytest.approx(0.01, rel=0.2), "": pytest.approx(1.0, rel=0.2)}
    assert "inputs of source" in wrong_size(both, vectors(1.0).replace(source=vectors(0.01)))


def test_towers_are_measured_where_they_take_inputs_as_they_are():
    of_text, of_series = TokenSpec(vocab_size=7), TokenSpec(num_features=2)
    parts = TokenSpec(parts=(("text", of_text), ("series", of_series)))
    text = Tokens(torch.arange(5), torch.arange(5.0)[:, None])
    numbers = [Tokens(1e4 * torch.randn(n, 2), torch.arange(float(n))[:, None]) for n in (3, 4)]
    examples = [parts.join([("text", text), ("series", one)]) for one in numbers]
    normalised = Towers({"text": bare(), "series": LSTM(DIM, 1)})
    assert wrong_size(normalised, embedded_by(parts, normalised, examples)) is None
    both_bare = Towers({"text": bare(), "series": bare()})
    assert "inputs of series" in wrong_size(both_bare, embedded_by(parts, both_bare, examples))


def embedded_by(spec, backbone, examples):
    return Model(spec, backbone, Contrastive()).embed(TokenBatch.collate(examples))


def test_nan_is_named():
    assert "nan" in wrong_size(bare(), vectors(float("nan")))
