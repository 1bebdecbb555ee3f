"""Latency is that of the last tokens before a context is full, one at a time."""

import pytest
from candidates import DIM, language_model

from seqkit.analysis.latency import MIN_CONTEXT, TOKENS_TIMED, token_latencies
from seqkit.analysis.training_step import Training
from seqkit.backbones import GRU


@pytest.mark.usefixtures("ticks")
@pytest.mark.parametrize("n", [MIN_CONTEXT, 5, TOKENS_TIMED + MIN_CONTEXT, 29])
def test_the_last_timed_token_has_the_whole_context_before_it(n):
    training, read = Training(language_model(GRU(DIM, 1, causal=True))), []
    training.model.register_forward_pre_hook(lambda _, args: read.append(args[0].valid.shape[1]))
    ((length, spread),) = token_latencies({"one": training}, [n], lambda _: None)["one"]
    _, prompt, *steps = read  # the first asks whether the model takes n tokens at all
    assert set(steps) == {1}
    assert prompt + len(steps) == n
    assert len(steps) == 1 + min(TOKENS_TIMED, n - 2), "a step to warm up, and those that are timed"
    assert (length, spread.median) == (n, 1.0), "the clock is looked at twice a token"


def test_a_context_without_room_to_time_a_token_is_left_out():
    training = Training(language_model(GRU(DIM, 1, causal=True)))
    assert token_latencies({"one": training}, [MIN_CONTEXT - 1], lambda _: None) == {"one": ()}
