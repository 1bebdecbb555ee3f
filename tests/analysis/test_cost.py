"""Costs equal what papers print, what Hugging Face's models count, formulas, and a real forward pass."""

from dataclasses import replace

import pytest
import torch
import transformers

from seqkit.analysis.cost import PresetModel, describe, describe_model, describe_recipe, number, size
from seqkit.backbones import LSTM, Transformer
from seqkit.backbones.presets import PUBLISHED
from seqkit.config import complete
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.objectives import NextToken


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "printed", "off"),
    [
        ("vaswani_base", 65e6, 0.031),  # the vocabulary is printed as "about 37,000", and a million is 2,000 tokens
        ("vaswani_big", 213e6, 0.006),
        ("bert_mini", 11.3e6, 0.02),
        ("bert_base", 110e6, 0.011),
        ("vit_tiny", 5.7e6, 0.005),  # table 1 prints 5M; timm counts 5.7
        ("vit_base", 86e6, 0.007),
        ("gpt2", 124e6, 0.004),
        ("llama_nano", 260e3, 0.001),
        ("llama_7b", 6.7e9, 0.006),
        ("gpt3_175b", 175.0e9, 0.003),
    ],
)
def test_parameters_are_those_of_the_paper(name, printed, off):
    with torch.device("meta"):
        assert count(PresetModel(PUBLISHED[name])) == pytest.approx(printed, rel=off)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("gpt2", lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config())),
        ("bert_base", lambda: transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False)),
        ("llama_7b", lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig())),
        ("vit_base", lambda: transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000))),
    ],
)
def test_parameters_equal_hugging_faces_exactly(name, theirs):
    with torch.device("meta"):
        assert count(PresetModel(PUBLISHED[name])) == count(theirs())


def test_gpt3_is_measured_without_being_allocated():
    cost = describe("gpt3_175b", context_length=128)
    assert cost.parameters == pytest.approx(175e9, rel=0.003)
    assert ("parameters", "174.6 B") in cost.rows()
    assert cost.weights_and_adam == 16 * cost.parameters
    # two for each weight outside the looked-up tables, and for each pair of tokens and channel, twice (section 2.1)
    outside = cost.parameters - 2048 * 12_288
    assert cost.flops_per_token == pytest.approx(2 * outside + 96 * 4 * 128 * 12_288, rel=1e-3)
    assert cost.cache == pytest.approx(2 * 96 * 128 * 12_288 * 4, rel=1e-3)


@pytest.mark.parametrize("context_length", [1024, 7])
def test_flops_of_gpt2_are_the_formula(context_length):
    cost = describe("gpt2", context_length=context_length)
    block = 2 * (3 + 1 + 4 + 4) * 768**2 + 2 * 2 * context_length * 768  # q k v, out, up, down; scores, sums of values
    assert cost.flops_per_token == 12 * block + 2 * 768 * 50_257


def test_flops_of_llama_count_shared_keys_and_values_once():
    cost = describe("llama_nano", context_length=11)
    block = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 172) + 2 * 2 * 11 * 64
    assert cost.flops_per_token == 5 * block + 2 * 64 * 512
    assert cost.embedding == 512 * 64


def test_a_mixture_of_experts_costs_what_its_active_experts_cost():
    cost = describe("moe_mini", context_length=12)  # 24 to route, three to each expert
    expert = 3 * 128 * 448
    assert cost.parameters - cost.active == 4 * (8 - 2) * expert
    block = 2 * (128 * 128 * 2 + 128 * 32 * 2 + 128 * 8 + 2 * expert) + 2 * 2 * 12 * 128
    # a thousandth: the gates' sum over experts may be a product of matrices, or not
    assert cost.flops_per_token == pytest.approx(4 * block + 2 * 128 * 256, rel=1e-3)
    assert "active per token" in str(cost)
    assert "active per token" not in str(describe("gpt_nano"))


