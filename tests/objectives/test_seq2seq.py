"""Seq2Seq: teacher forcing by hand, smoothing in training only, error rates by brute force, greedy decoding."""

import json
import math
from functools import lru_cache, partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import GRU, EncoderDecoder, RNNDecoder, Transformer
from seqkit.data.dataset import collate_targets
from seqkit.errors import DataError
from seqkit.generation.beam_search import BeamSearch, beam_search
from seqkit.interfaces import IGNORE, Backbone, TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.embedder import Embedder
from seqkit.nn.position.absolute import Learned
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import NextToken, Seq2Seq
from seqkit.objectives.metrics import SequenceErrorRate, TokenErrorRate
from seqkit.tokenizers import Bytes, Characters, Patches, Words

LABELS = [["K AE T", "K AA T"], "AA K S", ["T"]]
"""Ids of Words on these: 1 K, 2 T, 3 AA, 4 AE, 5 S by frequency, then spelling; bos 6, eos 7."""


def fitted(**settings):
    objective = Seq2Seq(Words(), **settings)
    objective.fit(LABELS, None)
    return objective


def source(*words):
    letters = Characters("acktsx")
    return TokenBatch.collate([letters.encode(word) for word in words])


def labels(objective, *given):
    return collate_targets([objective.encode_target(label) for label in given])


def model(objective, backbone=None):
    return Model(
        Characters("acktsx").spec, backbone or EncoderDecoder(GRU(12, 1), RNNDecoder(12)), objective
    ).eval()


# ── teacher forcing ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_target_has_a_row_for_each_reference():
    objective = fitted()
    assert objective.encode_target(LABELS[0]).tolist() == [[1, 4, 2], [1, 3, 2]]
    assert labels(objective, *LABELS).tolist() == [
        [[1, 4, 2], [1, 3, 2]],
        [[3, 1, 5], [IGNORE] * 3],
        [[2, IGNORE, IGNORE], [IGNORE] * 3],
    ]


@pytest.mark.parametrize("label", [7, [], ["a", 3], None, ""])
def test_a_label_that_is_no_text_is_refused(label):
    with pytest.raises(DataError, match=r"a label is|the text is empty"):
        fitted().encode_target(label)


def test_the_input_starts_with_bos_and_the_target_ends_with_eos():
    objective, batch = fitted(), source("cat", "ax", "t")
    task = objective.prepare(batch, labels(objective, *LABELS))
    assert task.batch.content.tolist() == [[6, 1, 4, 2], [6, 3, 1, 5], [6, 2, 0, 0]]
    assert task.target.tolist() == [[1, 4, 2, 7], [3, 1, 5, 7], [2, 7, IGNORE, IGNORE]]
    assert task.batch.valid.sum(dim=1).tolist() == [4, 4, 2]
    assert task.batch.positions[..., 0].tolist() == [[0, 1, 2, 3]] * 3
    assert task.batch.source is batch
    assert task.masked is None


def test_columns_that_only_another_reference_needs_are_dropped():
    objective = fitted()
    task = objective.prepare(source("t", "a"), labels(objective, ["T", "T AA K S"], "K"))
    assert task.target.tolist() == [[2, 7], [1, 7]]


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (None, r"ids \[2 a t\]"),
        (torch.zeros(2, 3).long(), r"labels are \[2, 3\]"),
        (torch.zeros(2, 1, 3), r"labels are \[2, 1, 3\] torch.float32"),
        (torch.zeros(3, 1, 3).long(), r"labels are \[3, 1, 3\]"),
    ],
)
def test_labels_of_a_wrong_shape_or_dtype_are_refused(label, message):
    with pytest.raises(DataError, match=message):
        fitted().prepare(source("t", "a"), label)


@pytest.mark.parametrize("training", [True, False])
def test_the_loss_is_smoothed_in_training_alone(training):
    objective = fitted(label_smoothing=0.3)
    target = torch.tensor([[2, 7, IGNORE], [0, 5, 7]])
    logits = torch.randn(2, 3, 8, requires_grad=True)  # an evaluation may be differentiated too
    loss = objective.loss(logits, target, training=training)
    smoothing, expected = 0.3 * training, 0.0
    for i, t in (target != IGNORE).nonzero().tolist():
        total = math.log(sum(math.exp(float(s)) for s in logits[i, t].detach()))
        for k, s in enumerate(logits[i, t].tolist()):
            expected -= (smoothing / 8 + (1 - smoothing) * (k == int(target[i, t]))) * (s - total)
    assert float(loss.loss.detach()) == pytest.approx(expected, rel=1e-5)
    assert int(loss.count) == 5
    assert (None if training else [2, 7, 0, 5, 7]) == (
        loss.target if training else loss.target.tolist()
    )
    assert (loss.preds is None) == training


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_has_a_logit_for_every_id_bos_and_eos_too(tied):
    objective = fitted(tied=tied)
    seq2seq = model(objective)
    task = objective.prepare(source("cat", "t"), labels(objective, *LABELS[:2]))
    assert seq2seq(task.batch).shape == (2, 4, 8)
    names = {name for name, _ in seq2seq.head.named_parameters()}
    assert names == ({"table.weight"} if tied else {"linear.weight", "linear.bias"})
    if tied:
        assert seq2seq.head.table is seq2seq.embedder.content


