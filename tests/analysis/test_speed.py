"""What is measured is complete, the measured step is that of training, and random examples are like the data's."""

import json
from dataclasses import asdict, replace
from functools import partial

import pytest
import torch
from candidates import DIM, VOCAB, batch_of, candidate, language_model

from seqkit.analysis.speed import (
    MIN_CONTEXT,
    TOKENS_TIMED,
    Candidate,
    Training,
    in_turn,
    measure,
    synthetic_batch,
    token_latencies,
)
from seqkit.backbones import GRU, EncoderDecoder, RNNDecoder, Transformer
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.nn.block import MLP, PreNormBlock
from seqkit.nn.moe import MixtureOfExperts
from seqkit.nn.position.absolute import Learned
from seqkit.objectives import Classify, Masked, NextToken, Regress, Seq2Seq
from seqkit.tokenizers import Characters
from seqkit.training.module import TrainingModule
from seqkit.training.optim import AdamW, OptimizerFactory
from seqkit.training.trainer import silence_lightning


@pytest.mark.usefixtures("ticks")
def test_every_candidate_is_measured_at_every_length():
    candidates = {
        "attention": language_model(Transformer(DIM, 1, num_heads=2, causal=True)),
        "recurrent": language_model(GRU(DIM, 1, causal=True)),
    }
    costs = measure(candidates, seconds=1e-6, lengths=(13, 5))
    assert list(costs) == ["attention", "recurrent"]
    for cost in costs.values():
        for rows in (cost.seconds_by_length, cost.memory_by_length, cost.latency_by_context):
            assert [n for n, _ in rows] == [5, 13]
        assert 0 < cost.glue_share < 1
        # 15 tokens of which each sequence's last is predicted from, not with
        num_tokens = int(sum(NextToken().prepare(*b).batch.valid.sum() for b in candidates["attention"].batches))
        assert cost.tokens_per_second == pytest.approx(num_tokens / 2 / cost.step_seconds)
        json.dumps(asdict(cost))
    assert costs["attention"].memory_by_length[1][1] > costs["attention"].memory_by_length[0][1]


