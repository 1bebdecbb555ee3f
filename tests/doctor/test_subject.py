"""A subject is the recipe as it would be trained, in pieces that a small machine can take."""

import pytest

from seqkit.config import complete
from seqkit.doctor import subject as module
from seqkit.doctor.subject import recipe_or_run
from seqkit.errors import UsageError
from seqkit.training.trainer import count_steps


def test_the_planned_batch_counts_and_a_small_one_is_made(subject):
    words = ["--data.batch_size", "1000", "--data.limit", "1500", "--trainer.max_epochs", "3"]
    made = subject("mechanism/copy", *words)
    assert (made.batch_size, made.num_steps) == (1000, 3 * 2)
    assert len(made.batches) == module.NUM_BATCHES
    assert max(len(tokens) for tokens, _ in made.batches) == module.MAX_BATCH
    assert len(made.handful[0]) == module.HANDFUL


def test_steps_are_those_of_fit(subject):
    made = subject("image/digits", "--trainer.max_epochs", "7", "--data.batch_size", "11")
    assert made.num_steps == count_steps(made.config["trainer"], len(made.data.train_dataloader()))


def test_examples_that_cost_too_much_are_left_out_of_a_batch(subject, monkeypatch):
    made = subject("image/digits")
    monkeypatch.setattr("seqkit.doctor.subject.STEP_FLOPS", 5.5 * 6 * made.model.num_parameters * 4)
    assert {len(tokens) for tokens, _ in made.batches} == {5}
    assert all(len(label) == 5 for _, label in made.batches)
    monkeypatch.setattr("seqkit.doctor.subject.STEP_FLOPS", 1.0)
    assert {len(tokens) for tokens, _ in subject("image/digits").batches} == {1}


def test_masked_tokens_of_a_subject_repeat(subject):
    made = subject("image/masked-patches")
    first, second = (made.step(made.model, made.batches[0]).inputs.masked for _ in range(2))
    assert first.equal(second)
    assert not first.equal(made.step(made.model, made.batches[0], 1).inputs.masked)


def test_a_run_is_told_from_a_recipe_and_takes_no_keys(tmp_path):
    from seqkit.config import to_yaml

    config = complete("image/digits", "debug")
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert recipe_or_run(str(tmp_path), None, []) == (config, tmp_path)
    assert recipe_or_run(str(tmp_path / "config.yaml"), None, ["--seed", "7"])[1] is None
    with pytest.raises(UsageError, match=r"config\.yaml --seed 7"):
        recipe_or_run(str(tmp_path), None, ["--seed", "7"])
    with pytest.raises(UsageError, match="image/digits"):
        recipe_or_run("image/digit", None, [])