def test_a_tied_head_is_scaled_only_where_the_tables_entries_are_about_1():
    decoder = partial(
        Transformer,
        12,
        1,
        num_heads=3,
        causal=True,
        block=partial(PreNormBlock, cross_attention=True),
    )
    assert model(fitted(), EncoderDecoder(GRU(12, 1), decoder())).head.scale == 12**-0.5
    rotary = EncoderDecoder(GRU(12, 1), decoder(position=Rotary()))
    # no positions are added, so the table's entries are small
    assert model(fitted(), rotary).head.scale == 1.0
    # a recurrent network takes its inputs as they are, of about 1
    assert model(fitted()).head.scale == 12**-0.5


def test_the_baseline_predicts_the_token_frequencies():
    objective, target = fitted(), torch.tensor([[2, 7, IGNORE]])
    logits = objective.baseline([target], objective.target_spec)(target)
    assert_close(logits.exp()[0, 0], torch.tensor([1, 1, 2, 1, 1, 1, 1, 2]) / 10)


# ── its state ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("longest", [0, -1, 10**30])
def test_a_length_that_no_label_has_is_refused(longest):
    with pytest.raises(ValueError, match="1,000,000"):
        Seq2Seq(Words()).load_state(fitted().state() | {"longest": longest})


def test_the_fitted_state_is_saved_as_json():
    other = Seq2Seq(Words())
    assert other.state() == {}
    other.load_state(json.loads(json.dumps(fitted().state())))
    assert (other.target.words, other.longest) == (["K", "T", "AA", "AE", "S"], 3)
    assert (other.start_ids, other.eos_id, other.target_spec.vocab_size) == ([6], 7, 8)


def test_a_tokenizer_that_is_fitted_is_kept():
    objective = Seq2Seq(Characters("ABC"))
    objective.fit(["CAB", "AB"], None)
    assert (objective.target.alphabet, objective.longest, objective.start_ids) == ("ABC", 3, [3])


def test_wrong_use_is_refused_with_its_reason():
    with pytest.raises(ValueError, match=r"label_smoothing=1\.0"):
        Seq2Seq(Words(), label_smoothing=1.0)
    with pytest.raises(ValueError, match="Words"):
        _ = Seq2Seq(Words()).target_spec
    with pytest.raises(ValueError, match="Patches"):
        _ = Seq2Seq(Patches(2)).target_spec
    with pytest.raises(ValueError, match="OneWay"):
        Seq2Seq(type("OneWay", (Bytes,), {"decode": property()})())
    with pytest.raises(ValueError, match=r"Seq2Seq .* GRU"):
        model(fitted(), GRU(12, causal=True))
    with pytest.raises(ValueError, match=r"EncoderDecoder .* NextToken"):
        model(NextToken())


def own_ids(**settings):
    """An objective whose start and end are ids of its tokenizer, those of letters."""
    objective = Seq2Seq(Characters("ABCDE"), start=[4, 3], eos=0, **settings)
    objective.fit(["BC", "CBD"], None)
    return objective


def test_start_and_end_may_be_ids_of_the_tokenizer():
    objective = own_ids()
    assert (objective.start_ids, objective.eos_id, objective.target_spec.vocab_size) == (
        [4, 3],
        0,
        5,
    )
    assert objective.encode_target(["BC", "BCA"]).tolist() == [[1, 2], [1, 2]], (
        "its own end is not doubled"
    )
    inputs = objective.prepare(source("cat", "sat"), labels(objective, "BC", "C"))
    assert inputs.batch.content.tolist() == [[4, 3, 1, 2], [4, 3, 2, 0]]
    assert inputs.batch.valid.tolist() == [[True] * 4, [True, True, True, False]]
    assert inputs.target.tolist() == [[IGNORE, 1, 2, 0], [IGNORE, 2, 0, IGNORE]]
    assert objective.decode(torch.tensor([[1, 4, 2, IGNORE]])) == ["BC"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"start": [1]}, r"start=\[1\]"),
        ({"start": [], "eos": 1}, r"eos=1"),
        ({"logit_scale": 0.0}, r"logit_scale=0\.0"),
    ],
)
def test_settings_of_ids_and_head_that_mean_nothing_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        Seq2Seq(Characters("ABC"), **settings)


