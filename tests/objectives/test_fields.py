"""Tokens of several ids: embeddings, logits and losses equal what each field gives alone."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from seqkit.backbones import LSTM, Transformer
from seqkit.interfaces import IGNORE, TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.nn.embedder import Embedder
from seqkit.nn.position.absolute import NoPosition
from seqkit.objectives import Classify, Masked, NextToken
from seqkit.testing import synthetic

SPEC, EXAMPLES = synthetic()["fields"]
BATCH = TokenBatch.collate(EXAMPLES)


def test_the_embedding_is_the_sum_over_fields_and_numbers():
    embedder = Embedder(SPEC, 12, position=NoPosition)
    tables = [table.weight for table in embedder.content.tables]
    expected = sum(tables[i][BATCH.content[0, :5, i]] for i in range(3)) + embedder.features(
        BATCH.features[0, :5]
    )
    assert_close(embedder(BATCH).hidden[0, :5], expected)


def test_a_mask_token_hides_the_numbers_too():
    embedder = Embedder(SPEC, 12, position=NoPosition, uses_mask_token=True)
    masked = torch.ones_like(BATCH.valid)
    other = replace(BATCH, features=BATCH.features + 1, content=BATCH.content * 0)
    assert_close(embedder(BATCH, masked).hidden, embedder(other, masked).hidden)


def test_a_batch_without_its_numbers_is_refused():
    with pytest.raises(ValueError, match="features"):
        Embedder(SPEC, 12)(replace(BATCH, features=None))


@pytest.mark.parametrize(
    ("objective", "causal"), [(NextToken(), True), (Masked(fraction=0.5), False)]
)
def test_the_loss_is_the_cross_entropy_of_each_field(objective, causal):
    model = Model(SPEC, Transformer(12, 1, num_heads=3, causal=causal), objective)
    given = objective.prepare(BATCH, None)
    logits = model(given.batch, given.masked)
    output = objective.loss(logits, given.target)
    expected, count = 0.0, 0
    for i, size in enumerate(SPEC.vocab_sizes):
        known = given.target[..., i] != IGNORE
        assert (logits[..., i, size:] == float("-inf")).all()
        expected = expected + F.cross_entropy(
            logits[..., i, :size][known], given.target[..., i][known], reduction="sum"
        )
        count += int(known.sum())
    assert_close(output.loss, expected)
    assert int(output.count) == count
    assert_close(output.preds[: len(output.target)], logits.argmax(dim=-1)[given.target != IGNORE])
    output.loss.backward()
    assert all(
        bool(torch.isfinite(p.grad).all()) and bool((p.grad != 0).any()) for p in model.parameters()
    )


@pytest.mark.parametrize("objective", [NextToken(), Masked(fraction=0.5)])
def test_the_baseline_is_the_frequency_in_each_field(objective):
    target = torch.tensor([[[0, 0, 4], [0, 1, 4], [6, 1, IGNORE]]])
    logits = objective.baseline([target], SPEC)(target)
    assert logits.shape == (1, 3, 3, 7)
    counts = [[3, 1, 1, 1, 1, 1, 2], [2, 3, 1], [1, 1, 1, 1, 3]]
    for i, row in enumerate(counts):
        assert_close(logits[0, 0, i, : len(row)].exp(), torch.tensor(row) / sum(row))


def test_next_token_does_not_predict_over_the_end_or_see_the_next_numbers():
    given = NextToken().prepare(BATCH, None)
    assert_close(given.batch.features, BATCH.features[:, :-1])
    assert (given.target[0, 4:] == IGNORE).all()
    assert_close(given.target[0, :4], BATCH.content[0, 1:5])


def test_tied_weights_need_one_vocabulary():
    with pytest.raises(ValueError, match="several ids"):
        Model(SPEC, Transformer(12, 1, num_heads=3, causal=True), NextToken(tied=True))


@pytest.mark.parametrize(
    ("backbone", "why"),
    [
        (LSTM(12, 1), "LSTM is recurrent"),
        (Transformer(12, 1, num_heads=3, causal=True), "Transformer is causal"),
    ],
)
def test_a_set_refuses_what_knows_an_order_unless_it_is_told_to_go_along(backbone, why):
    spec, objective = TokenSpec(vocab_size=5, is_set=True), Classify()
    objective.fit([0, 1], None)
    with pytest.raises(ValueError, match=f"set, .* {why}"):
        Model(spec, backbone, objective)
    Model(spec, backbone, objective, set_as_sequence=True)
    Model(spec, Transformer(12, 1, num_heads=3), objective)
