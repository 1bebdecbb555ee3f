"""Additive and top-k scores equal their formulas; the soft dictionary becomes a hard one."""

import math
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import Seq2Seq, Transformer
from seqkit.conformance import Reader, check_backbone, laws, made_up
from seqkit.contract import Embedded
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.distance import ALiBi, RelativeEmbedding
from seqkit.layers.position import Rotary
from seqkit.layers.reading import Reading
from seqkit.layers.scores import Additive, TopK, look_up


def heads(*groups, tokens=(5, 7)):
    """q [2 h 5 3] and k, v [2 g 7 3]."""
    h, g = groups
    n, m = tokens
    return torch.randn(2, h, n, 3), torch.randn(2, g, m, 3), torch.randn(2, g, m, 3)


def transformer(mechanism, depth=2, **how):
    attention = partial(Attention, mechanism=mechanism)
    return lambda dim, causal: Transformer(
        dim, depth, num_heads=3, causal=causal, block=partial(Block, attention=attention), **how
    )


# ── the soft dictionary ──────────────────────────────────────────────────────────────────────────────────────────────


def test_towards_temperature_0_a_query_gets_the_value_of_its_best_key():
    query, key, value = torch.randn(5, 3), torch.randn(7, 3), torch.randn(7, 11)
    best = value[(query @ key.T).argmax(dim=-1)]
    assert_close(look_up(query, key, value, temperature=1e-4), best)
    warm = [float((look_up(query, key, value, temperature=t) - best).abs().max()) for t in (1.0, 0.1, 0.01)]
    assert warm == sorted(warm, reverse=True)


def test_towards_temperature_infinity_it_gets_the_mean():
    query, key, value = torch.randn(5, 3), torch.randn(7, 3), torch.randn(7, 11)
    assert_close(look_up(query, key, value, temperature=1e9), value.mean(dim=0).expand(5, 11))


def test_between_it_gets_the_weighted_mean_of_what_it_may_read():
    query, key, value = torch.randn(2, 5, 3), torch.randn(2, 7, 3), torch.randn(2, 7, 11)
    attend = torch.rand(2, 5, 7) < 0.5
    attend[1, 2] = False
    got = look_up(query, key, value, temperature=0.7, attend=attend)
    for b in range(2):
        for i in range(5):
            weights = [math.exp(float(query[b, i] @ key[b, j]) / 0.7) * bool(attend[b, i, j]) for j in range(7)]
            right = sum((w * value[b, j] for j, w in enumerate(weights)), torch.zeros(11)) / (sum(weights) or 1.0)
            assert_close(got[b, i], right)


def test_a_temperature_of_0_is_refused():
    with pytest.raises(ValueError, match="temperature=0 divides the scores; make it larger than 0"):
        look_up(torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(1, 3), temperature=0)


# ── additive ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_additive_attention_is_bahdanaus():
    """exp(v . tanh(W s + U h)) over its sum, one head, with W and U the projections (appendix A.1.2)."""
    attention, state, read = Attention(7, 1, mechanism=lambda h, c: Additive(h, c)), torch.randn(7), torch.randn(5, 7)
    w, u, values = attention.qkv.weight.split(7)
    b, a, c = attention.qkv.bias.detach().normal_().split(7)
    scores = torch.stack([attention.mechanism.weigh[0] @ torch.tanh(w @ state + b + u @ x + a) for x in read])
    weights = scores.exp() / scores.exp().sum()
    right = attention.out(sum(weight * (values @ x + c) for weight, x in zip(weights, read)))
    assert_close(attention(state[None, None], Reading(), source=read[None])[0, 0], right)


