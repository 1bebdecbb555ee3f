"""Commands that are advised run as they are printed: they are provoked, taken out of the line, and run.

Paths have a blank in them, components are a plug-in's, and the run is in a folder of its own.
"""

import random
import re
import shlex
import shutil
import signal
import sys

import pytest
from tiers import one_in

from seqkit.cli.main import main
from seqkit.files import read_mapping, write_json
from seqkit.registry import lookup

OWN = """
import os
import signal

import pytorch_lightning as pl
import torch

import seqkit
from seqkit.tokenizers.text import Words


@seqkit.register("tokenizer", "OwnWords", what="words", when="tests")
class OwnWords(Words): ...


@seqkit.register("callback", "Stops", what="stops after a step", when="tests")
class Stops(pl.Callback):
    def on_train_batch_start(self, *_):
        if number := os.environ.pop("STOPS", None):
            signal.raise_signal(int(number))
"""

SHORT = "--trainer.enable_progress_bar false --classical off"
PLUGIN = "--plugin 'my code/own.py'"
TEXTS = f"text/classify --data 'my texts.csv' --preset debug --tokenizer OwnWords {PLUGIN} {SHORT}"


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory):
    """The working folder: files of a user, and a finished run of a plug-in's tokenizer, `my runs/words`."""
    folder = tmp_path_factory.mktemp("at work")
    rng = random.Random(0)
    (folder / "my code").mkdir()
    (folder / "my code" / "own.py").write_text(OWN)
    rows = [
        f"{rng.gauss(i % 2, 1):.3f},{rng.choice('rgb')},{['yes', 'no'][i % 2]}" for i in range(60)
    ]
    (folder / "my table.csv").write_text("\n".join(["size,colour,label", *rows]) + "\n")
    rows = [f"a {['fine', 'awful'][i % 2]} film {i},{['ja', 'nein'][i % 2]}" for i in range(60)]
    (folder / "my texts.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    for i in range(8):
        text = folder / "my notes" / "ab"[i % 2] / f"note {i}.txt"
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text("to be, or not to be: " * (9 + i))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(lookup, "_REGISTERED", {kind: {} for kind in lookup.KINDS})
        run(f"fit {TEXTS} --trainer.max_steps 2 --out 'my runs/words'")
        yield folder


@pytest.fixture(autouse=True)
def _as_in_a_new_process(place, monkeypatch):
    """In the working folder, nothing registered, and no page written."""
    monkeypatch.chdir(place)
    forget(monkeypatch)


def forget(monkeypatch):
    monkeypatch.setattr(lookup, "_REGISTERED", {kind: {} for kind in lookup.KINDS})
    monkeypatch.delitem(sys.modules, "own", raising=False)


def run(words):
    """Exit code of a command, as typed into a shell."""
    try:
        return main(shlex.split(words))
    except SystemExit as left:
        return left.code


def advised(capsys, before=": "):
    """The last command that was advised, as a shell takes it, up to the end of what is a command."""
    said = capsys.readouterr()
    found = re.findall(rf"{before}seqkit ([^;`\n]+)", said.out + said.err)
    assert found, said
    return found[-1]


def copy_of(place, name):
    folder = place / "my runs" / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place / "my runs" / "words", folder)
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_unfinished_run_is_resumed_by_the_command_that_its_signal_prints(
    capsys, monkeypatch, number
):
    monkeypatch.setenv("STOPS", str(int(number)))
    stopping = f"fit {TEXTS} --trainer.callbacks [Stops] --out 'my runs/stopped by {number}'"
    assert run(stopping) == 128 + number
    resume = advised(capsys)
    assert resume == f"fit --resume 'my runs/stopped by {number}' --plugin 'my code/own.py'"
    for again in (f"evaluate 'my runs/stopped by {number}' {PLUGIN}", stopping):
        assert run(again) == 2
        assert advised(capsys) == resume
    forget(monkeypatch)
    assert run(resume) == 0


def test_a_run_that_is_trained_is_tested_by_the_command_that_resuming_prints(
    place, capsys, monkeypatch
):
    folder = copy_of(place, "trained")
    summary = read_mapping(folder / "summary.json") | {"state": "trained"}
    write_json(folder / "summary.json", summary)
    assert run(f"fit --resume 'my runs/trained' {PLUGIN}") == 2
    evaluate = advised(capsys)
    assert evaluate == "evaluate 'my runs/trained' --plugin 'my code/own.py'"
    forget(monkeypatch)
    assert run(evaluate) == 0


