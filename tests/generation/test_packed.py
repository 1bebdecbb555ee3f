"""The packed step: it gives what the modules give, and where a part is not known the modules run."""

import copy
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from generating import RAGGED, VOCAB, columns, generating_model
from torch import nn
from torch.testing import assert_close

import seqkit
from seqkit.backbones import Transformer
from seqkit.backbones.presets import PUBLISHED
from seqkit.generation import BeamSearch, Sampling, decode, decoders, generate
from seqkit.generation.captured import leaves
from seqkit.generation.decode import DecodingState
from seqkit.generation.decoders import MIN_STEPS, Decoder, find_decoder
from seqkit.generation.packed import PackedStep
from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.block import MLP, ParallelBlock, PostNormBlock, PreNormBlock, Residual
from seqkit.nn.convolution import CausalConvolution
from seqkit.nn.embedder import EmbeddingSettings
from seqkit.nn.mlp import GatedMLP, QuickGELU, ReLUSquared
from seqkit.nn.moe import MixtureOfExperts
from seqkit.nn.position.absolute import Learned
from seqkit.nn.position.bias import ALiBi
from seqkit.nn.position.rotary import Rotary
from seqkit.nn.position.rotary_scaling import LLaMA3Scaling, YaRNScaling
from seqkit.objectives import NextToken

GREEDY = Sampling(temperature=0)
PACKAGE = str(Path(seqkit.__file__).parent)
PRESETS = ["gpt_nano", "llama_nano"]
UNBIASED = partial(nn.LayerNorm, bias=False)