def test_additive_scores_are_asked_by_head_with_shared_keys_and_distances():
    additive, (q, k, _) = Additive(4, 3), heads(4, 2)
    relative = torch.randn(2, 5, 7, 3)
    got = additive.weights(q, k, Reading(relative=relative))
    for b, h, i in ((0, 0, 0), (1, 1, 4), (0, 2, 3), (1, 3, 2)):
        scores = [additive.weigh[h] @ torch.tanh(q[b, h, i] + k[b, h // 2, j] + relative[b, i, j]) for j in range(7)]
        assert_close(got[b, h, i], torch.stack(scores).softmax(dim=0))


def test_additive_attention_cannot_be_turned():
    with pytest.raises(ValueError, match=r"Additive cannot turn queries and keys by position.*use the mechanism"):
        transformer(Additive, position=Rotary())(24, False)


# ── top k ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("k", [1, 2, 5, 7, 11])
def test_the_k_best_of_what_may_be_read_are_read_and_nothing_else(k):
    (q, keys, v), attend = heads(4, 2), torch.rand(2, 1, 5, 7) < 0.6
    attend[0, 0, 3] = False
    got = TopK(4, 3, k=k)(q, keys, v, Reading(attend))
    for b in range(2):
        for h in range(4):
            for i in range(5):
                scores = {j: float(q[b, h, i] @ keys[b, h // 2, j]) / 3**0.5 for j in range(7) if attend[b, 0, i, j]}
                best = sorted(scores, key=lambda j: -scores[j])[:k]
                total = sum(math.exp(scores[j]) for j in best)
                right = sum((math.exp(scores[j]) / total * v[b, h // 2, j] for j in best), torch.zeros(3))
                assert_close(got[b, h, i], right)


def test_the_best_are_chosen_after_bias_and_distances_are_added():
    (q, k, _), relative, bias = heads(4, 4), torch.randn(2, 5, 7, 3), torch.randn(2, 4, 5, 7)
    weights = TopK(4, 3, k=2).weights(q, k, Reading(bias, relative=relative))
    for b, h, i in ((0, 0, 0), (1, 3, 4), (0, 2, 3), (1, 1, 2)):
        scores = [float(q[b, h, i] @ (k[b, h, j] + relative[b, i, j]) / 3**0.5 + bias[b, h, i, j]) for j in range(7)]
        assert {j for j in range(7) if weights[b, h, i, j] > 0} == set(sorted(range(7), key=lambda j: -scores[j])[:2])


def test_keys_that_tie_are_all_read_wherever_they_stand():
    q, k = torch.ones(1, 1, 1, 3), torch.zeros(1, 1, 5, 3)
    k[0, 0, 2] = 1.0
    weights = TopK(1, 3, k=2).weights(q, k, Reading())[0, 0, 0]
    assert (weights > 0).all()  # one best, then four that share the second place
    assert len(set(weights[[0, 1, 3, 4]].tolist())) == 1
    assert (TopK(1, 3, k=1).weights(q, k, Reading())[0, 0, 0] > 0).tolist() == [False, False, True, False, False]


def test_as_many_as_there_are_is_plain_attention():
    x, plain = torch.randn(2, 5, 21), Attention(21, 3)
    chosen = Attention(21, 3, mechanism=partial(TopK, k=5))
    chosen.load_state_dict(plain.state_dict())
    assert_close(chosen(x, Reading(causal=True)), plain(x, Reading(causal=True)))


def test_k_of_0_is_refused():
    with pytest.raises(ValueError, match="k=0 keys to read leave nothing; make it at least 1"):
        TopK(3, 7, k=0)


# ── inside a backbone ────────────────────────────────────────────────────────────────────────────────────────────────

MECHANISMS = {"additive": Additive, "top-k": partial(TopK, k=5)}
"""k: more than any node of the made-up graphs may read, or a law would rightly miss what is not among the best."""


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
@pytest.mark.parametrize("position", [None, ALiBi, partial(RelativeEmbedding, 8, max_distance=2)])
def test_a_backbone_with_other_scores_keeps_the_laws(mechanism, position):
    check_backbone(lambda dim, causal: transformer(mechanism, position=position and position())(dim, causal))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("modality", ["text", "image", "series"])
def test_sharp_top_k_keeps_the_laws_that_do_not_ask_it_to_read_all(modality, causal):
    spec, examples = made_up()[modality]
    reader = Reader(spec, transformer(partial(TopK, k=2), position=Rotary())(24, causal))
    for law in (laws.padding_changes_nothing, laws.batch_mates_change_nothing, laws.padding_may_hold_anything):
        law(reader, examples)
    laws.packed_equals_separate(reader, examples)
    if causal:
        laws.no_token_reads_the_future(reader, examples)
        laws.step_by_step_equals_at_once(reader, examples)


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
def test_another_sequence_is_read_without_its_padding(mechanism):
    def part(**how):
        return transformer(mechanism)(24, **how)

    decoder = Transformer(
        24, 2, num_heads=3, causal=True,
        block=partial(Block, attention=partial(Attention, mechanism=mechanism), cross=True),
    )  # fmt: skip
    model = Seq2Seq(part(causal=False), decoder).double().eval()
    valid, shorter = torch.ones(1, 4, dtype=torch.bool), torch.tensor([[True] * 5 + [False] * 2])
    where, x, source = torch.zeros(1, 7, 1).double(), torch.randn(1, 4, 24).double(), torch.randn(1, 7, 24).double()
    source = source * shorter[..., None]

    def read(m):
        return model(Embedded(x, where[:, :4], valid, memory=Embedded(source[:, :m], where[:, :m], shorter[:, :m])))

    assert_close(read(7), read(5))
    assert (read(5) - read(4)).abs().max() > 1e-6


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
def test_gradients_are_right_and_finite_where_nothing_may_be_read(mechanism):
    built = mechanism(2, 3).double()
    q, k, v = (x.double().requires_grad_() for x in heads(2, 1))
    attend = torch.rand(2, 1, 5, 7) < 0.7
    attend[1, 0, 3] = False
    assert torch.autograd.gradcheck(lambda *qkv: built(*qkv, Reading(attend)), (q, k, v))


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
def test_single_precision_is_near_double(mechanism):
    built, qkv = mechanism(4, 3), heads(4, 4)
    single = built(*qkv, Reading())
    double = built.double()(*(x.double() for x in qkv), Reading())
    assert_close(single.double(), double, rtol=0, atol=5e-6)