def test_a_run_without_a_good_checkpoint_is_trained_again(place, capsys, monkeypatch):
    monkeypatch.setenv("STOPS", "15")
    run(f"fit {TEXTS} --trainer.callbacks [Stops] --out 'my runs/damaged'")
    for path in (place / "my runs" / "damaged" / "checkpoints").glob("*.ckpt"):
        path.write_bytes(b"damaged")
    assert run(f"fit --resume 'my runs/damaged' {PLUGIN}") == 2
    assert advised(capsys) == "fit 'my runs/damaged/config.yaml' --plugin 'my code/own.py'"
    monkeypatch.chdir(place / "my runs")  # where the data's path, as it was given, leads nowhere
    assert run(f"fit --resume damaged {PLUGIN.replace('my', '../my')}") == 2
    again = advised(capsys)
    forget(monkeypatch)
    assert run(again) == 0


@pytest.mark.parametrize(
    "command",
    [
        "predict '../my runs/words' fine",
        "fit --resume '../my runs/unfinished'",
        pytest.param("doctor '../my runs/words'", marks=pytest.mark.slow),
    ],
)
def test_a_run_whose_plug_in_is_not_given_says_how_to_give_it(place, capsys, monkeypatch, command):
    (copy_of(place, "unfinished") / "summary.json").unlink()
    monkeypatch.chdir(place / "my code")
    assert run(command) == 2
    found = re.search(r"--plugin \S+\.py", capsys.readouterr().err)
    assert found
    assert run(f"{command} {found[0]}") in (0, 1)


def test_an_example_given_as_a_column_is_predicted_as_advised(capsys, monkeypatch):
    assert run(f"predict 'my runs/words' --input 'a fine film' {PLUGIN}") == 2
    forget(monkeypatch)
    assert run(advised(capsys)) == 0
    assert "a fine film\t" in capsys.readouterr().out


def test_the_command_that_stands_for_a_file_trains_it_as_it_did(capsys):
    assert (
        run(f"fit 'my table.csv' --trainer.max_steps 1 --out 'a run' --print_config {SHORT}") == 0
    )
    (line, config) = (said := capsys.readouterr()).err, said.out
    (runs,) = re.findall(r"this runs: seqkit (.*)", line)
    assert run(runs) == 0
    assert capsys.readouterr().out == config
    assert "--out 'a run'" in runs


def test_folders_of_texts_are_trained_by_either_of_two_commands(capsys):
    assert run("fit 'my notes'") == 2
    found = re.findall(r"seqkit (fit \S+ --data '[^']+')", capsys.readouterr().err)
    assert len(found) == 2
    for command in found:
        assert run(f"{command} --preset debug --print_config") == 0


@pytest.mark.slow
def test_a_new_component_is_checked_and_trained_by_the_commands_that_are_printed(
    capsys, monkeypatch
):
    for kind, name in (("tokenizer", "Beats"), ("backbone", "Waves")):
        assert run(f"new {kind} {name} --out 'new {kind}'") == 0
        check, fit = re.findall(r"^  seqkit (.+)$", capsys.readouterr().out, re.MULTILINE)
        assert run(f"{check} --quick") == 0
        forget(monkeypatch)
        monkeypatch.delitem(sys.modules, name.lower(), raising=False)
        assert run(f"{fit} --print_config") == 0
        forget(monkeypatch)


@pytest.mark.slow
def test_a_loss_that_does_not_fall_is_examined_as_advised(capsys, monkeypatch):
    monkeypatch.setattr("seqkit.analysis.tune.find_learning_rate", lambda prepared: None)
    assert run(f"tune {TEXTS.replace(' --classical off', '')} --data.limit 20") == 1
    doctor = advised(capsys)
    assert "--data.limit=20" in doctor
    forget(monkeypatch)
    assert run(doctor) in (0, 1)
    assert "text/classify" in capsys.readouterr().out


def test_a_model_of_another_library_is_used_as_its_import_says(capsys, place):
    from tests.test_docs import _own_bert

    _own_bert(place / "a bert")
    assert run("import 'a bert' 'my runs/bert'") == 0
    line = capsys.readouterr().out
    use = re.search(r"next    seqkit ([^;]+)", line)[1]
    assert run(use.replace("PATH", "'a fine film'")) == 0
    tune = re.search(r"to fine-tune: seqkit (.+)", line)[1]
    tune = tune.replace("RECIPE", "text/classify --data 'my texts.csv' --data.limit 20")
    assert "--model.init 'a bert'" in tune
    assert run(f"{tune} --print_config") == 0


