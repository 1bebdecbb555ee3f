"""Translate: teacher forcing by hand, smoothing in training alone, error rates by brute force, greedy writing."""

import json
import math
from functools import lru_cache, partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import GRU, RecurrentDecoder, Seq2Seq, Transformer
from seqkit.contract import IGNORE, DataError, TokenBatch
from seqkit.data.batches import collate_labels
from seqkit.embed import Embedder
from seqkit.generate import Sampling, complete
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.mechanism import ScaledDotProduct
from seqkit.model import Model
from seqkit.objectives import NextToken, Translate
from seqkit.objectives.metrics import SequenceError, TokenError
from seqkit.objectives.translate import greedy
from seqkit.tokenizers import Bytes, Characters, Patches, Words

LABELS = [["K AE T", "K AA T"], "AA K S", ["T"]]
"""Ids of Words on these: 1 K, 2 T, 3 AA, 4 AE, 5 S by frequency, then spelling; begin 6, end 7."""


def fitted(**settings):
    objective = Translate(Words(), **settings)
    objective.fit(LABELS, None)
    return objective


def source(*words):
    letters = Characters("acktsx")
    return TokenBatch.collate([letters.encode(word) for word in words])


def labels(objective, *given):
    return collate_labels([objective.encode_label(label) for label in given])


def model(objective, backbone=None):
    return Model(Characters("acktsx").spec, backbone or Seq2Seq(GRU(12, 1), RecurrentDecoder(12)), objective).eval()


# ── teacher forcing ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_labels_become_a_row_for_each_right_answer():
    objective = fitted()
    assert objective.encode_label(LABELS[0]).tolist() == [[1, 4, 2], [1, 3, 2]]
    assert labels(objective, *LABELS).tolist() == [
        [[1, 4, 2], [1, 3, 2]],
        [[3, 1, 5], [IGNORE] * 3],
        [[2, IGNORE, IGNORE], [IGNORE] * 3],
    ]


@pytest.mark.parametrize("label", [7, [], ["a", 3], None, ""])
def test_a_label_that_is_no_text_is_bad_data(label):
    with pytest.raises(DataError, match=r"a label is|the text is empty"):
        fitted().encode_label(label)


def test_it_reads_begin_and_what_was_said_and_says_that_and_end():
    objective, batch = fitted(), source("cat", "ax", "t")
    task = objective.prepare(batch, labels(objective, *LABELS))
    assert task.batch.content.tolist() == [[6, 1, 4, 2], [6, 3, 1, 5], [6, 2, 0, 0]]
    assert task.target.tolist() == [[1, 4, 2, 7], [3, 1, 5, 7], [2, 7, IGNORE, IGNORE]]
    assert task.batch.valid.sum(dim=1).tolist() == [4, 4, 2]
    assert task.batch.positions[..., 0].tolist() == [[0, 1, 2, 3]] * 3
    assert task.batch.memory is batch
    assert task.hide is None


def test_columns_that_only_another_answer_needs_are_dropped():
    objective = fitted()
    task = objective.prepare(source("t", "a"), labels(objective, ["T", "T AA K S"], "K"))
    assert task.target.tolist() == [[2, 7], [1, 7]]


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (None, r"labels are none; writing needs ids \[2 a t\]"),
        (torch.zeros(2, 3).long(), r"labels are \[2, 3\]"),
        (torch.zeros(2, 1, 3), r"labels are \[2, 1, 3\] torch.float32"),
        (torch.zeros(3, 1, 3).long(), r"labels are \[3, 1, 3\]"),
    ],
)
def test_labels_of_a_wrong_kind_are_bad_data(label, message):
    with pytest.raises(DataError, match=message):
        fitted().prepare(source("t", "a"), label)


