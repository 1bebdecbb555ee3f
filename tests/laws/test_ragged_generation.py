"""A ragged batch generates what each of its sequences generates alone: every causal backbone, by every strategy."""

from dataclasses import replace

import pytest
import torch
from conftest import backbones
from generating import RAGGED, TWO, generating_model, sharpened, sources

from seqkit.generation import BeamSearch, Sampling, generate
from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.objectives import NextToken

VOCAB = 13
PROMPTS, ROWS = [torch.arange(8), *RAGGED], [0, 1, 2, 0]
STRATEGIES = {
    "greedy": Sampling(temperature=0),
    "sampling": Sampling(seed=3),
    "beams": BeamSearch(3),
}


def causal_model(name: str) -> Model:
    if name in TWO:
        return generating_model(name)
    torch.manual_seed(0)
    return sharpened(
        Model(TokenSpec(vocab_size=VOCAB), backbones()[name](24, causal=True), NextToken())
    )


def assert_as_alone(name, strategy, steps, **settings):
    model = causal_model(name)
    together = generate(
        model, PROMPTS, steps, strategy=strategy, source=sources(name, ROWS), **settings
    )
    for i, (prompt, row) in enumerate(zip(PROMPTS, ROWS)):
        own = (
            replace(strategy, seed=strategy.seed + i)
            if isinstance(strategy, Sampling)
            else strategy
        )
        (alone,) = generate(
            model, [prompt], steps, strategy=own, source=sources(name, [row]), **settings
        )
        assert together[i].equal(alone), f"prompt {i}"


NAMES = [*sorted(backbones()), *TWO]
WAYS = [("greedy", 12), ("sampling", None), ("beams", None), ("beams", 12)]
"""Strategy, and number of tokens that the model is given at most."""


@pytest.mark.parametrize(
    ("name", "strategy", "context_length"),
    [
        pytest.param(
            name, *way, marks=() if name == "Transformer" or (i + j) % 4 == 0 else pytest.mark.slow
        )
        for i, name in enumerate(NAMES)
        for j, way in enumerate(WAYS)
    ],
)
def test_the_rest_of_a_batch_changes_no_sequence(name, strategy, context_length):
    assert_as_alone(name, STRATEGIES[strategy], 14, context_length=context_length)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_nor_do_sequences_that_end_before_the_others(strategy):
    """Columns of the longest stay in the cache where it ends first."""
    for stop in range(0, VOCAB, 6):
        assert_as_alone("Transformer", strategy, 30, stop=[stop], context_length=12)
