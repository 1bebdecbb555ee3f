"""Labels that have nothing to do with their inputs are found; labels that are hard to tell are not called shuffled."""

import pytest
import torch

from seqkit.doctor.labels import NO_SIGNAL, check_labels, dependence


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_dependence_tells_labels_that_hang_on_the_features_from_others():
    x = normal(61, 3)
    assert dependence(x, x[:, :1]) > 8 * NO_SIGNAL
    assert dependence(x, x[:, :1].square()) > NO_SIGNAL  # no correlation, and yet a dependence
    assert max(dependence(x, normal(61, 1, seed=seed)) for seed in range(1, 12)) < NO_SIGNAL


def test_shuffled_labels_of_sequences_are_found(subject):
    finding = check_labels(subject("image/digits", "--data.source", "ShuffledDigits")).finding
    assert "--data.source (now ShuffledDigits)" in finding.fix


@pytest.mark.parametrize("recipe", ["graph/molecules", "image/digits", "series/classify"])
def test_numbers_and_classes_that_depend_on_their_inputs_have_a_signal(subject, recipe):
    made = subject(recipe)
    result = check_labels(made)
    assert (result.finding, result.applies) == (None, True)
    examples = made.data.train_dataloader().examples
    order = torch.randperm(
        len(examples.targets), generator=torch.Generator().manual_seed(0)
    ).tolist()
    examples.targets = [examples.targets[i] for i in order]
    assert check_labels(made).finding is not None


@pytest.mark.parametrize(
    ("recipe", "why"),
    [("mechanism/tasks", "labels of tokens"), ("text/char-lm", "needs none"), ("graph/karate", "")],
)
def test_labels_of_tokens_and_none_are_not_judged(subject, recipe, why):
    result = check_labels(subject(recipe))
    assert not result.applies
    assert why in result.measured
