"""Our Transformer equals Hugging Face's models like LLaMA, with the backbones of docs/families.md.

Mistral (windows), Qwen2 (layers with and without windows, biases; YaRN), Qwen3 (norms of queries and keys, wide heads),
LLaMA 3.1 (rescaled frequencies), OLMo-2 (norms of the branches' outputs).
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers
from families import family
from parity import SLACK, alone, assert_equal, randomized, texts
from weights import LLAMA_NORMS, llama_like
from whole import assert_same_generation

from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.objectives import NextToken

VOCAB, INNER = 29, 43


@dataclass(frozen=True)
class Case:
    """name: of their classes. settings: of their config. norms: of a layer, our names and theirs."""

    name: str
    settings: dict[str, Any]
    norms: dict[str, str]

    @property
    def head_dim(self) -> int:
        return self.settings.get(
            "head_dim", self.settings["hidden_size"] // self.settings["num_attention_heads"]
        )


def case(name, sizes, *, theta=10_000.0, eps=1e-6, rope=None, norms=LLAMA_NORMS, **settings):
    """sizes: width, depth, heads and key/value heads."""
    dim, depth, heads, kv_heads = sizes
    settings |= {"hidden_size": dim, "num_hidden_layers": depth, "num_attention_heads": heads}
    settings |= {"num_key_value_heads": kv_heads, "rms_norm_eps": eps, "tie_word_embeddings": False}
    settings["rope_parameters"] = {"rope_type": "default", "rope_theta": theta} | (rope or {})
    return Case(name, settings, norms)


LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
BRANCH_NORMS = {
    "attention_residual.norm": "post_attention_layernorm",
    "mlp_residual.norm": "post_feedforward_layernorm",
}
QWEN2_WINDOWS = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}
CASES = {
    "Mistral": case("Mistral", (30, 3, 3, 1), sliding_window=5),
    "Qwen2": case("Qwen2", (36, 2, 6, 2), theta=1e6, **QWEN2_WINDOWS),
    "Qwen2.5 with YaRN": case("Qwen2", (48, 3, 3, 1), theta=1e6, rope=YARN),
    "Qwen3": case("Qwen3", (30, 3, 4, 2), theta=1e6, head_dim=14),
    "LLaMA 3.1": case("Llama", (48, 3, 3, 1), theta=5e5, eps=1e-5, rope=LLAMA3),
    "OLMo-2": case("Olmo2", (30, 3, 3, 1), theta=5e5, norms=BRANCH_NORMS),
}
GRADIENTS, HALF_PRECISION = ["Qwen2", "OLMo-2"], ["Qwen2", "LLaMA 3.1"]


def theirs(case):
    config = getattr(transformers, f"{case.name}Config")(
        vocab_size=VOCAB, intermediate_size=INNER, bos_token_id=None, eos_token_id=None, pad_token_id=None,
        initializer_range=0.1, attn_implementation="eager", **case.settings,
    )  # fmt: skip
    return randomized(getattr(transformers, f"{case.name}ForCausalLM")(config))


def ours(name, overrides=None):
    objective = NextToken(bias=False)
    return Model(TokenSpec(vocab_size=VOCAB), family(name, overrides), objective).eval()


def weights(case, theirs):
    """Parameters or gradients of theirs by name, under our names."""
    return llama_like(theirs, case.head_dim, case.norms)


@pytest.fixture
def pair(request):
    name = request.param
    reference, model = theirs(CASES[name]), ours(name)
    model.load_state_dict(weights(CASES[name], dict(reference.named_parameters())))
    return reference, model


every_family = pytest.mark.parametrize("pair", CASES, indirect=True)


@every_family
@pytest.mark.parametrize("lengths", [[41, 41], [37, 71, 5]])
def test_logits_with_padding_and_without(pair, lengths):
    reference, model = pair
    batch = texts(lengths, VOCAB)
    with torch.no_grad():
        assert_equal(model(batch), alone(reference, batch), batch.valid)


@every_family
def test_both_have_as_many_parameters(pair):
    reference, model = pair
    assert model.num_parameters == sum(p.numel() for p in reference.parameters())


FULL = {
    "attention": {"num_kv_heads": 2, "out_bias": False},
    "mlp": {"type": "GatedMLP", "width": INNER},
    "norm": {"type": "RMSNorm", "eps": 1e-6},
}
LOCAL = FULL | {
    "attention": FULL["attention"] | {"mechanism": {"type": "SlidingWindowAttention", "size": 7}}
}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("Mistral", {"block.attention.mechanism.size": 6}),
        ("Qwen2", {"block": [LOCAL, FULL]}),
        ("Qwen2", {"position.base": 10_000}),
        ("Qwen2.5 with YaRN", {"position.scaling": None}),
        ("Qwen2.5 with YaRN", {"position.scaling.attention_factor": 1.0}),
        ("Qwen2.5 with YaRN", {"position.scaling.beta_slow": 2.0}),
        ("Qwen3", {"block.attention.qk_norm": None}),
        ("LLaMA 3.1", {"position.scaling": None}),
        ("LLaMA 3.1", {"position.scaling.original_max_tokens": 61}),
        ("OLMo-2", {"block.attention.qk_norm": None}),
        ("OLMo-2", {"block.residual.norm": None}),
    ],
)
def test_the_comparison_notices_another_composition(name, change):
    reference, model = theirs(CASES[name]), ours(name, change)
    model.load_state_dict(weights(CASES[name], dict(reference.named_parameters())), strict=False)
    batch = texts([41, 41], VOCAB)
    with torch.no_grad(), pytest.raises(AssertionError, match="not close"):
        assert_equal(model(batch), alone(reference, batch))


@every_family
def test_both_write_the_same_tokens(pair):
    reference, model = pair
    for net in (reference.model, model.backbone):  # so that the context decides on the next token
        net.norm.weight.data.copy_(torch.linspace(-3.0, 3.0, len(net.norm.weight)))
    assert_same_generation(model, reference, [torch.randint(VOCAB, (n,)) for n in (13, 1, 5)])


@pytest.mark.parametrize("pair", GRADIENTS, indirect=True)
def test_gradients_of_every_parameter(pair, request):
    reference, model = pair
    batch = texts([37, 71, 5], VOCAB)
    direction = torch.randn(3, 71, VOCAB)[batch.valid]
    for outputs in (alone(reference, batch), model(batch)):
        (outputs[batch.valid] * direction).sum().backward()
    case = CASES[request.node.callspec.params["pair"]]
    right = weights(case, {name: p.grad for name, p in reference.named_parameters()})
    got = {name: p.grad for name, p in model.named_parameters()}
    assert got.keys() == right.keys()
    for name, gradient in right.items():
        assert (got[name] - gradient).norm() <= SLACK * gradient.norm(), name


@pytest.mark.parametrize("pair", HALF_PRECISION, indirect=True)
def test_half_precision_is_no_less_exact(pair):
    """Theirs keeps its rotary frequencies in float32, as it does where weights are loaded in half precision."""
    reference, model = pair
    batch = texts([71] * 16, VOCAB)
    with torch.no_grad():
        right = alone(reference, batch)
        half = deepcopy(reference).to(torch.bfloat16)
        half.model.rotary_emb.inv_freq = reference.model.rotary_emb.inv_freq
        error_of_theirs = (alone(half, batch).float() - right).abs().mean()
        error = (model.to(torch.bfloat16)(batch).float() - right).abs().mean()
    assert 0 < error <= 1.25 * error_of_theirs
