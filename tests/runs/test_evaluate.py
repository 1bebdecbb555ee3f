"""The baseline of a run: the best constant prediction is learned from training data and looked at on test data."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from trained_runs import kept_run

from seqkit.cli.main import main
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.objectives import Classify, Masked
from seqkit.runs.evaluate import baseline
from seqkit.runs.summary import read_summary


def batch(*contents):
    return TokenBatch.collate(
        [Tokens(ids, torch.arange(float(len(ids)))[:, None]) for ids in contents]
    )


def labelled(labels):
    """A batch of one token for each label."""
    return batch(*(torch.zeros(1, dtype=torch.long) for _ in labels)), torch.tensor(labels)


def data(train, test):
    return SimpleNamespace(train_dataloader=lambda: train, test_dataloader=lambda: test)


def test_frequencies_are_those_of_training_in_all_its_batches_and_the_loss_is_that_of_the_test():
    objective = Classify()
    objective.fit([0, 1], None)
    train, test = (
        [labelled([0, 0, 0, 1]), labelled([0, 1, 0])],
        [labelled([1, 1]), labelled([1, 1, 0])],
    )
    found, _ = baseline(objective, TokenSpec(vocab_size=7), data(train, test))
    # each count is one more
    assert found["loss"] == pytest.approx(-(4 * math.log(3 / 9) + math.log(6 / 9)) / 5)
    assert found["accuracy"] == pytest.approx(1 / 5)
    other, _ = baseline(objective, TokenSpec(vocab_size=7), data(test, train))
    assert other["accuracy"] == pytest.approx(2 / 7)


def test_a_baseline_masks_the_same_tokens_each_time_and_leaves_the_random_numbers_alone():
    generator = torch.Generator().manual_seed(0)
    batches = [(batch(torch.randint(7, (31,), generator=generator)), None) for _ in range(3)]
    torch.manual_seed(5)
    right = torch.rand(3)
    found = []
    for _ in range(2):
        torch.manual_seed(5)
        found.append(baseline(Masked(), TokenSpec(vocab_size=7), data(batches, batches)))
        assert torch.rand(3).equal(right)
    torch.manual_seed(6)
    assert (
        baseline(Masked(), TokenSpec(vocab_size=7), data(batches, batches)) == found[0] == found[1]
    )


@pytest.mark.slow
def test_a_metric_that_is_not_defined_on_the_test_split_is_named_and_no_number_is_made_up(
    tmp_path, capsys
):
    for name, verdicts in (("train", ["good", "bad"]), ("test", ["good"])):
        rows = [f"a review of item {i},{verdicts[i % len(verdicts)]}\n" for i in range(12)]
        (tmp_path / f"{name}.csv").write_text("text,verdict\n" + "".join(rows), encoding="utf-8")
    words = [
        "--data",
        str(tmp_path / "train.csv"),
        "--data.test",
        str(tmp_path / "test.csv"),
        "--data.target",
        "verdict",
    ]
    metrics = [
        "--model.objective.metrics",
        "[AUROC, MatthewsCorrCoef, AveragePrecision]",
        "--trainer.max_epochs",
        "1",
        "--classical",
        "off",
    ]
    assert (
        main(
            [
                "fit",
                "text/classify",
                "--preset",
                "debug",
                *words,
                *metrics,
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 0
    )
    log = (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
    assert "undefined on the test split, where targets are all alike: auroc" in log
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["auroc"] == "–  (undefined on this split)"
    assert shown["matthews"] == "0.0000"
    positive = read_summary(tmp_path / "run")["positive"]
    assert positive in ("good", "bad")
    assert shown["average_precision"].startswith(f"of {positive} ")


def test_examples_of_a_text_are_counted_in_windows_in_every_split():
    summary = read_summary(Path(kept_run()))
    assert summary["num_valid"] > 1, "one document, several windows"