def slow_in(names, *dear):
    """Cases of these names, some of which are slow."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in dear else name for name in names]


def stack(block=PreNormBlock, heads=3, **settings):
    return Transformer(24, 2, num_heads=heads, causal=True, block=block, **settings)


def attended(**settings):
    return partial(PreNormBlock, attention=partial(MultiHeadAttention, **settings))


class OwnNorm(nn.LayerNorm):
    def forward(self, x):
        return 2 * super().forward(x)


class OwnLinear(nn.Linear):
    def forward(self, x):
        return super().forward(x).sin()


class OwnActivation(nn.Module):
    def forward(self, x):
        return x.sin()


class OwnPosition(Rotary):
    def rotary(self, positions, head_dim):
        return super().rotary(positions * 3, head_dim)


def with_linear():
    backbone = stack()
    backbone.blocks[1].mlp.up_proj = OwnLinear(24, 96)
    return backbone


def parametrized():
    backbone = stack()
    nn.utils.parametrizations.weight_norm(backbone.blocks[0].mlp.up_proj)
    return backbone


COMPOSITIONS = {
    "recipe text/char-lm": lambda: stack(
        partial(
            PreNormBlock,
            norm=UNBIASED,
            attention=partial(
                MultiHeadAttention, bias=False, qk_norm=UNBIASED, convolution=CausalConvolution
            ),
            mlp=partial(MLP, activation=ReLUSquared, bias=False),
        ),
        norm=UNBIASED,
        position=Rotary(),
    ),
    "post-norm": lambda: stack(PostNormBlock, norm=nn.Identity, input_norm=nn.LayerNorm),
    "parallel, one norm": lambda: stack(
        partial(ParallelBlock, shared_norm=True), heads=2, position=Rotary()
    ),
    "PaLM": lambda: stack(
        partial(
            ParallelBlock,
            attention=partial(MultiHeadAttention, num_kv_heads=1, bias=False),
            mlp=GatedMLP,
        ),
        position=Rotary(),
    ),
    "grouped heads": lambda: stack(attended(num_kv_heads=2), heads=6, position=Rotary()),
    "grouped, norm over all heads": lambda: stack(
        attended(num_kv_heads=2, head_dim=6, qk_norm=nn.RMSNorm, qk_norm_level="all"),
        heads=4,
        position=Rotary(),
    ),
    "gate": lambda: stack(attended(output_gate="elementwise", num_kv_heads=1)),
    "gate of heads": lambda: stack(attended(output_gate="headwise", head_dim=6), position=Rotary()),
    "partial and scaled rotary": lambda: stack(
        position=Rotary(share=0.5, scaling=LLaMA3Scaling(original_max_tokens=16))
    ),
    "rotary with a factor": lambda: stack(
        position=Rotary(scaling=YaRNScaling(4.0, original_max_tokens=16))
    ),
    "layers unlike": lambda: stack(
        [PreNormBlock, PostNormBlock], position=[Rotary(base=100), None]
    ),
    "residuals": lambda: stack(
        partial(PreNormBlock, residual=partial(Residual, layer_scale=0.7, norm=nn.LayerNorm))
    ),
    "branches with a scale": lambda: stack(
        partial(PreNormBlock, residual=partial(Residual, scale=0.3))
    ),
    "branches with both scales": lambda: stack(
        partial(PreNormBlock, residual=partial(Residual, layer_scale=0.7, scale=0.3))
    ),
    "temperature": lambda: stack(
        attended(mechanism=partial(ScaledDotProductAttention, temperature=0.9))
    ),
    "quick gelu": lambda: stack(partial(PreNormBlock, mlp=partial(MLP, activation=QuickGELU))),
    "gated": lambda: stack(
        partial(PreNormBlock, mlp=partial(GatedMLP, activation=nn.Sigmoid, bias=True))
    ),
    "own norm": lambda: stack(partial(PreNormBlock, norm=OwnNorm)),
    "own last norm": lambda: stack(norm=OwnNorm),
    "own activation": lambda: stack(
        partial(PreNormBlock, mlp=partial(MLP, activation=OwnActivation))
    ),
    "own rotary position": lambda: stack(position=OwnPosition()),
    "own linear layer": with_linear,
    "parametrized": parametrized,
    "experts": lambda: stack(partial(PreNormBlock, mlp=partial(MixtureOfExperts, num_experts=4))),
    "kernel of 2": lambda: stack(attended(convolution=partial(CausalConvolution, kernel_size=2))),
}
EMBEDDERS = {
    "learned positions": {"position": partial(Learned, sizes=[31])},
    "narrow embeddings": {"embedding": EmbeddingSettings(embedding_dim=10)},
    "embeddings with a scale": {"embedding": EmbeddingSettings(embedding_scale=0.4)},
}
HEADS = {
    "scaled and bounded logits": NextToken(logit_scale=0.7, softcap=2.0),
    "tied with biases, scaled and bounded": NextToken(
        tied=True, tied_bias=True, logit_scale=0.3, softcap=2.0
    ),
}
SUPPORTED = [
    *PRESETS,
    *COMPOSITIONS,
    *EMBEDDERS,
    *HEADS,
    "tied beside sinusoids",
    "no axes",
    "normalised embeddings",
]


def sharpened(model: Model) -> Model:
    """Weights of which the context decides: those of a new model hardly differ from token to token."""
    for p in model.parameters():
        if p.ndim == 2:
            nn.init.normal_(p, std=p.shape[1] ** -0.5)
        elif p.ndim == 1:
            nn.init.normal_(p, mean=p.detach().mean(), std=0.1)
        elif p.ndim == 3:  # of a convolution
            nn.init.normal_(p, std=0.5)
    nn.init.normal_(model.embedder.content.weight)
    return model.eval()


def model_of(name: str, **settings) -> Model:
    torch.manual_seed(0)
    if name in PRESETS:
        published = PUBLISHED[name]
        objective = NextToken(tied=True)
        return sharpened(
            Model(
                TokenSpec(vocab_size=VOCAB),
                published.build(),
                objective,
                position=published.position,
            )
        )
    num_axes = 0 if name == "no axes" else 1
    objective = HEADS.get(name, NextToken(tied=name == "tied beside sinusoids"))
    backbone = COMPOSITIONS.get(name, stack)()
    settings = {**EMBEDDERS.get(name, {}), **settings}
    model = Model(TokenSpec(vocab_size=VOCAB, num_axes=num_axes), backbone, objective, **settings)
    if name == "normalised embeddings":
        model.embedder.norm = nn.LayerNorm(model.embedder.embedding_dim)
    return sharpened(model)


@pytest.fixture
def num_packed(monkeypatch):
    """Calls of the packed step."""
    calls, step = [], PackedStep.__call__

    def counted(self, *args):
        calls.append(self)
        return step(self, *args)

    monkeypatch.setattr(PackedStep, "__call__", counted)
    return calls


def without_packing(model: Model) -> Model:
    """The same model; a hook that changes nothing is enough for its modules to run."""
    other = copy.deepcopy(model)
    other.register_forward_hook(lambda module, args, output: None)
    return other


@torch.inference_mode()
def logits_side_by_side(
    model, other, prompts, *, reordered=(), context_length=None, steps=19, use_cache=True
):
    """Pairs of logits of two models, which continue with the ids that the second finds likeliest."""
    settings = {"context_length": context_length}
    state = DecodingState(model, prompts, steps, **settings)
    witness = DecodingState(other, prompts, steps, use_cache=use_cache, **settings)
    for i in range(steps):
        got, right = state.next_logits(), witness.next_logits()
        yield got, right
        ids = right.argmax(dim=-1)
        if i in reordered:
            rows = torch.tensor(reordered[i], device=state.device)
            state.reorder(rows)
            witness.reorder(rows)
            ids = ids[rows]
        state.append(ids)
        witness.append(ids)


@pytest.mark.parametrize("name", slow_in(SUPPORTED, "PaLM"))
def test_the_packed_step_gives_the_logits_of_the_modules(name, num_packed):
    """The modules run over each whole sequence, without a cache."""
    model = model_of(name)
    other = without_packing(model)
    for prompts, reordered in (
        (RAGGED[:1], {}),
        (RAGGED, {4: [2, 0, 0, 1], 5: [3, 1, 1, 0], 9: [1, 2]}),
    ):
        for context_length in (None, 7):
            num_packed.clear()
            settings = {
                "reordered": reordered,
                "context_length": context_length,
                "use_cache": False,
            }
            pairs = list(logits_side_by_side(model, other, prompts, **settings))
            assert len({tuple(right[0].tolist()) for _, right in pairs}) > 1
            assert len(num_packed) == (18 if context_length is None else len(num_packed)) > 5
            for got, right in pairs:
                assert_close(got, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layer_scale", [None, 0.7])
@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.Identity])
def test_layer_scale_and_the_last_norm_are_packed_each_by_itself(layer_scale, norm, num_packed):
    torch.manual_seed(0)
    block = partial(PreNormBlock, residual=partial(Residual, layer_scale=layer_scale))
    model = sharpened(Model(TokenSpec(vocab_size=VOCAB), stack(block, norm=norm), NextToken()))
    for got, right in logits_side_by_side(
        model, without_packing(model), RAGGED, steps=MIN_STEPS + 2
    ):
        assert_close(got, right, rtol=1e-4, atol=1e-4)
    assert num_packed


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("strategy", [GREEDY, Sampling(seed=3, top_k=7), BeamSearch(3)])
def test_the_packed_step_changes_no_id(name, strategy, num_packed):
    model = model_of(name)
    got = generate(model, RAGGED, 17, strategy=strategy, stop=[1])
    assert num_packed
    for ids, right in zip(
        got, generate(model, RAGGED, 17, strategy=strategy, stop=[1], use_cache=False)
    ):
        assert ids.equal(right)


@pytest.mark.parametrize(
    "name", slow_in(SUPPORTED, *{*SUPPORTED} - {"gpt_nano", "recipe text/char-lm"})
)
def test_the_step_of_a_graph_gives_the_same_logits(name, monkeypatch, num_packed):
    """A CUDA graph replays a step of constant shapes, on buffers that stay where they are. Here it runs on the CPU."""
    monkeypatch.setattr(decoders, "PackedStep", partial(PackedStep, static=True))
    model = model_of(name)
    reordered = {4: [2, 0, 0, 1], 5: [3, 1, 1, 0], 9: [1, 2], 12: [1, 0, 1]}
    for context_length in (None, 7):
        settings = {"reordered": reordered, "context_length": context_length}
        for got, right in logits_side_by_side(model, without_packing(model), RAGGED, **settings):
            assert_close(got, right, rtol=1e-4, atol=1e-4)
    assert num_packed
    assert all(step.is_static for step in num_packed)


def test_buffers_of_a_graph_stay_where_they_are_while_the_batch_does_not_grow():
    model = model_of("recipe text/char-lm")
    with torch.inference_mode():
        decoder, state = (
            Decoder(PackedStep(model, 3, 29, static=True)),
            DecodingState(model, RAGGED, 19),
        )
        state.append(state.next_logits().argmax(dim=-1))
        cache = decoder.state(state._cache, state._positions())
        graph, addresses = cache.graph, [x.data_ptr() for x in leaves(cache.state.layers)]
        for rows in ([2, 0, 0], [1, 0], [0, 1, 1]):
            cache.reorder(torch.tensor(rows))
            assert cache.graph is graph
            assert addresses == [x.data_ptr() for x in leaves(cache.state.layers)]
        cache.reorder(torch.tensor([2, 0, 1, 1]))
        assert cache.graph is None  # it would read and write three sequences


@pytest.mark.parametrize("name", ["learned positions", "recipe text/char-lm"])
def test_a_decoder_that_is_kept_reads_weights_and_prompts_anew(name, monkeypatch):
    model = model_of(name)
    kept = Decoder(PackedStep(model, 3, 29, static=True))
    monkeypatch.setattr(decode, "find_decoder", lambda *given: kept)
    first = columns(model, RAGGED, 17, sampling=GREEDY)
    for prompts in (RAGGED, RAGGED[::-1], RAGGED[:2]):
        for p in model.parameters():
            nn.init.normal_(p, std=0.5)
        got = columns(model, prompts, 17, sampling=GREEDY)
        assert got.equal(columns(model, prompts, 17, sampling=GREEDY, use_cache=False))
        assert not got.equal(first[: len(prompts)])


def error(got, right):
    return float((got.float() - right.float()).norm() / right.float().norm())


@pytest.mark.parametrize("name", slow_in(["gpt_nano", "PaLM", "recipe text/char-lm"], "PaLM"))
def test_in_bfloat16_it_is_as_close_to_float32_as_the_modules_are(name, num_packed):
    model = model_of(name)
    low = copy.deepcopy(model).to(torch.bfloat16)
    low_modules = without_packing(low)
    packed_errors, module_errors = (
        [error(got, right) for got, right in logits_side_by_side(m, without_packing(model), RAGGED)]
        for m in (low, low_modules)
    )
    assert len(num_packed) == 18
    assert 0 < max(packed_errors) < 2 * max(module_errors) < 0.5
    steps = generate(low, RAGGED, 11, strategy=GREEDY)
    assert [len(ids) for ids in steps] == [11, 11, 11]


def test_float64_keeps_its_precision(num_packed):
    model = model_of("recipe text/char-lm").double()
    for got, right in logits_side_by_side(model, without_packing(model), RAGGED):
        assert got.dtype == torch.float64
        assert_close(got, right, rtol=1e-6, atol=1e-6)  # rotary angles are in float32 in both
    assert len(num_packed) == 18


def test_weights_that_changed_between_two_generations_are_seen(num_packed):
    model = model_of("gpt_nano")
    before = columns(model, RAGGED, 17, sampling=GREEDY)
    for p in model.parameters():
        nn.init.normal_(p, std=0.5)
    after = columns(model, RAGGED, 17, sampling=GREEDY)
    assert len(num_packed) == 32
    assert not after.equal(before)
    assert after.equal(columns(model, RAGGED, 17, sampling=GREEDY, use_cache=False))


class OwnAttention(ScaledDotProductAttention):
    def forward(self, q, k, v, context, cache=None):
        return super().forward(q.sin(), k, v, context, cache)


class OwnBlock(PreNormBlock):
    def forward(self, x, context, cache=None):
        return super().forward(x, context, cache).cos()


def with_forward(model):
    mlp = model.backbone.blocks[1].mlp
    mlp.forward = lambda x: -MLP.forward(mlp, x)


UNKNOWN = {
    "mechanism": lambda: stack(attended(mechanism=OwnAttention)),
    "softcap": lambda: stack(attended(mechanism=partial(ScaledDotProductAttention, softcap=2.0))),
    "sinks": lambda: stack(attended(mechanism=partial(ScaledDotProductAttention, sinks="zero"))),
    "bias": lambda: stack(position=ALiBi()),
    "block": lambda: stack(OwnBlock),
}
ALTERED = {
    "hook": lambda model: model.backbone.blocks[1].mlp.register_forward_hook(
        lambda module, args, output: -output
    ),
    "hook before": lambda model: model.backbone.norm.register_forward_pre_hook(
        lambda module, args: (args[0].sin(),)
    ),
    "forward": with_forward,
    "two dtypes": lambda model: model.backbone.norm.double(),
    "compiled": lambda model: model.backbone.blocks[0].compile(backend="eager"),
}


@pytest.mark.parametrize("name", slow_in([*UNKNOWN, *ALTERED], "compiled"))
def test_a_part_that_is_not_known_runs_as_modules(name, num_packed):
    torch.manual_seed(0)
    model = sharpened(Model(TokenSpec(vocab_size=VOCAB), UNKNOWN.get(name, stack)(), NextToken()))
    plain = columns(model, RAGGED, 11, sampling=GREEDY)
    assert bool(num_packed) == (name in ALTERED)
    num_packed.clear()
    if name in ALTERED:
        ALTERED[name](model)
    with torch.inference_mode():
        assert find_decoder(model, 3, 29) is None
    if name == "two dtypes":  # which no product takes
        return
    got = columns(model, RAGGED, 11, sampling=GREEDY)
    assert not num_packed
    assert got.equal(columns(model, RAGGED, 11, sampling=GREEDY, use_cache=False))
    assert name not in ("hook", "hook before", "forward") or not got.equal(plain)


def test_a_hook_on_all_modules_sees_every_step(num_packed):
    model, seen = model_of("gpt_nano"), []
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, args, output: seen.append(type(module))
    )
    try:
        columns(model, RAGGED, 11, sampling=GREEDY)
    finally:
        handle.remove()
    assert seen.count(Model) == 11
    assert not num_packed


def test_an_encoder_decoder_runs_as_modules():
    with torch.inference_mode():
        assert find_decoder(generating_model("Transformer, Transformer"), 3, 29) is None


def test_gradients_dropout_and_autocast_are_left_to_the_modules():
    model = model_of("gpt_nano")
    assert find_decoder(model, 3, 29) is None  # gradients are on
    with torch.no_grad():
        assert find_decoder(model, 3, 29) is not None
        with torch.autocast("cpu", torch.bfloat16):
            assert find_decoder(model, 3, 29) is None
        model.train()
        assert find_decoder(model, 3, 29) is None


def num_returns(model, num_new):
    """How often functions of seqkit return while so many tokens are generated."""
    found = 0

    def count(frame, event, arg):
        nonlocal found
        found += event == "return" and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(count)
    try:
        generate(model, RAGGED[:1], num_new, strategy=GREEDY)
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("depth", [1, 2])
def test_a_token_takes_six_functions_and_five_of_each_layer(depth):
    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, num_kv_heads=2))
    backbone = Transformer(24, depth, num_heads=6, causal=True, block=block, position=Rotary())
    model = Model(TokenSpec(vocab_size=VOCAB), backbone, NextToken()).eval()
    assert num_returns(model, 24) - num_returns(model, 12) <= 12 * (6 + 5 * depth)


def test_few_steps_are_not_worth_packing(num_packed):
    model = model_of("gpt_nano")
    columns(model, RAGGED, MIN_STEPS, sampling=GREEDY)
    assert not num_packed
    columns(model, RAGGED, MIN_STEPS + 1, sampling=GREEDY)
    assert len(num_packed) == MIN_STEPS