def test_flops_of_an_lstm_are_the_formula():
    model = Model(TokenSpec(vocab_size=29), LSTM(20, 3, causal=True), NextToken(tied=False))
    cost = describe_model(model, 7)
    assert cost.flops_per_token == 3 * 2 * 2 * 4 * 20 * 20 + 2 * 20 * 29
    assert (cost.parameters, cost.embedding) == (model.num_parameters, 29 * 20)
    assert cost.cache == describe_model(model, 31).cache, "a state does not grow"
    assert not next(model.parameters()).is_meta


def saved_bytes(name, context_length):
    """Bytes that autograd saves on this machine: every storage once, without parameters and buffers."""
    published = PUBLISHED[name]
    model, spec = PresetModel(published).train(), published.spec
    content = (
        torch.zeros(1, context_length, dtype=torch.int64)
        if spec.ids
        else torch.randn(1, context_length, spec.num_features)
    )
    batch = TokenBatch(
        content, torch.zeros(1, context_length, spec.num_axes), torch.ones(1, context_length, dtype=torch.bool)
    )
    if model.backbone.is_encoder_decoder:
        batch = replace(batch, source=batch)
    found = {}

    def save(tensor):
        found[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        model(batch)
    for own in (*model.parameters(), *model.buffers()):
        found.pop(own.untyped_storage().data_ptr(), None)
    return sum(tensor.untyped_storage().nbytes() for tensor in found.values())


@pytest.mark.parametrize("name", ["llama_nano", "palm_mini"])
def test_activations_are_what_autograd_saves(name):
    """Presets without dropout in attention: with it, torch on a CPU takes another kernel, which saves the scores."""
    assert describe(name, context_length=131).activations == pytest.approx(saved_bytes(name, 131), rel=1e-3)


def test_scores_are_not_saved():
    """Twice the tokens take twice the bytes; scores would take four times theirs."""
    assert describe("bert_mini", context_length=512).activations == pytest.approx(
        2 * describe("bert_mini", context_length=256).activations, rel=1e-3
    )


def test_the_cache_is_keys_and_values_of_both_sequences_and_the_memory():
    cost = describe("t5_mini", context_length=37)
    assert (cost.has_source, cost.tokens) == (True, 74)
    assert cost.cache == pytest.approx((4 * 2 * 2 + 1) * 37 * 384 * 4, rel=0.01)
    assert describe("bert_mini").cache is None
    assert "cache" not in str(describe("bert_mini"))


@pytest.mark.slow
def test_a_recipe_is_measured_with_its_own_tokens():
    cost = describe_recipe(complete("text/char-lm", "debug", {"model.backbone": "gpt_nano"}))
    assert (cost.name, cost.context_length) == ("text/char-lm", 65)
    assert cost.parameters > count(PUBLISHED["gpt_nano"].build())


def test_the_model_is_not_changed():
    model = Model(TokenSpec(vocab_size=29), Transformer(22, 1, num_heads=2, causal=True), NextToken())
    model.eval()
    before = {name: p.clone() for name, p in model.named_parameters()}
    describe_model(model, 5)
    assert not model.training
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


@pytest.mark.parametrize(
    ("name", "context_length", "message"),
    [
        ("gpt_nan", None, "no preset called 'gpt_nan'; did you mean gpt_nano"),
        ("gpt2", 1025, "gpt2 has positions for 1024 tokens; context_length=1025"),
        ("llama_nano", 0, "context_length=0 counts tokens"),
    ],
)
def test_an_impossible_request_is_refused(name, context_length, message):
    with pytest.raises(ValueError, match=message):
        describe(name, context_length=context_length)


def test_numbers_have_units():
    assert [number(x) for x in (7, 1_300, 2.5e6, 174.6e9, 1.1e12)] == ["7", "1.3 k", "2.5 M", "174.6 B", "1.1 T"]
    assert [size(x) for x in (7, 1_300, 698.4e9)] == ["7 B", "1.3 kB", "698.4 GB"]
