"""Scaled dot products are the soft dictionary, whatever is added; every mechanism's weights are what it reads by."""

import inspect
import math

import pytest
import torch
from torch.testing import assert_close

from seqkit.contract import Embedded, Links
from seqkit.layers.distance import ALiBi, RelativeEmbedding
from seqkit.layers.mechanism import ScaledDotProduct, softmax
from seqkit.layers.reading import FEATURES, Reading
from seqkit.layers.scores import look_up
from seqkit.mask import who_reads_memory, who_reads_whom
from seqkit.registry import parts

SETTINGS = {
    "k": 3,
    "size": 3,
    "max_tokens": 11,
    "rank": 5,
    "num_features": 13,
    "bucket_size": 4,
    "num_rounds": 2,
}
"""What a mechanism is built with where its constructor wants it, by the parameter's name."""

WITHOUT_WEIGHTS: set[str] = set()
"""Mechanisms that say by ValueError that they have no weights."""


def heads(num_heads, groups, n=5, m=7, c=3):
    return torch.randn(2, num_heads, n, c), torch.randn(2, groups, m, c), torch.randn(2, groups, m, c)


# ── scaled dot products ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("temperature", [None, 0.3, 11.0])
@pytest.mark.parametrize("groups", [4, 2, 1])
def test_every_head_is_a_soft_dictionary(temperature, groups):
    (q, k, v), attend = heads(4, groups), torch.rand(2, 4, 5, 7) < 0.6
    attend[1, 2, 3] = False
    mechanism = ScaledDotProduct(4, 3, temperature=temperature)
    got, weights = mechanism(q, k, v, Reading(attend)), mechanism.weights(q, k, Reading(attend))
    for b in range(2):
        for h in range(4):
            g = h * groups // 4
            how = {"temperature": temperature or 3**0.5, "attend": attend[b, h]}
            assert_close(got[b, h], look_up(q[b, h], k[b, g], v[b, g], **how))
            assert_close(weights[b, h], look_up(q[b, h], k[b, g], torch.eye(7), **how))


