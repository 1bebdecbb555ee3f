"""Heads of docs/families.md give the logits of Hugging Face's, on padded batches."""

import re
from pathlib import Path

import pytest
import torch
from foreign_models import DECODERS, ENCODERS, VOCAB, saved
from parity import alone, assert_equal, doubled, randomized, texts
from transformers import ElectraConfig, GraniteConfig, GraniteForCausalLM
from transformers.models.electra.modeling_electra import ElectraForMaskedLM
from weights import llama_like
from whole import PADDED_OR_NOT

from seqkit.config import build, build_model, complete, load_yaml
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.nn.embedder import Embedder, EmbeddingSettings
from seqkit.nn.position.absolute import NoPosition
from seqkit.pretrained.folder import settings, weights

PAGE = Path(__file__).parents[2] / "docs" / "families.md"
LINES = dict(
    re.findall(
        r"^\| ([^|`]+) \| `(\{type: .+\})` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
)
MASKED, CLASSIFIER = "BERT, masked language model", "BERT and RoBERTa, classifier"
MODELS = {
    ("Bert", "ForMaskedLM"): (MASKED, {}),
    ("Roberta", "ForMaskedLM"): ("RoBERTa, masked language model", {}),
    ("Bert", "ForSequenceClassification"): (CLASSIFIER, {}),
    ("Roberta", "ForSequenceClassification"): (CLASSIFIER, {}),
}
"""By their names: the line of the page, and what is other in its transform."""


def objective_of(line, **transform):
    """The section `objective` of the page's line, with other settings of the transform."""
    found = load_yaml(LINES[line])
    return (
        {**found, "transform": {**found["transform"], **transform}}
        if "transform" in found
        else found
    )


def pair(folder, name, kind, objective):
    """Their model with random weights, and ours with a head of that objective and the same weights."""
    eps = {"layer_norm_eps": 1e-5} if name == "Roberta" else {}  # as its published models have it
    theirs = doubled(saved(folder, name, {**ENCODERS[name], **eps, "num_labels": 3}, kind))
    found = settings(folder, "Features")
    config = complete(
        {**found, "model": {**found["model"], "objective": objective}}, only=("tokenizer", "model")
    )
    built = build(config)
    if objective["type"] == "Classify":
        built.model["objective"].fit([0, 1, 2], ["a", "b", "c"])
    ours = build_model(built, built.tokenizer.spec).eval()
    held, _, _ = weights(folder, objective["type"])
    missing, unknown = ours.load_state_dict(held, strict=False)
    assert ({*missing} - {"head.table.weight"}, unknown) == (set(), [])
    if objective["type"] == "Classify":
        with torch.no_grad():  # else logits of few examples hardly differ
            for linear in (ours.head.linear, [*theirs.classifier.modules()][-1]):
                linear.weight.mul_(5)
    return theirs, ours


def padded(lengths, num_axes):
    """Random ids but the padding's, at positions 0, 1, 2, …, all of the first sentence."""
    ids = [torch.randint(2, VOCAB, (n,)) for n in lengths]
    positions = [
        torch.stack([torch.arange(float(n)), torch.zeros(n)], dim=1)[:, :num_axes] for n in lengths
    ]
    return TokenBatch.collate([Tokens(x, p) for x, p in zip(ids, positions)])


def assert_same(theirs, ours, lengths):
    batch = padded(lengths, ours.spec.num_axes)
    with torch.no_grad():
        # RoBERTa counts positions by the padding's id
        given = batch.content.masked_fill(~batch.valid, 1)
        right = theirs(given, attention_mask=batch.valid.long()).logits
        got = ours(batch)
    assert_equal(
        got,
        right,
        batch.valid if right.shape[:2] == batch.valid.shape and right.ndim == 3 else None,
    )


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
@pytest.mark.parametrize(("name", "kind"), MODELS)
def test_logits_of_a_published_head(tmp_path, name, kind, lengths):
    line, changes = MODELS[name, kind]
    theirs, ours = pair(tmp_path, name, kind, objective_of(line, **changes))
    assert_same(theirs, ours, lengths)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("ForMaskedLM", {"activation": {"type": "ReLU"}}),
        ("ForMaskedLM", {"norm": {"type": "LayerNorm", "eps": 0.1}}),
        ("ForSequenceClassification", {"activation": {"type": "ReLU"}}),
    ],
)
def test_the_comparison_notices_another_transform(tmp_path, kind, change):
    line, _ = MODELS["Bert", kind]
    theirs, ours = pair(tmp_path, "Bert", kind, objective_of(line, **change))
    with pytest.raises(AssertionError, match="not close"):
        assert_same(theirs, ours, [11, 19, 5])


def test_logits_of_electras_generator_from_its_hidden_states():
    config = ElectraConfig(vocab_size=VOCAB, embedding_size=10, hidden_size=24, num_hidden_layers=1,
                           num_attention_heads=3, intermediate_size=31)  # fmt: skip
    theirs = randomized(ElectraForMaskedLM(config))
    line = objective_of("ELECTRA, generator", width=10)
    model = {"objective": line, "backbone": {"type": "LSTM", "dim": 24}}
    objective = build(
        complete({"tokenizer": "Bytes", "model": model}, only=("tokenizer", "model"))
    ).model["objective"]
    head = objective.head(
        Embedder(
            TokenSpec(vocab_size=VOCAB, num_axes=0),
            24,
            embedding=EmbeddingSettings(embedding_dim=10),
            position=NoPosition,
        )
    )
    dense, norm = theirs.generator_predictions.dense, theirs.generator_predictions.LayerNorm
    mapped = {f"transform.linear.{end}": x for end, x in dense.state_dict().items()}
    mapped |= {f"transform.norm.{end}": x for end, x in norm.state_dict().items()}
    lm_head = theirs.generator_lm_head
    head.load_state_dict(mapped | {"table.weight": lm_head.weight, "bias": lm_head.bias})
    hidden = torch.randn(3, 5, 24)
    with torch.no_grad():
        assert_equal(head(hidden, None), lm_head(theirs.generator_predictions(hidden)))


@pytest.mark.parametrize("lengths", PADDED_OR_NOT)
def test_logits_of_granite(lengths):
    """Its other multipliers at what LLaMA has, so that the logits' is left."""
    config = GraniteConfig(**DECODERS["SmolLM3"], embedding_multiplier=1.0, residual_multiplier=1.0,
                           attention_multiplier=8**-0.5, logits_scaling=1 / 0.0625,
                           attn_implementation="eager")  # fmt: skip
    theirs = randomized(GraniteForCausalLM(config), std=0.5)
    backbone = {
        "type": "Transformer", "dim": 24, "depth": 4, "num_heads": 3, "causal": True, "position": "Rotary",
        "norm": {"type": "RMSNorm", "eps": 1e-6},
        "block": {
            "type": "PreNormBlock", "norm": {"type": "RMSNorm", "eps": 1e-6},
            "attention": {"num_kv_heads": 1, "bias": False}, "mlp": {"type": "GatedMLP", "width": 43},
        },
    }  # fmt: skip
    model = {"objective": load_yaml(LINES["Granite, Cohere"]), "backbone": backbone}
    built = build(complete({"tokenizer": "Bytes", "model": model}, only=("tokenizer", "model")))
    ours = build_model(built, TokenSpec(vocab_size=VOCAB)).eval()
    # it is the table
    held = {name: x for name, x in theirs.state_dict().items() if name != "lm_head.weight"}
    ours.load_state_dict(llama_like(held, 8))
    batch = texts(lengths, VOCAB)
    with torch.no_grad():
        assert_equal(ours(batch), alone(theirs, batch), batch.valid)
