"""Labels of other number types count as the plain ones; what is no number is named by split and sample."""

import json
import sys

import numpy as np
import pytest
import torch

from seqkit.cli.main import main
from seqkit.data import DataModule, DataSource, Loading, Sample, Selection, Splits
from seqkit.errors import DataError
from seqkit.objectives import Classify, Regress
from seqkit.tokenizers import Bytes

BITS = [0, 1, 1, 0, 1, 0, 0, 1, 1, 0]
NUMBERS = [0.5, 1.25, -2.0, 3.0, 0.75, 1.5, -0.25, 2.0, 8.0, -1.0]


class Own(DataSource):
    def __init__(self, labels, names=None):
        self.samples = [Sample("ab" * (i % 3 + 1), label) for i, label in enumerate(labels)]
        self.names = names

    def splits(self):
        return Splits(train=self.samples[2:], test=self.samples[:2], names=self.names)


def data(objective, labels, names=None):
    module = DataModule(
        Own(labels, names),
        Bytes(),
        objective,
        Loading(batch_size=3),
        Selection(valid_fraction=0.25),
    )
    module.setup()
    batches = [
        [found for _, found in loader]
        for loader in (module.train_dataloader(), module.test_dataloader())
    ]
    return module.sha256(), objective.state(), padded(batches[0] + batches[1])


def padded(batches):
    most = [max(sizes) for sizes in zip(*(found.shape[1:] for found in batches))]
    whole = [
        torch.nn.functional.pad(
            found, [x for n, m in zip(found.shape[:0:-1], most[::-1]) for x in (0, m - n)]
        )
        for found in batches
    ]
    return torch.cat(whole)


def assert_same(ours, theirs):
    assert ours[:2] == theirs[:2]
    torch.testing.assert_close(ours[2], theirs[2], rtol=0, atol=0, equal_nan=True)


INTEGERS = {
    "bool": bool, "numpy bool": np.bool_, "int8": np.int8, "int64": np.int64, "uint8": np.uint8,
    "array without axes": np.array, "tensor": torch.tensor,
}  # fmt: skip


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("names", [None, ["no", "yes"]])
def test_classes_of_another_type_are_the_plain_ones(kind, names):
    assert_same(
        data(Classify(), [INTEGERS[kind](x) for x in BITS], names), data(Classify(), BITS, names)
    )


@pytest.mark.parametrize(
    "kind", [np.float64, np.float32, np.float16, np.longdouble, np.array, float]
)
def test_measurements_of_another_type_are_the_plain_ones(kind):
    assert_same(data(Regress(), [kind(x) for x in NUMBERS]), data(Regress(), NUMBERS))
    several = [[kind(x), 2 * kind(x)] for x in NUMBERS]
    assert_same(data(Regress(), several), data(Regress(), [[x, 2 * x] for x in NUMBERS]))


@pytest.mark.parametrize("kind", [bool, np.bool_, np.int16])
def test_whole_numbers_are_measurements_too(kind):
    assert_same(data(Regress(), list(map(kind, BITS))), data(Regress(), BITS))


@pytest.mark.parametrize("kind", [np.bool_, np.int32, np.int64])
def test_an_array_of_classes_is_a_class_a_token(kind):
    each = [[(i + j) % 2 for j in range(2 * (i % 3 + 1))] for i in range(10)]
    plain = data(Classify(level="token"), [torch.tensor(x) for x in each])
    assert_same(data(Classify(level="token"), [np.array(x, kind) for x in each]), plain)
    assert_same(
        data(Classify(level="token"), [torch.tensor(x, dtype=torch.int32) for x in each]), plain
    )


def test_an_array_of_numbers_is_a_tensor_of_them():
    each = [[float(i + j) for j in range(2 * (i % 3 + 1))] for i in range(10)]
    plain = data(Regress(level="token"), [torch.tensor(x) for x in each])
    assert_same(data(Regress(level="token"), [np.array(x) for x in each]), plain)


@pytest.mark.parametrize("objective", [Classify, Regress])
def test_anything_else_names_split_and_sample(objective, subtests):
    places = [(1, "test data, sample 1"), (4, "training data, sample 2")]
    for bad in (
        "cat",
        {"a": 1},
        object(),
        {1},
        1j,
        np.array(["x"]),
        np.datetime64("2020-01-01"),
        [1, "two"],
    ):
        for place, name in places:
            labels = [*BITS[:place], bad, *BITS[place + 1 :]]
            with (
                subtests.test(f"{bad} in {name}"),
                pytest.raises(DataError, match=rf"^{name}: label is ") as refused,
            ):
                data(objective(), labels)
            assert "\n" not in str(refused.value)


PLUGIN = """
import numpy as np
from seqkit import register
from seqkit.data import DataSource, Sample, Splits

@register("data_source", "truths")
class Truths(DataSource):
    def __init__(self, kind: str = "bool"):
        self.kind = {"bool": bool, "numpy": np.bool_, "int": int, "text": str}[kind]

    def splits(self):
        samples = [Sample("ab" * (1 + i % 4), self.kind(i % 2)) for i in range(20)]
        return Splits(train=samples[6:], test=samples[:6], names=["no", "yes"])
"""


@pytest.mark.slow
def test_truths_train_from_the_command_line_and_words_are_refused_in_one_line(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "truths_plugin.py").write_text(PLUGIN)
    words = [
        "fit",
        "own/classify",
        "--preset",
        "debug",
        "--plugin",
        "truths_plugin.py",
        "--data.source",
        "truths",
    ]
    words += [
        "--trainer.enable_progress_bar",
        "false",
        "--trainer.max_steps",
        "2",
        "--classical",
        "off",
    ]
    monkeypatch.setattr("seqkit.report.page.write_report", lambda _: None)
    digests = []
    for kind in ("bool", "int"):
        assert main([*words, "--data.kind", kind, "--out", kind]) == 0
        digests.append(json.loads((tmp_path / kind / "summary.json").read_text())["data_sha256"])
        assert json.loads((tmp_path / kind / "state.json").read_text())["objective"]["names"] == [
            "no",
            "yes",
        ]
    assert digests[0] == digests[1]
    capsys.readouterr()
    assert main([*words, "--data.kind", "text"]) == 3
    error = capsys.readouterr().err
    assert "training data, sample 0: label is '0'" in error
    assert error.count("\n") == 1
    sys.modules.pop("truths_plugin", None)