# ── flags ────────────────────────────────────────────────────────────────────────────────────────────────────────────

FILES = {
    "dates.csv": (lambda i: f"{i % 9 + 1:02d}.03.2024,{i}", "when,size"),
    "gaps.csv": (lambda i: f"{'x' if i == 7 else f'{i * 7 % 11}.5'},{i % 3}", "size,count"),
    "groups.csv": (lambda i: f"p{i // 4},{i * 7 % 11}.5", "patient id,size"),
    "coded.csv": (lambda i: f"{'YN'[i % 2]},{i * 7 % 11}.5", "code,size"),
    "commas.csv": (lambda i: f'"{i % 9 + 1},{i * 37 % 900 + 100}",{i % 5}', "size,count"),
    "missing.csv": (lambda i: f"{'NA' if i == 7 else i * 7 % 11 + 0.5},{i % 3}", "size,count"),
    "no header.csv": (lambda i: f"{i * 7 % 11}.5,{i % 5}.5", None),
}
"""Tables: their rows and header, beside a column `label` of two classes."""

SHOWN = "--preset debug --print_config"
SEEN = "--data.window 9 --trainer.max_epochs 1 --trainer.max_steps 9000"
FLAGS = {
    "fit image/digits -lr 0.1": (r"type (--optimizer\.lr 0\.1)", f"fit image/digits {SHOWN}"),
    "fit image/digits --gpu": (r"type (--trainer\.accelerator gpu)", f"fit image/digits {SHOWN}"),
    "compare 'my table.csv'": (
        r"own data: (--data '[^']+')", f"fit multimodal/table {SHOWN}",
    ),
    "compare image/digits --vary model.backbone.depth=1,2": (
        r"add (--match none)", "compare image/digits --vary model.backbone.depth=1,2 --dry-run",
    ),
    f"fit text/char-lm --data 'a text.txt' {SEEN} --preset debug {SHORT}": (
        r"add (--trainer\.max_epochs -1)", f"fit image/digits {SHOWN}",
    ),
    "fit text/char-lm --data 'a text.txt' --data.window 9000": (r"give (--data\.window \d+) or", ""),
    "fit gaps.csv --data.columns '{size: number}'": (r"(--data\.skip_bad 1) leaves", ""),
    "fit groups.csv": (r"to test on new ones: (--data\.group '[^']+')", ""),
    "fit coded.csv": (r"before the target: (--data\.columns '[^']+')", ""),
    "fit commas.csv": (r"decimal sign: (--data\.forms '[^']+')", ""),
    "fit missing.csv": (r"empty cell; to change: (--data\.missing '\[\]')", ""),
    "fit 'no header.csv'": (r"names for all 3: (--data\.columns '[^']+')", ""),
    "fit 'my table.csv'": (r"to change: (--data\.columns '\{colour: text\}')", ""),
}  # fmt: skip
"""Commands, where their lines advise a flag, and the command that takes it; empty: the same one again."""


@pytest.fixture(scope="module")
def _tables(place):
    for name, (row, header) in FILES.items():
        rows = [f"{row(i)},{['yes', 'no'][i % 2]}" for i in range(60)]
        head = [] if header is None else [f"{header},label"]
        (place / name).write_text("\n".join([*head, *rows]) + "\n")
    (place / "a text.txt").write_text("to be, or not to be: " * 9)


@pytest.mark.usefixtures("_tables")
@pytest.mark.parametrize("command", one_in(2, FLAGS))
def test_a_flag_that_is_advised_is_taken_and_its_line_is_gone(capsys, caplog, command, tmp_path):
    pattern, then = FLAGS[command]
    step = f"--trainer.max_steps 1 {SHORT}" if command.startswith("fit") and not then else ""
    run(f"{command} {step} --out '{tmp_path}/first'" if step else command)
    found = re.search(pattern, capsys.readouterr().err + caplog.text)
    assert found
    caplog.clear()
    flag = found[1]
    out = f"--out '{tmp_path}/second'" if step else ""
    assert run(f"{then or command} {step} {out} {flag}") == 0
    assert not re.search(pattern, capsys.readouterr().err + caplog.text)