@pytest.mark.parametrize("training", [True, False])
def test_the_loss_is_smoothed_where_gradients_are_taken_alone(training):
    objective = fitted(label_smoothing=0.3)
    target = torch.tensor([[2, 7, IGNORE], [0, 5, 7]])
    scores = torch.randn(2, 3, 8, requires_grad=training)
    score = objective.score(scores, target)
    smoothing, right = 0.3 * training, 0.0
    for i, t in (target != IGNORE).nonzero().tolist():
        total = math.log(sum(math.exp(float(s)) for s in scores[i, t].detach()))
        for k, s in enumerate(scores[i, t].tolist()):
            right -= (smoothing / 8 + (1 - smoothing) * (k == int(target[i, t]))) * (s - total)
    assert float(score.loss.detach()) == pytest.approx(right, rel=1e-5)
    assert int(score.count) == 5
    assert score.truth.tolist() == [2, 7, 0, 5, 7]


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_scores_every_id_begin_and_end_too(tied):
    objective = fitted(tied=tied)
    written = model(objective)
    task = objective.prepare(source("cat", "t"), labels(objective, *LABELS[:2]))
    assert written(task.batch).shape == (2, 4, 8)
    names = {name for name, _ in written.head.named_parameters()}
    assert names == ({"table.weight"} if tied else {"linear.weight", "linear.bias"})
    if tied:
        assert written.head.table is written.embedder.content


def test_the_baseline_says_the_frequencies():
    objective, target = fitted(), torch.tensor([[2, 7, IGNORE]])
    guess = objective.constant([target])(target)
    assert_close(guess.exp()[0, 0], torch.tensor([1, 1, 2, 1, 1, 1, 1, 2]) / 10)


# ── its state ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_fitted_travels_as_json():
    other = Translate(Words())
    assert other.state() == {}
    other.load_state(json.loads(json.dumps(fitted().state())))
    assert (other.target.words, other.longest) == (["K", "T", "AA", "AE", "S"], 3)
    assert (other.begin, other.end, other.target_spec.vocab_size) == (6, 7, 8)


def test_a_tokenizer_that_is_fitted_stays():
    objective = Translate(Characters("ABC"))
    objective.fit(["CAB", "AB"], None)
    assert (objective.target.alphabet, objective.longest, objective.begin) == ("ABC", 3, 3)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"label_smoothing=1\.0"):
        Translate(Words(), label_smoothing=1.0)
    with pytest.raises(ValueError, match="Words has no vocabulary yet"):
        _ = Translate(Words()).target_spec
    with pytest.raises(ValueError, match="Patches cuts into vectors, but what is written is ids"):
        _ = Translate(Patches(2)).target_spec
    with pytest.raises(ValueError, match="Unread has no decode"):
        Translate(type("Unread", (Bytes,), {"decode": property()})())
    with pytest.raises(ValueError, match="Translate writes one sequence from another, and GRU reads only one"):
        model(fitted(), GRU(12, causal=True))
    with pytest.raises(ValueError, match="Seq2Seq writes one sequence from another, and NextToken has only one"):
        model(NextToken())


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Scripted(nn.Module):
    """Says each example's line, whatever it reads; its state is the column it is asked for."""

    def __init__(self, *lines):
        super().__init__()
        self.lines, self.backbone, self.asked = torch.tensor(lines), Transformer(4, 1, num_heads=1), []

    def forward(self, batch, cache=None):
        self.asked.append(batch.content.tolist())
        column = batch.content.shape[1]  # not causal, so greedy has no cache and gives all so far
        return nn.functional.one_hot(self.lines[:, :column], 8).float()


def test_greedy_stops_at_the_end_of_each_and_then_of_all():
    said = Scripted([1, 7, 2, 3], [4, 4, 7, 5])
    written = greedy(said, source("t", "a"), begin=6, end=7, max_tokens=4)
    assert written.tolist() == [[1, IGNORE, IGNORE], [4, 4, IGNORE]]
    assert said.asked == [[[6], [6]], [[6, 1], [6, 4]], [[6, 1, 7], [6, 4, 4]]]
    assert greedy(said, source("t", "a"), begin=6, end=7, max_tokens=1).tolist() == [[1], [4]]


class Uncached(ScaledDotProduct):
    """Cannot go on step by step."""

    honours = ScaledDotProduct.honours - {"cache"}