def test_a_bias_and_embedded_distances_join_the_scores():
    (q, k, v), bias, relative = heads(4, 2), torch.randn(2, 4, 5, 7), torch.randn(2, 5, 7, 3)
    bias[0, 1, 2, 3] = -torch.inf
    got = ScaledDotProduct(4, 3, temperature=0.7)(q, k, v, Reading(bias, relative=relative))
    for b, h, i in ((0, 1, 2), (1, 3, 4), (0, 0, 0)):
        scores = [float(q[b, h, i] @ (k[b, h // 2, j] + relative[b, i, j]) / 0.7 + bias[b, h, i, j]) for j in range(7)]
        weights = torch.tensor([math.exp(s) for s in scores])
        assert_close(got[b, h, i], weights / weights.sum() @ v[b, h // 2])


@pytest.mark.parametrize("told", [False, True])
def test_causal_reads_the_past_with_embedded_distances_too(told):
    q, k, v = heads(4, 4, n=7)
    relative = torch.randn(2, 7, 7, 3) if told else None
    got = ScaledDotProduct(4, 3)(q, k, v, Reading(causal=True, relative=relative))
    for i in range(7):
        keys = k[:, :, : i + 1] if relative is None else k[:, :, : i + 1] + relative[:, None, i, : i + 1]
        assert_close(got[:, :, i : i + 1], look_up(q[:, :, i : i + 1], keys, v[:, :, : i + 1], temperature=3**0.5))


def test_towards_temperature_0_each_query_gets_the_value_of_its_best_key():
    q, k, v = heads(4, 4)
    best = (q @ k.mT).argmax(dim=-1)
    right = torch.stack([v[b, h, best[b, h]] for b in range(2) for h in range(4)]).unflatten(0, (2, 4))
    assert_close(ScaledDotProduct(4, 3, temperature=1e-5)(q, k, v, Reading()), right)


def test_dropout_takes_weights_out_and_makes_up_for_them_while_training():
    q, k, _ = heads(4, 4)
    mechanism = ScaledDotProduct(4, 3, dropout=0.25)
    weights = mechanism.weights(q, k, Reading())
    got = mechanism(q, k, torch.eye(7).expand(2, 4, 7, 7), Reading())  # values that show the weights
    assert_close(got, torch.where(got > 0, weights / 0.75, 0.0))
    assert 0.1 < float((got == 0).float().mean()) < 0.4
    mechanism.eval()
    assert_close(mechanism(q, k, torch.eye(7).expand(2, 4, 7, 7), Reading()), weights)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"temperature": 0.0}, r"temperature=0.0 divides the scores; make it larger than 0"),
        ({"temperature": math.nan}, "temperature=nan divides the scores"),
        ({"dropout": 1.0}, r"dropout=1.0 is a share of weights; make it at least 0 and below 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(how, message):
    with pytest.raises(ValueError, match=message):
        ScaledDotProduct(4, 3, **how)


def test_nothing_to_read_gives_zeros_and_finite_gradients():
    scores = torch.randn(3, 5)
    scores[1] = -torch.inf
    scores.requires_grad_()
    weights = softmax(scores)
    assert_close(weights[1], torch.zeros(5))
    assert_close(weights[[0, 2]], scores[[0, 2]].exp() / scores[[0, 2]].exp().sum(dim=-1, keepdim=True))
    (weights @ torch.randn(5)).sum().backward()
    assert scores.grad[[0, 2]].abs().min() > 0
    assert_close(scores.grad[1], torch.zeros(5))


# ── every registered mechanism ───────────────────────────────────────────────────────────────────────────────────────


def build(name):
    """Four heads of six channels in float64, evaluating."""
    made = parts("mechanism")[name].load()
    wanted = inspect.signature(made).parameters.values()
    wanted = [p.name for p in wanted if p.default is p.empty and p.name not in ("num_heads", "channels")]
    if unknown := set(wanted) - set(SETTINGS):
        pytest.fail(f"mechanism {name} wants {unknown}, which no test knows; add them to SETTINGS in {__file__}")
    return made(4, 6, **{key: SETTINGS[key] for key in wanted}).double().eval()


def reading(mechanism, needed):
    """Seven tokens and five, padded, read by heads of six channels as `needed` says."""
    valid = torch.arange(7) < torch.tensor([[7], [5]])
    positions = torch.arange(7.0).double().expand(2, 7)[..., None]
    links, bias = None, None
    if "links" in needed:
        edges = torch.tensor([[0, 1, 1, 4, 6, 7, 9, 10], [1, 0, 4, 1, 0, 9, 7, 11]])
        links, bias = Links(edges, torch.tensor([1, 1, 2, 2, 1, 2, 1, 1])), torch.randn(3, 4).double()
    segments = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1, 1]]) if "segments" in needed else None
    position = ALiBi() if "bias" in needed else RelativeEmbedding(6, max_distance=2) if "relative" in needed else None
    embedded = Embedded(torch.zeros(2, 7, 24).double(), positions, valid, links, bias, segments)
    if "source" in needed:
        memory = Embedded(embedded.hidden, positions, valid)
        return who_reads_memory(Embedded(embedded.hidden, positions, valid, memory=memory), dense=mechanism.dense)
    how = {"causal": "causal" in needed, "num_heads": 4, "channels": 6, "dense": mechanism.dense}
    return who_reads_whom(embedded, position=position, **how)


CASES = [
    {way, *extra}
    for way in ("both ways", "causal")
    for extra in ((), ("links",), ("segments",), ("bias",), ("relative",), ("groups",), ("links", "bias"))
] + [{"source"}, {"source", "groups"}]


@pytest.mark.parametrize("name", sorted(parts("mechanism")))
def test_weights_are_what_is_read_by(name):
    mechanism, checked = build(name), 0
    assert mechanism.honours <= set(FEATURES)
    for needed in CASES:
        if not needed <= mechanism.honours or (getattr(mechanism, "needs_links", False) and "links" not in needed):
            continue
        q, k, v = (x.double() for x in heads(4, 2 if "groups" in needed else 4, n=7, c=6))
        of = reading(mechanism, needed)
        if name in WITHOUT_WEIGHTS:
            with pytest.raises(ValueError):
                mechanism.weights(q, k, of)
            return
        with torch.no_grad():
            weights, read = mechanism.weights(q, k, of), mechanism(q, k, v, of)
        assert weights.shape == (2, 4, 7, 7)
        values = v.repeat_interleave(4 // v.shape[1], dim=1)
        for b, real in enumerate((7, 5)):  # what padding reads is nobody's business
            fault = f"{needed}: weights @ values is not what is read"
            assert_close((weights @ values)[b, :, :real], read[b, :, :real], msg=fault)
            assert not weights[b, :, :real, real:].any(), f"{needed}: padding is read"
        checked += 1
    assert checked, f"none of the cases fits what {name} honours"


def test_the_law_notices_weights_that_are_not_those_that_read(monkeypatch):
    even = torch.eye(7).double().expand(2, 4, 7, 7)
    monkeypatch.setattr(ScaledDotProduct, "weights", lambda self, q, k, reading: even)
    with pytest.raises(AssertionError, match="both ways"):
        test_weights_are_what_is_read_by("ScaledDotProduct")
