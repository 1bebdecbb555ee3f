"""`seqkit check` and `seqkit new`: a new file passes at once, and what is broken is named in one line."""

import json
import subprocess
import sys

import pytest

from seqkit.cli.main import main


@pytest.fixture(autouse=True)
def _own_table(monkeypatch, tmp_path):
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


@pytest.mark.slow
def test_a_new_backbone_passes_its_check(capsys):
    assert main(["new", "backbone", "RunningMean"]) == 0
    assert "--model.backbone RunningMean --preset debug" in capsys.readouterr().out
    assert main(["check", "running_mean.py", "--depth", "1", "--quick"]) == 0
    assert "RunningMean keeps " in capsys.readouterr().out
    assert main(["new", "backbone", "LSTM"]) == 2
    assert "there is a backbone LSTM already" in capsys.readouterr().err


@pytest.mark.slow
def test_the_device_of_a_check_is_given_and_one_that_is_not_here_is_an_error_of_one_line(capsys):
    assert main(["check", "MeanPool", "--device", "cpu", "--quick"]) == 0
    assert "MeanPool keeps " in capsys.readouterr().out
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


@pytest.mark.slow
def test_a_mechanism_that_does_not_use_what_it_supports_is_named(tmp_path, capsys):
    (tmp_path / "scaled.py").write_text(MECHANISM, encoding="utf-8")
    assert main(["check", "scaled.py", "--quick"]) == 1
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
    assert main(["check", "mine.py:Mine"]) == 1
    error = capsys.readouterr().err
    assert "Mine: leaves_the_process_alone: example 0: encode prints 'to be" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "fact"), [("unrunnable.py", "ZeroDivisionError"), ("gone.py", "no file")]
)
def test_a_file_that_does_not_run_is_named_as_it_was_given(tmp_path, capsys, name, fact):
    (tmp_path / "unrunnable.py").write_text("1 / 0\n")
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


MODULES = """
import torch
from torch import nn

class Smooth(nn.Module):
    def __init__(self, power):
        super().__init__()
        self.power = power

    def forward(self, x, valid):
        return self.power * x.masked_fill(~valid[..., None], 0.0).cumsum(dim=1)

class Leaky(Smooth):
    def forward(self, x, valid):
        return x.sum(dim=1, keepdim=True) + x

def smooth(power):
    return Smooth(power)

stack = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

def call(module, x, valid):
    return module(x) if isinstance(module, nn.Sequential) else module(x, valid)
"""


@pytest.mark.parametrize(
    "words",
    [
        "Smooth --dim 8 --causal true --power 3",
        "smooth --dim 8 --causal true --power 2",
        "stack --dim 8",
    ],
)
def test_a_class_a_function_and_a_module_of_a_file_are_checked(tmp_path, capsys, words):
    (tmp_path / "layers.py").write_text(MODULES, encoding="utf-8")
    name, *settings = words.split()
    assert main(["check", f"layers.py:{name}", *settings, "--quick"]) == 0
    assert f"{name} keeps " in capsys.readouterr().out


def test_all_broken_laws_are_lines_and_data(tmp_path, capsys):
    (tmp_path / "layers.py").write_text(MODULES, encoding="utf-8")
    words = [
        "check",
        "layers.py:Leaky",
        "--dim",
        "8",
        "--causal",
        "true",
        "--power",
        "1",
        "--quick",
    ]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert said.count("\n") > 1
    assert all(line.startswith("seqkit check: Leaky: ") for line in said.splitlines())
    assert main([*words, "--json", "--ignore", "batch_mates_change_nothing"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    broken = {fault["law"]: fault["size"] for fault in row["broken"]}
    assert len(broken) == said.count("\n") - 1
    assert broken["padding_changes_nothing"] > 0.01
    assert row["left_out"]["batch_mates_change_nothing"] == "ignored"
    assert not set(row["kept"]) & set(broken)
    assert main([*words, "--ignore", "batch_mates_change_nothin"]) == 2
    assert "batch_mates_change_nothing" in capsys.readouterr().err


@pytest.mark.slow
def test_a_published_model_is_checked_with_its_generate(capsys):
    pytest.importorskip("transformers")
    assert main(["check", "hf:llama", "--quick", "--json"]) == 0
    body, generated = json.loads(capsys.readouterr().out)
    assert "padding_changes_nothing" in body["kept"]
    assert "generate_beams_as_uncached" in generated["kept"]


@pytest.mark.slow
def test_a_fault_of_generate_has_its_size(capsys):
    pytest.importorskip("transformers")
    assert main(["check", "hf:jamba", "--quick", "--json"]) == 1
    faults = json.loads(capsys.readouterr().out)[1]["broken"]
    assert [fault["law"] for fault in faults] == ["generate_in_parts_as_at_once"]
    assert faults[0]["size"] > 1e-3


def test_blocks_of_timm_are_checked(capsys):
    pytest.importorskip("timm")
    words = ["--quick", "--embed_dim", "32", "--depth", "2", "--num_heads", "4"]
    assert main(["check", "timm:vit_tiny_patch16_224", *words]) == 0
    assert "padding_changes_nothing" in capsys.readouterr().out


@pytest.mark.parametrize("weights", ["pytorch_model.bin", "auto_map"])
def test_a_folder_runs_no_code_and_opens_no_pickle(tmp_path, capsys, weights):
    pytest.importorskip("transformers")
    from seqkit.testing.adapters import small_config

    config = small_config("llama").to_dict()
    if weights == "auto_map":
        config["model_type"] = "of_my_own"
        config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
        (tmp_path / "evil.py").write_text("open('ran', 'w')")
    else:
        (tmp_path / weights).write_bytes(b"no pickle")
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    code = main(["check", f"hf:{tmp_path}", "--quick"])
    assert code == (2 if weights == "auto_map" else 0)
    assert not (tmp_path / "ran").exists()
    assert capsys.readouterr().err.count("\n") <= 1


def test_a_published_model_that_is_not_there_is_one_line(capsys, subtests):
    for words, fact in (
        ("hf:llame", "did you mean llama"),
        ("timm:resnet18", "vision transformer"),
        ("hf:t5", "T5"),
        ("hf:llama --hidden_size many", "hidden_size"),
    ):
        pytest.importorskip("timm" if words.startswith("timm") else "transformers")
        with subtests.test(words):
            assert main(["check", *words.split()]) == 2
            error = capsys.readouterr().err
            assert fact in error
            assert error.count("\n") == 1


def test_a_library_that_is_not_installed_is_named_with_what_installs_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["check", "hf:llama"]) == 2
    assert "hf:llama needs transformers: pip install transformers" in capsys.readouterr().err
