"""Costs equal what papers print, what Hugging Face's models count, formulas, and a real forward pass."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
import transformers
from conftest import SAMPLES
from einops import rearrange

from seqkit.analysis.cost import (
    PresetModel,
    describe,
    describe_model,
    describe_recipe,
    training_flops,
)
from seqkit.backbones import GRU, LSTM, RNN, EncoderDecoder, RNNDecoder, Transformer
from seqkit.backbones.attention_decoder import AttentionDecoder
from seqkit.backbones.mamba import Mamba
from seqkit.backbones.message_passing import GIN
from seqkit.backbones.presets import PUBLISHED
from seqkit.backbones.s4d import S4D
from seqkit.config import complete
from seqkit.interfaces import Backbone, TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.mlp import GatedMLP
from seqkit.nn.moe import MixtureOfExperts
from seqkit.objectives import Masked, NextToken, Seq2Seq
from seqkit.tokenizers import Characters


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "printed", "off"),
    [
        ("bert_mini", 11.3e6, 0.02),
        ("vit_tiny", 5.7e6, 0.005),  # table 1 prints 5M; timm counts 5.7
        ("gpt2", 124e6, 0.004),
        ("llama_nano", 260e3, 0.001),
        ("llama_7b", 6.7e9, 0.006),
    ],
)
def test_parameters_are_those_of_the_paper(name, printed, off):
    with torch.device("meta"):
        assert count(PresetModel(PUBLISHED[name])) == pytest.approx(printed, rel=off)


BERT_MINI = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
VIT_TINY = {
    "hidden_size": 192,
    "num_attention_heads": 3,
    "intermediate_size": 768,
    "num_labels": 1000,
}


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("gpt2", lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config())),
        (
            "bert_mini",
            lambda: transformers.BertModel(
                transformers.BertConfig(**BERT_MINI), add_pooling_layer=False
            ),
        ),
        ("llama_7b", lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig())),
        (
            "vit_tiny",
            lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**VIT_TINY)),
        ),
    ],
)
def test_parameters_equal_hugging_faces_exactly(name, theirs):
    with torch.device("meta"):
        assert count(PresetModel(PUBLISHED[name])) == count(theirs())


@pytest.mark.slow
def test_llama_is_measured_without_being_allocated():
    cost = describe("llama_7b", context_length=128)
    assert ("parameters", "6.7 B") in cost.rows()
    assert cost.weights_and_adam == 16 * cost.parameters
    # two for each weight outside the looked-up tables, and for each pair of tokens and channel, twice (section 2.1)
    outside = cost.parameters - cost.embedding
    assert cost.flops_per_token == pytest.approx(2 * outside + 32 * 4 * 128 * 4096, rel=1e-3)
    assert cost.cache == pytest.approx(2 * 32 * 128 * 4096 * 4, rel=1e-3)


@pytest.mark.parametrize("context_length", [1024, 7])
def test_flops_of_gpt2_are_the_formula(context_length):
    cost = describe("gpt2", context_length=context_length)
    # q k v, out, up, down; scores, sums of values
    block = 2 * (3 + 1 + 4 + 4) * 768**2 + 2 * 2 * context_length * 768
    assert cost.flops_per_token == 12 * block + 2 * 768 * 50_257


def test_flops_of_llama_count_shared_keys_and_values_once():
    cost = describe("llama_nano", context_length=11)
    block = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 172) + 2 * 2 * 11 * 64
    assert cost.flops_per_token == 5 * block + 2 * 64 * 512
    assert cost.embedding == 512 * 64


def test_a_mixture_of_experts_costs_what_its_active_experts_cost():
    expert = partial(GatedMLP, width=448)
    block = partial(
        PreNormBlock,
        attention=partial(MultiHeadAttention, num_kv_heads=1, bias=False),
        mlp=partial(MixtureOfExperts, num_experts=8, top_k=2, expert=expert),
    )
    backbone = Transformer(128, 4, num_heads=4, causal=True, block=block)
    model = Model(TokenSpec(vocab_size=256), backbone, NextToken(tied=False))
    cost = describe_model(model, 12)  # 24 to route, three to each expert
    expert = 3 * 128 * 448
    assert cost.parameters - cost.active == 4 * (8 - 2) * expert
    block = 2 * (128 * 128 * 2 + 128 * 32 * 2 + 128 * 8 + 2 * expert) + 2 * 2 * 12 * 128
    # a thousandth: the gates' sum over experts may be a product of matrices, or not
    assert cost.flops_per_token == pytest.approx(4 * block + 2 * 128 * 256, rel=1e-3)
    assert "active per token" in str(cost)
    assert "active per token" not in str(describe("gpt_nano"))


@pytest.mark.slow
def test_flops_of_an_lstm_are_the_formula():
    model = Model(TokenSpec(vocab_size=29), LSTM(20, 3, causal=True), NextToken(tied=False))
    cost = describe_model(model, 7)
    assert cost.flops_per_token == 3 * 2 * 2 * 4 * 20 * 20 + 2 * 20 * 29
    assert (cost.parameters, cost.embedding) == (model.num_parameters, 29 * 20)
    assert cost.cache == describe_model(model, 31).cache, "a state does not grow"
    assert not next(model.parameters()).is_meta


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("cell", "gates"), [(RNN, 1), (GRU, 3), (LSTM, 4)])
def test_flops_of_recurrent_layers_are_their_matrices(cell, gates, causal):
    """Every gate of every direction multiplies the layer's input and its own state, each token once."""
    dim, depth, n = 22, 3, 7
    width, directions = (dim, 1) if causal else (dim // 2, 2)
    per_token = depth * directions * 2 * gates * width * (dim + width)
    assert flops_of(cell(dim, depth, causal=causal), n) == n * per_token


class Layers(Backbone):
    """Any layers as a backbone."""

    causal, is_recurrent = False, True

    def __init__(self, dim, *layers, call=None):
        super().__init__()
        self.dim, self.layers = dim, torch.nn.ModuleList(layers)
        self.call = call or (lambda layer, x: layer(x))

    def forward(self, embedded, cache=None):
        x = embedded.hidden
        for layer in self.layers:
            x = self.call(layer, x)
        return x


def flops_of(backbone, n):
    """Of the backbone alone."""
    objective = NextToken(tied=False) if backbone.causal else Masked()
    model = Model(TokenSpec(vocab_size=29), backbone, objective)
    return describe_model(model, n).flops - 2 * n * backbone.dim * 29


@pytest.mark.parametrize(("dilation", "groups"), [(1, 1), (5, 1), (1, 11), (3, 22)])
def test_flops_of_convolutions_are_the_formula(dilation, groups):
    kernel_size, dim, n = 3, 22, 37
    layer = torch.nn.Conv1d(dim, dim, kernel_size, dilation=dilation, groups=groups, padding="same")
    call = lambda layer, x: rearrange(layer(rearrange(x, "b n d -> b d n")), "b d n -> b n d")  # noqa: E731
    assert flops_of(Layers(dim, layer, call=call), n) == 2 * n * kernel_size * dim * dim // groups


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("n", [37, 64, 257])
def test_flops_of_mamba_are_the_formula(n, causal):
    """Within 1 %: the scan runs over whole chunks of about sqrt(n) tokens."""
    dim, depth, states, kernel_size = 48, 2, 5, 4
    width, rank, directions = 2 * dim, 3, 1 if causal else 2
    projections = 2 * dim * 2 * width + 2 * width * dim
    selection = 2 * width * (rank + 2 * states) + 2 * rank * width
    # exp(dt A): 2, B (dt x): 1, decay and sum: 2, the output's sum over states: 2; dt x: 1 a channel; bias and skip: 3
    scan = width * (7 * states + 1) + width * (2 * kernel_size + 3)
    expected = depth * n * (projections + directions * (selection + scan))
    backbone = Mamba(dim, depth, num_states=states, kernel_size=kernel_size, causal=causal)
    assert flops_of(backbone, n) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("n", [64, 257, 1031])
def test_flops_of_s4d_are_the_formula(n, causal):
    """Within 1 %: powers of the eigenvalues are split into about sqrt(n) blocks of as many."""
    dim, depth, states, directions = 48, 2, 14, 1 if causal else 2
    fft = 2.5 * 2 * n * math.log2(2 * n)  # of 2 n real numbers
    # of the input, of the kernel and back; a product a frequency
    convolution = 3 * dim * fft + 6 * dim * (n + 1)
    kernel = directions * dim * n * 2 * states + 6 * dim * states / 2 * 2 * n**0.5
    out = n * (2 * dim + 2 * dim * 2 * dim)  # the skip, and the gated projection
    backbone = S4D(dim, depth, num_states=states, causal=causal)
    assert flops_of(backbone, n) == pytest.approx(depth * (convolution + kernel + out), rel=0.01)


class Cumulative(torch.nn.Module):
    """A sum along tokens, which torch's counter does not see."""

    def forward(self, x):
        return x.cumsum(dim=1)

    def uncounted_flops(self, x):
        return x.numel()


def test_work_that_torch_does_not_count_is_added_for_every_call():
    dim, n, shared = 22, 7, Cumulative()
    once = flops_of(Layers(dim, Cumulative()), n)
    twice = flops_of(Layers(dim, shared, torch.nn.Linear(dim, dim), shared), n)
    by_keyword = flops_of(Layers(dim, shared, call=lambda layer, x: layer(x=x)), n)
    assert (once, twice, by_keyword) == (n * dim, 2 * n * dim + 2 * n * dim**2, n * dim)
    assert not shared._forward_hooks, "none is left behind"


def test_flops_of_an_encoder_decoder_are_the_formula():
    objective = Seq2Seq(Characters("abcde"))
    objective.fit(["abc", "de"], None)
    encoder = Transformer(24, 2, num_heads=3)
    decoder = Transformer(
        24, 1, num_heads=3, causal=True, block=partial(PreNormBlock, cross_attention=True)
    )
    model = Model(TokenSpec(vocab_size=29), EncoderDecoder(encoder, decoder), objective)
    n = 11
    attention, mlp = 4 * 2 * 24**2 + 2 * 2 * n * 24, 2 * 2 * 24 * 4 * 24
    expected = (
        2 * (attention + mlp)
        + (2 * attention + mlp)
        + 2 * 24 * objective.head(model.embedder).table.num_embeddings
    )
    assert describe_model(model, n).flops == n * expected


@pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_backbone_is_described_and_its_work_grows_with_tokens(build, causal):
    backbone = build(24, causal=causal)
    model = Model(TokenSpec(vocab_size=29), backbone, NextToken(tied=False) if causal else Masked())
    short, long = describe_model(model, 8), describe_model(model, 16)
    assert long.flops > 1.5 * short.flops > 0
    assert long.activations > short.activations > 0
    assert (short.cache is None) == (not causal or type(backbone).__name__ == "Reversible")


@pytest.mark.parametrize(
    ("encoder", "decoder"),
    [
        (S4D, lambda: RNNDecoder(24, 2, cell="LSTM")),
        (GRU, lambda: RNNDecoder(24, 1, attention=MultiHeadAttention)),
        (GIN, lambda: AttentionDecoder(Mamba(24, 1, causal=True))),
    ],
)
def test_every_kind_of_encoder_decoder_is_described(encoder, decoder):
    objective = Seq2Seq(Characters("abc"))
    objective.fit(["abc"], None)
    spec = TokenSpec(vocab_size=29, num_edge_types=2 if encoder is GIN else 0)
    model = Model(spec, EncoderDecoder(encoder(24, 2), decoder()), objective)
    short, long = describe_model(model, 8), describe_model(model, 16)
    assert long.flops > 1.5 * short.flops > 0
    assert long.cache is not None


def graphs():
    """A batch of 3 graphs with edges, padded, and its spec."""
    tokenizer, tokens = SAMPLES["Graph"]().encoded()
    return tokenizer.spec, TokenBatch.collate(tokens)


def test_flops_of_message_passing_count_the_edges_that_are_given():
    spec, batch = graphs()
    dim, n, e = 24, 7, len(batch.adjacency)
    objective = Masked()
    model = Model(spec, GIN(dim, 2), objective)
    # embedding, prediction of the features
    ends = 2 * (spec.num_features * dim + dim * spec.num_features)
    layers = 2 * (2 * 2 * dim * 2 * dim)
    assert training_flops(model, objective, (batch, None)) == 3 * (
        3 * n * (ends + layers) + 2 * e * dim
    )
    assert describe_model(model, n).flops == n * (ends + layers) + 2 * 2 * (n - 1) * dim, "a path"


def test_training_takes_three_forward_passes_of_the_padded_shape():
    objective = Masked()
    model = Model(TokenSpec(vocab_size=29), Transformer(24, 2, num_heads=3), objective)
    tokens = [Tokens(torch.zeros(n, dtype=torch.int64), torch.zeros(n, 1)) for n in (7, 3, 5)]
    batch = TokenBatch.collate(tokens)
    assert training_flops(model, objective, (batch, None)) == 3 * 3 * describe_model(model, 7).flops


def test_every_pass_of_a_step_counts():
    class Twice(Masked):
        def step(self, model, batch, *, training=False):
            super().step(model, batch, training=training)
            return super().step(model, batch, training=training)

    model = Model(TokenSpec(vocab_size=29), Transformer(24, 2, num_heads=3), Masked())
    batch = TokenBatch.collate([Tokens(torch.zeros(7, dtype=torch.int64), torch.zeros(7, 1))]), None
    assert training_flops(model, Twice(), batch) == 2 * training_flops(model, Masked(), batch)


class LooksAtValues(Transformer):
    """A sound backbone that asks for numbers, which device meta has none of."""

    def forward(self, embedded, cache=None):
        assert float(embedded.hidden.detach().numpy().std()) > 0
        return super().forward(embedded, cache)


def test_a_model_that_looks_at_values_costs_what_it_costs_on_device_meta():
    objective, tokens = (
        NextToken(),
        TokenSpec(vocab_size=29).random(7, torch.Generator().manual_seed(0)),
    )
    batch, counts = TokenBatch.collate([tokens]), []
    for cls in (Transformer, LooksAtValues):
        torch.manual_seed(0)
        model = Model(
            TokenSpec(vocab_size=29), cls(24, 2, num_heads=3, causal=True, dropout=0.1), objective
        )
        state = torch.get_rng_state()
        counts.append(
            (
                training_flops(model, objective, (batch, None)),
                describe_model(model, 7, name="model"),
            )
        )
        assert torch.equal(torch.get_rng_state(), state)
    (flops, on_meta), (same_flops, on_cpu) = counts
    assert flops == same_flops
    assert replace(on_cpu, activations=0) == replace(on_meta, activations=0)
    # a product with a mask of dropout saves it in another dtype on a CPU
    assert on_cpu.activations == pytest.approx(on_meta.activations, rel=0.1)


def test_a_model_is_measured_after_training_too():
    """A mixture of experts keeps what it routed in the last forward pass, with the graph of its gradients."""
    block = partial(PreNormBlock, mlp=partial(MixtureOfExperts, num_experts=3))
    model = Model(TokenSpec(vocab_size=29), Transformer(24, 1, num_heads=3, block=block), Masked())
    batch = TokenBatch.collate([Tokens(torch.zeros(6, dtype=torch.int64), torch.zeros(6, 1))])
    objective = Masked()
    before = training_flops(model, objective, (batch, None))
    model.train()(batch).sum().backward()
    assert training_flops(model, objective, (batch, None)) == before
    assert all(not p.is_meta for p in model.parameters())


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
        content,
        torch.zeros(1, context_length, spec.num_axes),
        torch.ones(1, context_length, dtype=torch.bool),
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


def test_activations_are_what_autograd_saves():
    """A preset without dropout in attention: with it, torch on a CPU takes another kernel, which saves the scores."""
    cost = describe("llama_nano", context_length=131)
    assert cost.activations == pytest.approx(saved_bytes("llama_nano", 131), rel=1e-3)


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
    model = Model(
        TokenSpec(vocab_size=29), Transformer(22, 1, num_heads=2, causal=True), NextToken()
    )
    model.eval()
    before = {name: p.clone() for name, p in model.named_parameters()}
    describe_model(model, 5)
    assert not model.training
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


@pytest.mark.parametrize(
    ("name", "context_length", "message"),
    [
        ("gpt_nan", None, "gpt_nano"),
        ("gpt2", 1025, "1024.*1025"),
        ("llama_nano", 0, "context_length=0"),
    ],
)
def test_an_impossible_request_is_refused(name, context_length, message):
    with pytest.raises(ValueError, match=message):
        describe(name, context_length=context_length)


@pytest.mark.parametrize("adjacency", ["use", "ignore"])
def test_an_encoder_along_edges_costs_as_many_of_its_operations_as_there_are_tokens_of_its_part(
    adjacency,
):
    """Each edge of the part's path is a sum of d numbers, in each layer."""
    graph = TokenSpec(num_features=3, num_axes=0, num_edge_types=2)
    spec, n, dim = TokenSpec(parts={"graph": graph, "text": TokenSpec(vocab_size=5)}), 22, 8

    def flops(depth):
        encoders = {"graph": GIN(dim, depth)}
        model = Model(
            spec, Transformer(dim, 1, num_heads=2), Masked(), adjacency=adjacency, encoders=encoders
        )
        return describe_model(model, n).flops

    nodes = n // 2
    mlp = 2 * 2 * nodes * dim * 2 * dim
    assert flops(3) - flops(2) == mlp + 2 * (nodes - 1) * dim