@pytest.mark.parametrize("attention", [Attention, partial(Attention, mechanism=Uncached)], ids=["cache", "no cache"])
def test_what_is_written_is_the_likeliest_after_what_was_written(attention):
    torch.manual_seed(11)  # most models that were never trained say one thing whatever they read; this one does not
    objective, batch = fitted(tied=False), source("cat", "x", "stack")
    block = partial(Block, attention=attention)
    backbone = Seq2Seq(
        Transformer(12, 1, num_heads=3),
        Transformer(12, 1, num_heads=3, causal=True, block=partial(block, cross=True)),
    )
    writer = model(objective, backbone)
    for weight in writer.parameters():
        nn.init.normal_(weight, std=0.3)
    written = greedy(writer, batch, objective.begin, objective.end, 6)
    assert len({tuple(row) for row in written.tolist()}) == 3  # what is written depends on what is read
    for i, word in enumerate(("cat", "x", "stack")):
        said = [t for t in written[i].tolist() if t != IGNORE]
        again = torch.tensor([[said + [objective.end] * (len(said) < 6)]])
        task = objective.prepare(source(word), again)
        with torch.no_grad():
            likeliest = writer(task.batch).argmax(dim=-1)[0, :-1]
        assert_close(likeliest, again[0, 0])
    begin, same = [torch.tensor([objective.begin])] * 3, Sampling(temperature=0)
    others = complete(writer, begin, 6, strategy=same, memory=batch, stop=[objective.end])
    assert [row[row != IGNORE].tolist() for row in written] == [row.tolist() for row in others]


def test_answers_are_texts_cut_at_the_longest_label():
    objective = fitted()
    written = torch.tensor([[1, 4, 2], [2, IGNORE, IGNORE], [IGNORE] * 3, [6, 5, IGNORE]])
    assert objective.answer(written) == ["K AE T", "T", "", "S"]
    assert objective.predict(model(objective), source("cat", "t")).shape[1] <= 3


@pytest.mark.slow
def test_a_small_model_learns_to_spell_backwards():
    torch.manual_seed(0)
    words = ["".join("acktsx"[int(i)] for i in torch.randint(6, (int(torch.randint(1, 5, ())),))) for _ in range(64)]
    objective = Translate(Characters("acktsx"))
    objective.fit([word[::-1] for word in words], None)
    writer, batch = model(objective, Seq2Seq(GRU(48, 1), RecurrentDecoder(48, attention=Attention))), source(*words)
    task = objective.prepare(batch, labels(objective, *[word[::-1] for word in words]))
    optimizer = torch.optim.AdamW(writer.parameters(), lr=0.01)
    for _ in range(120):
        score = objective.score(writer(task.batch), task.target)
        (score.loss / score.count).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert objective.answer(objective.predict(writer, batch)) == [word[::-1] for word in words]


# ── error rates ──────────────────────────────────────────────────────────────────────────────────────────────────────


def distance(a, b):
    """Levenshtein's, by its definition."""

    @lru_cache
    def between(i, j):
        if i == 0 or j == 0:
            return i + j
        return min(between(i - 1, j) + 1, between(i, j - 1) + 1, between(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return between(len(a), len(b))


def test_errors_are_counted_to_the_nearest_right_answer():
    g = torch.Generator().manual_seed(0)

    def sequences(count, shortest):
        return [
            torch.randint(4, (int(torch.randint(shortest, 6, (), generator=g)),), generator=g).tolist()
            for _ in range(count)
        ]

    said, right = sequences(31, 0), [sequences(1 + i % 3, 1) for i in range(31)]
    right[5].append(said[5] or [1])
    errors = length = wrong = 0
    for s, answers in zip(said, right):
        nearest, its_length = min((distance(s, r), len(r)) for r in answers)
        errors, length, wrong = errors + nearest, length + its_length, wrong + (nearest > 0)
    token, sequence = TokenError(), SequenceError()
    for start in (0, 17):
        part = slice(start, start + 17 if start == 0 else None)
        written = nn.utils.rnn.pad_sequence([torch.tensor(s).long() for s in said[part]], True, IGNORE)
        truth = collate_labels(
            [nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], True, IGNORE) for rows in right[part]]
        )
        token.update(written, truth)
        sequence.update(written, truth)
    assert 0 < wrong < 31
    assert float(token.compute()) == pytest.approx(errors / length)
    assert float(sequence.compute()) == pytest.approx(wrong / 31)


def test_nothing_written_is_not_a_right_answer_although_answers_are_padded():
    truth = torch.tensor([[[1, 2], [IGNORE, IGNORE]]])
    token, sequence = TokenError(), SequenceError()
    for measure in (token, sequence):
        measure.update(torch.empty(1, 0, dtype=torch.int64), truth)
    assert (float(token.compute()), float(sequence.compute())) == (1.0, 1.0)


def test_the_embedder_of_what_is_written_is_its_own():
    written = model(fitted())
    assert isinstance(written.source_embedder, Embedder)
    assert (written.source_embedder.spec.vocab_size, written.embedder.spec.vocab_size) == (6, 8)
