"""What is measured is complete and adds up; how long it took is asserted nowhere."""

import json
from dataclasses import asdict, replace

import pytest
import torch
from candidates import DIM, batch_of, candidate, language_model

from seqkit.analysis.speed import measure
from seqkit.backbones import GRU, EncoderDecoder, RNNDecoder, Transformer
from seqkit.objectives import Masked, NextToken, Seq2Seq
from seqkit.tokenizers import Characters


@pytest.mark.usefixtures("ticks")
def test_every_candidate_is_measured_at_every_length():
    candidates = {
        "attention": language_model(Transformer(DIM, 1, num_heads=2, causal=True)),
        "recurrent": language_model(GRU(DIM, 1, causal=True)),
    }
    said = []
    costs = measure(candidates, seconds=1e-6, lengths=(13, 5), report=said.append)
    assert list(costs) == ["attention", "recurrent"]
    for cost in costs.values():
        for rows in (cost.seconds_by_length, cost.memory_by_length, cost.latency_by_context):
            assert [n for n, _ in rows] == [5, 13]
        shares = cost.shares
        assert shares.load + shares.prepare + shares.ends + shares.backbone + shares.update == pytest.approx(1)
        assert min(asdict(shares).values()) >= 0
        assert shares.backbone > 0
        assert cost.step_seconds.low <= cost.step_seconds.median <= cost.step_seconds.high
        # 15 tokens of which each sequence's last is predicted from, not with
        num_tokens = int(sum(NextToken().prepare(*b).batch.valid.sum() for b in candidates["attention"].batches))
        assert cost.tokens_per_second.median == pytest.approx(num_tokens / 2 / cost.step_seconds.median)
        json.dumps(asdict(cost))
    assert costs["attention"].memory_by_length[1][1] > costs["attention"].memory_by_length[0][1]
    assert said


@pytest.mark.parametrize("causal", [True, False])
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
    assert cost.shares.backbone > 0


def test_what_cannot_be_measured_is_refused():
    one = language_model(GRU(DIM, 1, causal=True))
    with pytest.raises(ValueError, match="no candidates"):
        measure({})
    with pytest.raises(ValueError, match="'one' has no batches"):
        measure({"one": replace(one, batches=[])})
    with pytest.raises(ValueError, match=r"lengths=\[0\] count tokens"):
        measure({"one": one}, lengths=[0])
    with pytest.raises(ValueError, match="seconds=0 is the time"):
        measure({"one": one}, seconds=0)
