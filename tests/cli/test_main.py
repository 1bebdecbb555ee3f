"""The command line: exit codes, and one line for what a user can get wrong."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from seqkit.cli.main import main
from seqkit.registry import find


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("broken.py", "def x(:\n", "SyntaxError"),
        ("fails.py", "1 / 0\n", "ZeroDivisionError"),
        ("leaves.py", "raise SystemExit(5)\n", "SystemExit: 5"),
        ("json.py", "", "module json"),
        ("my-components.py", "", "name could be imported"),
        ("components.txt", "", "name could be imported"),
        (
            "twice.py",
            "import seqkit\n@seqkit.register('tokenizer', 'Bytes')\nclass B(seqkit.Tokenizer): ...\n",
            "'Bytes'",
        ),
    ],
)
def test_a_plug_in_that_does_not_run_is_said_in_one_line(tmp_path, capsys, name, content, message):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert main(["fit", "text/char-lm", "--plugin", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


OWN = """import seqkit
from seqkit.backbones.sequence import SequenceBackbone

@seqkit.register("backbone", "Own")
class Own(SequenceBackbone):
    def __init__(self, dim: int, causal: bool = False):
        super().__init__()
        self.dim = dim
        self.causal = causal

    def run(self, embedded, cache):
        {}
"""


@pytest.mark.slow
def test_a_fault_in_a_plug_in_is_one_line_with_its_place(tmp_path, capsys):
    file = tmp_path / "faulty_forward.py"
    body = "return embedded.hidden.no_such\n\n    def new_cache(self):\n        return None"
    file.write_text(OWN.replace('"Own"', '"Faulty"').format(body), encoding="utf-8")
    words = ["image/digits", "--plugin", str(file), "--model.backbone", "Faulty"]
    assert main(["list", *words]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"seqkit list: {file}, line 12, in run: AttributeError: 'Tensor' ")
    assert error.count("\n") == 1
    made = find("backbone", "Faulty").load()(4, causal=True)
    with pytest.raises(ValueError, match=r"Own\.new_cache gives None; return a Cache"):
        made.init_cache(9)


def test_a_method_that_a_plug_in_lacks_is_named(tmp_path, capsys):
    file = tmp_path / "lacking.py"
    file.write_text(
        OWN.replace('"Own"', '"Lacking"').format("return embedded.hidden"), encoding="utf-8"
    )
    words = ["--plugin", str(file), "--model.backbone", "Lacking"]
    for command in (["list", "image/digits", *words], ["check", f"{file}:Own"]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "has no new_cache, which its base class leaves to it; write it" in said
        assert "settings" not in said


@pytest.mark.parametrize(
    "words",
    [["--recipe", "text/classify"], ["t.csv", "--recipe=text/classify"], ["--recipe", "t.csv"]],
)
def test_a_recipe_behind_a_flag_is_answered_with_how_it_is_named(
    words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("text,label\n", encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        main(["fit", *words])
    assert left.value.code == 2
    name = words[-1].rpartition("=")[2]
    assert capsys.readouterr().err.endswith(
        f"stands without --recipe, and your data behind --data: seqkit fit {name}\n"
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_an_empty_one(tmp_path, closed):
    script = f'"{sys.executable}" -m seqkit list backbones {closed}'
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ("Transformer" in done.stdout) == (">&-" not in closed.split())


def test_two_keys_that_agree_or_set_different_values_are_no_mistake(capsys):
    words = ["--optimizer.lr", "0.5", "--optimizer={lr: .5}", "--optimizer.weight_decay=0.25"]
    assert main(["fit", "image/digits", "--print_config", *words]) == 0
    said = capsys.readouterr().out
    assert "lr: 0.5\n" in said
    assert "weight_decay: 0.25\n" in said


def test_keys_are_explained_and_printed(capsys):
    assert main(["fit", "image/digits", "--keys"]) == 0
    said = capsys.readouterr().out
    assert "--model.backbone.block.mlp.ratio 4.0\n    A number. " in said
    assert not [
        line for line in said.splitlines() if line.startswith("    ") and line.endswith(". ")
    ]
    sentences = [line.strip() for line in said.splitlines() if line.startswith("    ")]
    assert "A whole number of at most 65,536. Width." in sentences
    assert all(line[0] in "`(" or not line[0].islower() for line in sentences)
    assert not [
        line for line in sentences if re.match(r".*?(number|text|false|null)\. [a-z]", line)
    ]
    assert main(["fit", "image/digits", "--print_config", "--seed", "7"]) == 0
    assert "seed: 7\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "what", ["recipes", "data", "backbone", "relative_positions", "mlps", "activations"]
)
def test_lists_name_what_there_is(capsys, what):
    assert main(["list", what]) == 0
    assert capsys.readouterr().out.count("\n") > 3


START = """
import sys
from seqkit.cli.main import main
print("ready", flush=True)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("delay", [0.05, 0.4, pytest.param(1.6, marks=pytest.mark.slow)])
def test_ctrl_c_while_it_starts_is_one_line_and_130(delay, tmp_path):
    command = [sys.executable, "-c", START, "tune", "graph/karate", "--preset", "debug"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(delay)
        os.kill(process.pid, signal.SIGINT)
        error = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert error.count("\n") == 1, error


def test_the_version_says_which_seqkit_it_is(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"seqkit \d[\w.]* at .+\n", capsys.readouterr().out)


def test_an_error_is_one_line_and_with_traceback_the_stack_too(capsys):
    assert main(["predict", "nosuch", "x"]) == main(["predict", "nosuch", "x", "--traceback"]) == 2
    short, _, stack = capsys.readouterr().err.partition("Traceback")
    assert short.count("\n") == 1
    assert "in check_trained" in stack
    assert stack.endswith(short)


def test_a_mistake_of_ours_is_raised_as_it_is_whatever_the_command_takes(monkeypatch):
    from seqkit.cli import compare

    monkeypatch.setattr(compare, "run", lambda args: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        main(["compare", "image/digits"])