@pytest.mark.parametrize("causal", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_every_backbone_can_be_measured(build, causal):
    objective = NextToken(tied=False) if causal else Masked()
    one = candidate(build(24, causal=causal), objective, [(batch_of(7, 5), None)])
    cost = measure({"one": one}, seconds=1e-6, lengths=(5, 11))["one"]
    assert [n for n, _ in cost.memory_by_length] == [5, 11]
    assert (cost.latency_by_context is None) == (not causal)


def test_the_models_that_were_given_keep_their_weights():
    given = language_model(GRU(DIM, 1, causal=True))
    before = {name: p.clone() for name, p in given.model.state_dict().items()}
    given.model.eval()
    measure({"one": given}, seconds=1e-6, lengths=(3,))
    assert all(torch.equal(p, before[name]) for name, p in given.model.state_dict().items())
    assert not given.model.training


@pytest.mark.usefixtures("ticks")
def test_an_encoder_decoder_is_measured_with_a_source_as_long():
    objective = Seq2Seq(Characters())
    objective.fit(["abc", "ba"], None)
    backbone = EncoderDecoder(GRU(DIM, 1), RNNDecoder(DIM, 1))
    labels = torch.tensor([[[0, 1, 2]], [[1, 0, -100]]])
    one = candidate(backbone, objective, [(batch_of(5, 7), labels)])
    cost = measure({"one": one}, seconds=1e-6, lengths=(3, 13))["one"]
    assert [n for n, _ in cost.seconds_by_length] == [n for n, _ in cost.latency_by_context] == [3, 13]


def test_what_cannot_be_measured_is_refused():
    one = language_model(GRU(DIM, 1, causal=True))
    with pytest.raises(ValueError, match="candidates"):
        measure({})
    with pytest.raises(ValueError, match="'one'"):
        measure({"one": replace(one, batches=[])})
    with pytest.raises(ValueError, match=r"lengths=\[0\]"):
        measure({"one": one}, lengths=[0])
    with pytest.raises(ValueError, match="seconds=0"):
        measure({"one": one}, seconds=0)


class SGD(OptimizerFactory):
    """Descent, which unlike Adam's takes the scale of a gradient; keeps the models that it is built for."""

    def __init__(self):
        self.models = []

    def build(self, model):
        self.models.append(model)
        return torch.optim.SGD(model.parameters(), lr=0.5)


@pytest.mark.parametrize("clip", [0.1, None])
def test_a_step_is_that_of_training(clip):
    """After as many steps on the same batch, the weights are those that Lightning's training gives."""
    import pytorch_lightning as pl

    expert = partial(MixtureOfExperts, num_experts=3, expert=partial(MLP, ratio=1.0), aux_loss_weight=0.5)
    backbone = Transformer(DIM, 1, num_heads=2, causal=True, block=partial(PreNormBlock, mlp=expert))
    objective, batch = NextToken(tied=False), (batch_of(7, 5), None)
    model = Model(TokenSpec(vocab_size=VOCAB), backbone, objective)
    optimizer = SGD()
    measure({"one": Candidate(model, objective, optimizer, [batch], clip=clip)}, seconds=1e-6)
    num_steps = 1 + 3 * 2  # one goes before; a round is a step on each batch, and one that is taken apart
    trainer = pl.Trainer(
        max_steps=num_steps, gradient_clip_val=clip, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    module = TrainingModule(model, objective, optimizer=SGD())
    loader = torch.utils.data.DataLoader([batch] * num_steps, batch_size=None)
    with silence_lightning():
        trainer.fit(module, loader)
    for name, weight in optimizer.models[0].named_parameters():
        torch.testing.assert_close(weight, model.get_parameter(name), msg=name)


@pytest.mark.usefixtures("ticks")
def test_the_loader_is_read_epoch_after_epoch():
    read = []

    class Loader:
        def __iter__(self):
            for length in (3, 5):
                read.append(length)
                yield batch_of(length), None

    cost = measure({"one": language_model(GRU(DIM, 1, causal=True), loader=Loader())}, seconds=1e-6)["one"]
    assert read == [3, 5, 3, 5]
    assert cost.glue_share > 0


@pytest.mark.parametrize(
    ("objective", "label"),
    [
        (Classify(), torch.tensor([1, 0])),
        (Classify(level="token"), torch.randint(2, (2, 7))),
        (Regress(), torch.tensor([[0.5], [1.5]])),
        (Masked(), None),
    ],
)
def test_labels_are_fitted_to_every_length(objective, label):
    if isinstance(objective, Classify):
        objective.fit([0, 1], None)
    if isinstance(objective, Regress):
        objective.fit([0.5, 1.5], None)
    cost = measure(
        {"one": candidate(GRU(DIM, 1), objective, [(batch_of(7, 5), label)])}, seconds=1e-6, lengths=(3, 11)
    )["one"]
    assert [n for n, _ in cost.seconds_by_length] == [3, 11]
    assert cost.latency_by_context is None, "it is not causal"


def test_a_length_that_the_model_refuses_is_left_out():
    objective = NextToken(tied=False)
    backbone = Transformer(DIM, 1, num_heads=2, causal=True)
    model = Model(TokenSpec(vocab_size=VOCAB), backbone, objective, position=partial(Learned, sizes=[13]))
    one = Candidate(model, objective, AdamW(1e-3), [(batch_of(7), None)])
    cost = measure({"one": one}, seconds=1e-6, lengths=(5, 23))["one"]
    assert [n for n, _ in cost.seconds_by_length] == [n for n, _ in cost.latency_by_context] == [5]


def test_graphs_have_no_lengths(sample_graphs):
    spec, batch = sample_graphs
    objective = Regress()
    objective.fit([0.5, 1.5, 2.5], None)
    model = Model(spec, Transformer(DIM, 1, num_heads=2), objective)
    one = Candidate(model, objective, AdamW(1e-3), [(batch, torch.tensor([[0.5], [1.5], [2.5]]))])
    cost = measure({"one": one}, seconds=1e-6, lengths=(5,))["one"]
    assert (cost.seconds_by_length, cost.memory_by_length, cost.latency_by_context) == (None, None, None)
    with pytest.raises(ValueError, match="adjacency"):
        synthetic_batch(spec, 5)


@pytest.fixture
def sample_graphs():
    from conftest import SAMPLES

    tokenizer, tokens = SAMPLES["Graph"]().encoded()
    return tokenizer.spec, TokenBatch.collate(tokens)


@pytest.mark.parametrize("num_axes", [0, 1, 2, 3])
def test_synthetic_positions_are_distinct_and_near(num_axes):
    spec = TokenSpec(num_features=5, num_axes=num_axes)
    batch = synthetic_batch(spec, 23)
    assert batch.content.shape == (1, 23, 5)
    assert batch.positions.shape == (1, 23, num_axes)
    if num_axes:
        assert len(batch.positions[0].unique(dim=0)) == 23
        assert float(batch.positions.max()) == {1: 22, 2: 4, 3: 2}[num_axes]
        assert batch.positions[0, 0].tolist() == [0] * num_axes


@pytest.mark.usefixtures("ticks")
@pytest.mark.parametrize("n", [MIN_CONTEXT, 5, TOKENS_TIMED + MIN_CONTEXT, 29])
def test_the_last_timed_token_has_the_whole_context_before_it(n):
    training, read = Training(language_model(GRU(DIM, 1, causal=True))), []
    training.model.register_forward_pre_hook(lambda _, args: read.append(args[0].valid.shape[1]))
    ((length, seconds),) = token_latencies({"one": training}, [n])["one"]
    _, prompt, *steps = read  # the first asks whether the model takes n tokens at all
    assert set(steps) == {1}
    assert prompt + len(steps) == n
    assert len(steps) == 1 + min(TOKENS_TIMED, n - 2), "a step to warm up, and those that are timed"
    assert (length, seconds) == (n, 1.0), "the clock is looked at twice a token"


def test_a_context_without_room_to_time_a_token_is_left_out():
    training = Training(language_model(GRU(DIM, 1, causal=True)))
    assert token_latencies({"one": training}, [MIN_CONTEXT - 1]) == {"one": []}


def test_each_begins_in_turn_and_all_are_asked_in_every_round():
    assert ["".join(in_turn("abc", count)) for count in range(4)] == ["abc", "bca", "cab", "abc"]