def test_a_start_that_the_tokenizer_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"id 3; .* 0 to 2"):
        _ = Seq2Seq(Characters("ABC"), start=[3], eos=0).target_spec


@pytest.mark.parametrize("beams", [None, 3])
def test_suppressed_ids_are_never_generated(beams):
    plain = own_ids(bias=True)
    objective = own_ids(bias=True, suppress=[1], suppress_first=[0, 2])
    made = model(plain)
    made.head.bias.data = torch.tensor([10.0, 30.0, 20.0, 0.0, 0.0])
    batch = source("cat", "sat", "kat", "task")
    if beams is None:
        before, after = (each.predict(made, batch) for each in (plain, objective))
    else:
        prompts = [torch.tensor([4, 3])] * 4
        before, after = (
            nn.utils.rnn.pad_sequence(
                [found[0].ids for found in beam_search(made, prompts, 5, beams=BeamSearch(beams), source=batch,
                                                       suppressed=each.suppressed)], batch_first=True)
            for each in (plain, objective)
        )  # fmt: skip
    assert before.eq(1).all()
    assert after[:, 1:].eq(2).all()
    assert torch.isin(after[:, 0], torch.tensor([3, 4])).all()


def test_a_suppressed_id_outside_the_vocabulary_is_refused():
    objective = own_ids(suppress=[5])
    with pytest.raises(ValueError, match="suppressed id 5"):
        objective.predict(model(objective), source("cat"))


@pytest.mark.parametrize(("tied", "bias", "has_bias"), [(True, None, False), (True, True, True), (False, None, True),
                                                        (False, False, False)])  # fmt: skip
def test_the_heads_bias(tied, bias, has_bias):
    names = dict(model(own_ids(tied=tied, bias=bias)).head.named_parameters())
    assert any(name.endswith("bias") for name in names) == has_bias


def test_source_and_target_may_have_positions_of_their_own():
    own = partial(Learned, sizes=[7])
    made = Model(Characters("acktsx").spec, EncoderDecoder(GRU(12, 1), RNNDecoder(12)), own_ids(),
                 position=partial(Learned, sizes=[11]), positions={"source": own})  # fmt: skip
    assert made.source_embedder.position.sizes == (7,)
    assert made.embedder.position.sizes == (11,)
    with pytest.raises(ValueError, match="source"):
        Model(
            Characters("abc").spec, GRU(12, 1, causal=True), NextToken(), positions={"source": own}
        )


# ── greedy decoding ───────────────────────────────────────────────────────────────────────────────────────────────────


class Scripted(nn.Module):
    """Predicts the line of each source, whatever was generated; keeps a record of the decoder's inputs."""

    spec, source_embedder, causal = TokenSpec(vocab_size=8), nn.Identity(), True
    embedder = SimpleNamespace(position=SimpleNamespace(num_positions=None))

    def __init__(self, *lines):
        super().__init__()
        self.lines = nn.Parameter(nn.functional.one_hot(torch.tensor(lines), 8).float())
        self.backbone = RNNDecoder(4)
        # has no cache: gets all ids so far
        self.backbone.init_cache = Backbone.init_cache.__get__(self.backbone)
        self.inputs = []

    def forward(self, batch, cache=None):
        assert cache is None
        self.inputs.append(batch.content.tolist())
        return self.lines[batch.source.content[:, 0], : batch.content.shape[1]]


def test_decoding_stops_at_the_eos_of_each_sequence_and_then_of_all():
    scripted, objective = Scripted([1, 7, 2, 3], [4, 4, 7, 5]), fitted()
    batch = TokenBatch.collate([Tokens(torch.tensor([i]), torch.zeros(1, 1)) for i in range(2)])
    objective.longest = 4
    assert objective.predict(scripted, batch).tolist() == [[1, IGNORE, IGNORE], [4, 4, IGNORE]]
    assert scripted.inputs == [[[6], [6]], [[6, 1], [6, 4]], [[6, 4, 4]]]
    objective.longest = 1
    assert objective.predict(scripted, batch).tolist() == [[1], [4]]


class Uncached(ScaledDotProductAttention):
    """Has no cache."""

    supports = ScaledDotProductAttention.supports & ~AttentionFeature.CACHE


