"""`seqkit check` and `seqkit new`: a new file passes at once, and what is broken is named in one line."""

import subprocess
import sys

import pytest

from seqkit.cli.main import main
from seqkit.registry import KINDS, lookup


@pytest.fixture(autouse=True)
def _own_table(monkeypatch, tmp_path):
    monkeypatch.setattr(lookup, "_REGISTERED", {kind: {} for kind in KINDS})
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


def test_a_new_tokenizer_passes_its_check(capsys):
    assert main(["new", "tokenizer", "HeartBeats"]) == 0
    assert "heart_beats.py" in capsys.readouterr().out
    assert main(["check", "heart_beats.py", "--quick"]) == 0
    assert "HeartBeats keeps 1" in capsys.readouterr().out


@pytest.mark.slow
def test_a_new_tokenizer_passes_its_own_test(tmp_path):
    assert main(["new", "tokenizer", "HeartBeats"]) == 0
    code = "import test_heart_beats as t; t.test_heart_beats_keeps_the_laws()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)


def test_a_new_backbone_passes_its_check(capsys):
    assert main(["new", "backbone", "RunningMean"]) == 0
    assert "--model.backbone RunningMean --preset debug" in capsys.readouterr().out
    assert main(["check", "running_mean.py", "--depth", "1", "--quick"]) == 0
    assert "RunningMean keeps 2" in capsys.readouterr().out
    assert main(["new", "backbone", "LSTM"]) == 2
    assert "there is a backbone LSTM already" in capsys.readouterr().err


def test_the_device_of_a_check_is_given_and_one_that_is_not_here_is_an_error_of_one_line(capsys):
    assert main(["check", "MeanPool", "--device", "cpu", "--quick"]) == 0
    assert "MeanPool keeps 20" in capsys.readouterr().out
    assert main(["check", "MeanPool", "--device", "gpu"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "device gpu cannot be used here" in said


MECHANISM = """
from seqkit import register
from seqkit.nn.attention.features import ALL_FEATURES
from seqkit.nn.attention.mechanism import DenseScoreAttention, as_bias, repeat_kv, softmax

@register("mechanism", "Scaled")
class Scaled(DenseScoreAttention):
    supports = ALL_FEATURES

    def __init__(self, num_heads, head_dim):
        super().__init__()

    def attention_weights(self, q, k, context):
        return softmax(q @ repeat_kv(k, q).mT / 3 + (as_bias(q, k, context) == -float("inf")) * -1e9)
"""


def test_a_mechanism_that_does_not_use_what_it_supports_is_named(tmp_path, capsys):
    (tmp_path / "scaled.py").write_text(MECHANISM, encoding="utf-8")
    assert main(["check", "scaled.py", "--quick"]) == 2
    assert "Scaled: uses_the_bias: context.attn_mask" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Sinusoidal", "ALiBi"])
def test_positions_are_checked(capsys, name):
    assert main(["check", name, "--quick"]) == 0
    assert f"{name} keeps " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "fact"), [("Bytes", "Bytes"), ("two words", "name"), ("Json", "module json")]
)
def test_a_name_that_cannot_be_taken_is_refused(capsys, name, fact):
    assert main(["new", "tokenizer", name]) == 2
    assert fact in capsys.readouterr().err


def test_a_file_that_exists_is_not_overwritten(tmp_path, capsys):
    (tmp_path / "test_mine.py").write_text("kept", encoding="utf-8")
    assert main(["new", "tokenizer", "Mine"]) == 2
    assert "test_mine.py exists already" in capsys.readouterr().err
    assert (tmp_path / "test_mine.py").read_text() == "kept"
    assert not (tmp_path / "mine.py").exists()


def test_a_broken_law_is_one_line_with_class_law_and_example(tmp_path, capsys):
    main(["new", "tokenizer", "Mine"])
    source = (
        (tmp_path / "mine.py").read_text().replace("ids = torch", "print(raw)\n        ids = torch")
    )
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    capsys.readouterr()
    assert main(["check", "mine.py:Mine"]) == 2
    error = capsys.readouterr().err
    assert "Mine: leaves_the_process_alone: example 0: encode prints 'to be" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "fact"), [("leaky.py", "ZeroDivisionError"), ("gone.py", "no file")]
)
def test_a_file_that_does_not_run_is_named_as_it_was_given(tmp_path, capsys, name, fact):
    (tmp_path / "leaky.py").write_text("1 / 0\n")
    assert main(["check", name]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"seqkit check: {name}")
    assert fact in said
    assert "--plugin" not in said


def test_a_quick_check_says_which_laws_it_leaves_out(capsys):
    assert main(["check", "Bytes", "--quick", "--input", "one text", "--input", "and another"]) == 0
    said = capsys.readouterr().out
    assert "keeps_no_buffer, reads_all_of_an_example, is_the_same_in_another_process" in said
    assert "can_be_pickled" in said.splitlines()[0]


def test_what_cannot_be_checked_is_said_in_one_line(capsys, subtests):
    for words, fact in (
        ("Bytes", "two raw examples or more"),
        ("Byts", "did you mean Bytes"),
        ("LSTN", "did you mean LSTM"),
        ("seqkit.backbones.LSTM", "FILE.py:CLASS"),
        ("LSTM --depth", "--depth"),
        ("LSTM --depht 1", "LSTM cannot be built"),
        ("RNNDecoder", "one sequence"),
    ):
        with subtests.test(words):
            assert main(["check", *words.split()]) == 2
            error = capsys.readouterr().err
            assert fact in error
            assert error.count("\n") == 1
