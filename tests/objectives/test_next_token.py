"""NextToken: the loss is the negative log-likelihood of each real token that has one before it."""

import json
import math

import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import LSTM
from seqkit.errors import DataError
from seqkit.interfaces import IGNORE, TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import NextToken

SPEC = TokenSpec(vocab_size=7)


def texts(*lengths):
    return TokenBatch.collate(
        [Tokens(torch.randint(7, (n,)), torch.arange(float(n))[:, None]) for n in lengths]
    )


@pytest.fixture
def objective():
    return NextToken()


@pytest.mark.parametrize("lengths", [[5, 5], [5, 1, 3]])
def test_the_loss_is_the_sum_over_real_tokens(objective, lengths):
    batch = texts(*lengths)
    task = objective.prepare(batch, None)
    assert task.masked is None
    logits = torch.randn(len(lengths), max(lengths) - 1, 7)
    loss = objective.loss(logits, task.target)
    expected, preds, target = 0.0, [], []
    for i, n in enumerate(lengths):
        for t in range(n - 1):
            following = int(batch.content[i, t + 1])
            weights = [math.exp(float(s)) for s in logits[i, t]]
            expected -= math.log(weights[following] / sum(weights))
            preds.append(max(range(7), key=lambda k: float(logits[i, t, k])))
            target.append(following)
    assert float(loss.loss) == pytest.approx(expected, rel=1e-5)
    assert int(loss.count) == sum(lengths) - len(lengths)
    assert (loss.preds.tolist(), loss.target.tolist()) == (preds, target)


def test_the_input_ends_before_the_last_target(objective):
    batch = texts(5, 3)
    inputs = objective.prepare(batch, None).batch
    assert_close(inputs.content, batch.content[:, :4])
    assert_close(inputs.positions, batch.positions[:, :4])
    assert inputs.valid.equal(batch.valid[:, :4])


def test_the_first_token_of_a_packed_sequence_is_no_target(objective):
    batch = texts(5)
    packed = TokenBatch(
        batch.content, batch.positions, batch.valid, None, torch.tensor([[0, 0, 1, 1, 1]])
    )
    task = objective.prepare(packed, None)
    assert task.target.tolist() == [
        [int(batch.content[0, 1]), IGNORE, *batch.content[0, 3:].tolist()]
    ]
    assert task.batch.segments.tolist() == [[0, 0, 1, 1]]


def test_the_baseline_predicts_the_training_frequencies(objective):
    target = torch.tensor([[2, 2, IGNORE], [0, 2, IGNORE]])
    baseline = objective.baseline([target, target[:1]], SPEC)
    shares = [(c + 1) / (6 + 7) for c in (1, 0, 5, 0, 0, 0, 0)]
    assert_close(baseline(target).softmax(dim=-1), torch.tensor(shares).expand(2, 3, 7))
    expected = -(3 * math.log(shares[2]) + math.log(shares[0]))
    assert float(objective.loss(baseline(target), target).loss) == pytest.approx(expected, rel=1e-5)


def test_a_tied_head_is_the_embedding_table():
    model = Model(SPEC, LSTM(12, causal=True), NextToken(tied=True))
    assert model.head.table.weight is model.embedder.content.weight
    assert model.head.bias is None


@pytest.mark.parametrize("bias", [True, False])
def test_the_head_has_a_bias_by_choice(bias):
    assert (
        Model(SPEC, LSTM(12, causal=True), NextToken(bias=bias)).head.linear.bias is not None
    ) == bias


def test_a_tied_head_may_have_a_bias_for_each_id_scaled_and_bounded_logits():
    objective = NextToken(tied=True, tied_bias=True, logit_scale=0.3, softcap=2.0)
    model = Model(SPEC, LSTM(12, causal=True), objective).eval()
    torch.nn.init.normal_(model.head.bias)
    batch = texts(5, 3)
    hidden = model.backbone(model.embed(batch))
    products = hidden @ model.embedder.content.weight.T * model.embedder.logit_scale
    assert_close(model(batch), 2.0 * ((0.3 * products + model.head.bias) / 2.0).tanh())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tied_bias": True}, "tied_bias"),
        ({"logit_scale": 0.0}, "logit_scale=0.0"),
        ({"softcap": -1.0}, "softcap=-1.0"),
        ({"softcap": math.inf}, "softcap=inf"),
    ],
)
def test_settings_of_the_head_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        NextToken(**settings)


def test_a_batch_of_single_tokens_is_refused(objective):
    with pytest.raises(DataError, match="single token"):
        objective.prepare(texts(1, 1), None)


def test_a_head_cannot_be_tied_to_a_tokenizers_own_embedder():
    spec = TokenSpec(vocab_size=7, embedder=lambda dim: torch.nn.EmbeddingBag(7, dim))
    with pytest.raises(ValueError, match="tied=True"):
        Model(spec, LSTM(12, causal=True), NextToken(tied=True))


def test_in_training_the_loss_is_the_same_and_nothing_is_selected(objective):
    target, logits = objective.prepare(texts(5, 3), None).target, torch.randn(2, 4, 7)
    training, evaluation = (
        objective.loss(logits, target, training=True),
        objective.loss(logits, target),
    )
    assert_close(training.loss, evaluation.loss)
    assert int(training.count) == int(evaluation.count) == 6
    assert (training.preds, training.target) == (None, None)


def test_it_keeps_nothing_of_the_models_that_it_made_a_head_for(objective):
    for size in (7, 11):
        Model(TokenSpec(vocab_size=size), LSTM(12, causal=True), objective)
    assert vars(objective) == vars(NextToken())


def test_it_has_no_state_and_its_metric_is_accuracy(objective):
    assert json.dumps(objective.state()) == "{}"
    accuracy = objective.metrics(SPEC)["accuracy"]
    accuracy.update(torch.tensor([1, 2, 3]), torch.tensor([1, 0, 3]))
    accuracy.update(torch.tensor([4]), torch.tensor([0]))
    assert float(accuracy.compute()) == 0.5
