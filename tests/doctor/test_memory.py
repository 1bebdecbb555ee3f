"""A batch that is too large is found, and the batch that is named instead fits."""

import re

import pytest
import torch

from seqkit.analysis.peak_memory import peak_bytes
from seqkit.doctor.memory import check_memory
from seqkit.doctor.trials import Training, Trials


@pytest.mark.slow
def test_a_batch_that_does_not_fit_is_found_with_one_that_does(subject):
    made = subject("text/char-lm", "--data.batch_size", "4096", "--data.limit", "5000")
    available = 50_000_000
    finding = check_memory(made, available).finding
    size, times = map(
        int, re.findall(r"--data.batch_size (\d+) --trainer.accumulate_grad_batches (\d+)", finding.fix)[0]
    )
    assert size * times >= 4096 > size * (times - 1)
    assert check_memory(subject("text/char-lm", "--data.batch_size", str(size)), available).finding is None


def test_a_batch_is_no_larger_than_the_data(subject):
    made = subject("image/digits", "--data.batch_size", "1000000000")
    assert check_memory(made).finding is None
    assert "200 examples" in check_memory(made).measured


def test_where_no_example_fits_the_model_is_too_large(subject):
    assert "--model.backbone.dim" in check_memory(subject("image/digits"), 1_000_000).finding.fix
    assert "--data.window" in check_memory(subject("text/char-lm"), 500_000).finding.fix


def test_tokens_per_batch_bound_the_batch(subject):
    made = subject("text/char-lm", "--data.batch_size", "64", "--data.tokens_per_batch", "130")
    assert "on 2 examples of 65 tokens" in check_memory(made).measured


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["mechanism/copy", pytest.param("graph/solubility", marks=pytest.mark.slow)])
def test_the_estimate_is_what_a_step_of_a_transformer_takes_within_a_third(subject, recipe):
    made = subject(recipe, "--optimizer", "{type: AdamW, lr: 0.001}")  # whose two moments the estimate counts
    training = Training(Trials(made), 1.0, 1)
    batch = max(made.batches, key=lambda one: len(one[0]))
    training.step(batch, 0)
    training.optimizer.zero_grad()
    state = [t for one in training.optimizer.state.values() for t in one.values() if torch.is_tensor(t)]
    peak = peak_bytes(lambda: training.step(batch, 0), [*training.model.parameters(), *state])
    made.batch_size, made.lengths = len(batch[0]), [batch[0].valid.shape[1]] * len(batch[0])
    assert check_memory(made, int(1.34 * peak)).finding is None
    assert check_memory(made, int(0.66 * peak)).finding is not None
