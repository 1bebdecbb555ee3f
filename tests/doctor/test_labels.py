"""Labels that have nothing to do with their inputs are found; labels that are hard to tell are not called shuffled."""

import pytest
import torch

from seqkit.doctor.labels import NO_SIGNAL, SIGNAL, check_labels, dependence


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_dependence_tells_labels_that_hang_on_the_features_from_others():
    x = normal(61, 3)
    assert dependence(x, x[:, :1]) > 5 * SIGNAL
    assert dependence(x, x[:, :1].square()) > NO_SIGNAL  # no correlation, and yet a dependence
    assert max(dependence(x, normal(61, 1, seed=seed)) for seed in range(1, 12)) < NO_SIGNAL


def test_dependence_knows_no_order_of_examples():
    x, y = normal(31, 3), normal(31, 1, seed=1)
    y += x[:, :1]
    order = torch.randperm(31, generator=torch.Generator().manual_seed(2))
    assert dependence(x[order], y[order]) == pytest.approx(dependence(x, y), rel=0.3)  # but for the permutations drawn


@pytest.mark.parametrize("test", [False, True])
def test_shuffled_labels_of_sequences_are_found(subject, test):
    finding = check_labels(subject("image/digits", "--data.source", f"{{type: ShuffledDigits, test: {test}}}")).finding
    assert "--data.source (now ShuffledDigits)" in finding.fix
    assert ("the test labels do" in finding.problem) is not test


def shuffle(made, split):
    loader = made.data.train_dataloader() if split == "training" else made.data.test_dataloader()
    targets = loader.examples.targets
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(0)).tolist()
    loader.examples.targets = [targets[i] for i in order]


@pytest.mark.parametrize(
    "recipe",
    ["mechanism/copy", "mechanism/adding", "graph/solubility", pytest.param("text/g2p", marks=pytest.mark.slow)],
)
def test_shuffled_labels_of_tokens_numbers_and_texts_are_found(subject, recipe):
    made = subject(recipe)
    assert check_labels(made).finding is None
    shuffle(made, "training")
    assert check_labels(made).finding is not None


@pytest.mark.slow
def test_labels_of_tokens_that_nothing_tells_are_not_called_shuffled(subject):
    made = subject("mechanism/copy")
    shuffle(made, "training")
    shuffle(made, "test")
    result = check_labels(made)
    assert (result.finding, result.applies) == (None, False)


@pytest.mark.parametrize(("recipe", "why"), [("graph/karate", "fewer than"), ("text/char-lm", "needs none")])
def test_few_labels_and_none_are_not_judged(subject, recipe, why):
    result = check_labels(subject(recipe))
    assert not result.applies
    assert why in result.measured
