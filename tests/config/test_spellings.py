"""Keys as other toolkits spell them are answered with keys that exist."""

from argparse import ArgumentParser

import pytest

from seqkit.cli.fit import add_arguments
from seqkit.config import complete, explain
from seqkit.config.merge import root
from seqkit.config.spellings import SPELLINGS, check_spelling
from seqkit.errors import UsageError


def test_every_answer_is_a_key_or_an_option_and_no_spelling_is_a_key():
    config = complete("image/classify", "debug", {"model.backbone": "Transformer"})
    keys = {key for key, *_ in explain(config)} | {"data"}
    table = {f"data.{name}" for name in ("target", "input")}  # of a table
    add_arguments(fit := ArgumentParser())
    options = {action.dest for action in fit._actions} | {"plugin"}
    assert {known.split()[0] for known in SPELLINGS} <= keys | table | options
    others = [word.replace("_", "") for words in SPELLINGS.values() for word in words.split()]
    assert len(others) == len(set(others))
    assert not set(others) & set(root())


@pytest.mark.parametrize(
    ("spelled", "key"),
    [
        ("epochs", "trainer.max_epochs"),
        ("lr", "optimizer.lr"),
        ("batch-size", "data.batch_size"),
        ("learning_rate", "optimizer.lr"),
        ("dim", "model.backbone.dim"),
        ("random_seed", "seed"),
        ("learningrate", "optimizer.lr"),
        ("LearningRate", "optimizer.lr"),
        ("batchsize", "data.batch_size"),
        ("workers", "data.num_workers"),
        ("device", "trainer.accelerator"),
        ("patience", r"trainer.callbacks '\[\{type: EarlyStopping, monitor: valid/loss, patience:"),
    ],
)
def test_a_spelling_is_answered_with_what_to_type(spelled, key):
    with pytest.raises(UsageError, match=f"--{key} 7"):
        check_spelling(spelled, "7")


def test_a_key_at_the_top_of_a_recipe_is_answered_too():
    with pytest.raises(UsageError, match=r"trainer\.max_epochs"):
        complete({"data": "digits", "epochs": 3})
    with pytest.raises(UsageError, match=r"optimizer\.lr 0\.5"):
        complete("image/digits", "debug", {"lr": 0.5})


@pytest.mark.parametrize("spelled", ["bf16", "fp16", "16", "64-true", "float32"])
def test_an_old_spelling_of_a_precision_is_answered_with_the_present_ones(spelled):
    with pytest.raises(UsageError, match="32-true, bf16-mixed"):
        complete("image/digits", None, [f"--trainer.precision={spelled}"])
    for known in ("32", "32-true", "bf16-mixed"):
        complete("image/digits", None, [f"--trainer.precision={known}"])