@pytest.mark.parametrize(
    "attention",
    [MultiHeadAttention, partial(MultiHeadAttention, mechanism=Uncached)],
    ids=["cache", "no cache"],
)
def test_each_predicted_token_is_the_likeliest_after_those_before_it(attention):
    # most untrained models predict one token whatever their input is; this one does not
    torch.manual_seed(43)
    objective, batch = fitted(tied=False), source("cat", "x", "stack")
    objective.longest = 6
    block = partial(PreNormBlock, attention=attention)
    backbone = EncoderDecoder(
        Transformer(12, 1, num_heads=3),
        Transformer(12, 1, num_heads=3, causal=True, block=partial(block, cross_attention=True)),
    )
    seq2seq = model(objective, backbone)
    for weight in seq2seq.parameters():
        nn.init.normal_(weight, std=0.3)
    preds = objective.predict(seq2seq, batch)
    assert len({tuple(row) for row in preds.tolist()}) == 3  # predictions depend on the source
    for i, word in enumerate(("cat", "x", "stack")):
        ids = [t for t in preds[i].tolist() if t != IGNORE]
        again = torch.tensor([[ids + [objective.eos_id] * (len(ids) < 6)]])
        task = objective.prepare(source(word), again)
        with torch.no_grad():
            likeliest = seq2seq(task.batch).argmax(dim=-1)[0, :-1]
        assert_close(likeliest, again[0, 0])


def test_predictions_decode_to_texts_up_to_the_longest_label():
    objective = fitted()
    preds = torch.tensor([[1, 4, 2], [2, IGNORE, IGNORE], [IGNORE] * 3, [6, 5, IGNORE]])
    assert objective.decode(preds) == ["K AE T", "T", "", "S"]
    assert objective.predict(model(objective), source("cat", "t")).shape[1] <= 3


@pytest.mark.slow
def test_a_small_model_learns_to_spell_backwards():
    torch.manual_seed(0)
    words = [
        "".join("acktsx"[int(i)] for i in torch.randint(6, (int(torch.randint(1, 5, ())),)))
        for _ in range(64)
    ]
    objective = Seq2Seq(Characters("acktsx"))
    objective.fit([word[::-1] for word in words], None)
    seq2seq, batch = (
        model(objective, EncoderDecoder(GRU(48, 1), RNNDecoder(48, attention=MultiHeadAttention))),
        source(*words),
    )
    task = objective.prepare(batch, labels(objective, *[word[::-1] for word in words]))
    optimizer = torch.optim.AdamW(seq2seq.parameters(), lr=0.01)
    for _ in range(120):
        loss = objective.loss(seq2seq(task.batch), task.target, training=True)
        (loss.loss / loss.count).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert objective.decode(objective.predict(seq2seq, batch)) == [word[::-1] for word in words]


# ── error rates ───────────────────────────────────────────────────────────────────────────────────────────────────────


def distance(a, b):
    """Levenshtein's, by its definition."""

    @lru_cache
    def between(i, j):
        if i == 0 or j == 0:
            return i + j
        return min(
            between(i - 1, j) + 1,
            between(i, j - 1) + 1,
            between(i - 1, j - 1) + (a[i - 1] != b[j - 1]),
        )

    return between(len(a), len(b))


def test_errors_are_counted_to_the_nearest_reference():
    g = torch.Generator().manual_seed(0)

    def sequences(count, shortest):
        return [
            torch.randint(
                4, (int(torch.randint(shortest, 6, (), generator=g)),), generator=g
            ).tolist()
            for _ in range(count)
        ]

    generated, references = sequences(31, 0), [sequences(1 + i % 3, 1) for i in range(31)]
    references[5].append(generated[5] or [1])
    errors = length = wrong = 0
    for ids, rows in zip(generated, references):
        nearest, its_length = min((distance(ids, row), len(row)) for row in rows)
        errors, length, wrong = errors + nearest, length + its_length, wrong + (nearest > 0)
    token, sequence = TokenErrorRate(), SequenceErrorRate()
    for start in (0, 17):
        some = slice(start, start + 17 if start == 0 else None)
        preds = nn.utils.rnn.pad_sequence(
            [torch.tensor(ids).long() for ids in generated[some]], True, IGNORE
        )
        target = collate_targets(
            [
                nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], True, IGNORE)
                for rows in references[some]
            ]
        )
        token.update(preds, target)
        sequence.update(preds, target)
    assert 0 < wrong < 31
    assert float(token.compute()) == pytest.approx(errors / length)
    assert float(sequence.compute()) == pytest.approx(wrong / 31)


def test_an_empty_prediction_does_not_match_a_padded_row_of_references():
    target = torch.tensor([[[1, 2], [IGNORE, IGNORE]]])
    token, sequence = TokenErrorRate(), SequenceErrorRate()
    for metric in (token, sequence):
        metric.update(torch.empty(1, 0, dtype=torch.int64), target)
    assert (float(token.compute()), float(sequence.compute())) == (1.0, 1.0)


def test_source_and_target_have_embedders_of_their_own():
    seq2seq = model(fitted())
    assert isinstance(seq2seq.source_embedder, Embedder)
    assert (seq2seq.source_embedder.spec.vocab_size, seq2seq.embedder.spec.vocab_size) == (6, 8)
