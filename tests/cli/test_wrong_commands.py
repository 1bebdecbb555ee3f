"""Wrong commands: the exit code, and one line that says what is wrong, where, and what to do."""

import os
import shlex
import signal
import socket
import subprocess
import sys

import pytest

import seqkit
from seqkit.cli.main import main

OF_COMMAND = {
    "fti text/char-lm": "there is no command 'fti'; did you mean fit?",
    "--foo": "there is no command '--foo'; see seqkit --help",
    "predict": "it needs run; see seqkit predict --help",
    "attention RUN": "it needs --input or --example; see seqkit attention --help",
    "export RUN --to onx": "--to is 'onx'; did you mean onnx?",
    "new tokeniser X": "kind is 'tokeniser'; did you mean tokenizer?",
    "fit text/char-lm --out": "--out has no value; write --out VALUE",
    "serve RUN --port x": "'x' is not a whole number",
    "fit text/charlm": "did you mean text/char-lm",
    "fit text/char-lm --preset debgu": "did you mean debug",
    "fit text/char-lm --model.bakbone LSTM": "did you mean model.backbone",
    "predict nosuch x": "nosuch is no run",
    "generate nosuch --tokens 0": "nosuch is no run",
    "report nosuch": "nosuch is no run",
    "compare table.csv": "compare takes a recipe (your own data: --data table.csv), or folders",
    "list nosuch": "'nosuch'",
    "evaluate nosuch --foo": "--foo",
    "fit text/char-lm --plugin recipes": "recipes is a folder",
    "fit recipes": "recipes is a folder",
    "inspect image/digits --out table.csv": "table.csv names a file",
    "fit image/digits -lr 0.1": "--optimizer.lr 0.1",
    "fit -lr 0.1 image/digits": "--optimizer.lr 0.1",
    "fit image/digits --gpu": "--trainer.accelerator gpu",
    "fit --resume=": "--resume",
    "fit image/digits --resume ''": "--resume",
    "fit --resume nosuch --print_config": "--print_config",
    "inspect image/digits --lr 1": "--optimizer.lr 1",
    "fit --seed 2 text/charlm": "did you mean text/char-lm",
    "fit ms/nofile.csv": "no file ms/nofile.csv",
    "fit nofile.JSONL.gz": "no file nofile.JSONL.gz",
    "fit text/chr-lm": "no recipe called 'text/chr-lm'",
    "fit text/char-lm --plugin nosuch.py": "nosuch.py is no file",
    "list gpt3": "did you mean gpt2",
    "list gpt2 --seed 2": "takes no keys",
    "list tokenizers --seed 2": "keys are a recipe's",
    "fit text/char-lm image/digits": "one recipe or file is taken",
    "fit table.csv crlf.csv": "one recipe or file is taken",
    "fit text/char-lm --seed two": "seed is 'two'; give a whole number",
    "fit text/char-lm --trainer.max_steps -5": "give a whole number of at least 1 or -1",
    "fit text/char-lm --data.batch_size -3": "data.batch_size is -3; give at least 1",
    "fit text/char-lm --model.backbone.dim 0": "dim=0; make it 1 or more",
    "fit text/char-lm --model.backbone Transfomer": "did you mean Transformer?",
    "fit text/char-lm --data": "--data has no value; write --data VALUE",
    "fit text/char-lm --data nosuch.txt": "there is no file or folder nosuch.txt",
    "fit text/char-lm --trainer.accelerator tpuu": "Available names are",
    "fit 'a folder.csv'": "it holds no files",
    "fit --resume RUN": "is finished, so there is nothing to resume",
    "fit --resume 'a folder.csv'": "is no run: it has no config.yaml",
    "fit text/char-lm --out RUN": "never overwritten; give another folder",
    "fit text/char-lm --data text.txt --preset debug --data.window 9 --out text.txt/run": "give another --out",
    "import nosuch new": "nosuch does not exist; give a model's folder",
    "import 'a folder.csv' table.csv": "table.csv exists already, and a run is never overwritten; give another folder",
    "predict 'a folder.csv' x": "is no run: it has no config.yaml; give a folder",
    "predict table.csv x": "is no run: it has no config.yaml; give a folder",
    "predict RUN": "give inputs: files, folders, tables",
    "predict RUN x": "use `seqkit generate` to continue a text",
    "predict RUN x --embed --device gpuu": "give auto, cpu, cuda or mps",
    "predict RUN x --embed --out nodir/x.csv": "is in no folder; make ",
    "predict RUN x --embed --out text.txt/x.csv": "is in no folder; give another file",
    "predict RUN text.txt --embed --out text.txt": "is an input of this command",
    "predict RUN 'to be' --embed --out /proc/x.csv": "/proc/x.csv cannot be written",
    "export RUN --to torch --out /proc/x.pt2": "/proc/x.pt2 cannot be written",
    "export RUN --to safetensors --out text.txt/x": "text.txt/x cannot be written",
    "attention RUN --input 'to be' --out /proc/x": "/proc/x cannot be written",
    "new tokenizer Mine --out table.csv": "table.csv cannot be written",
    "compare text/char-lm --out table.csv": "give another --out",
    "compare RUN nosuch": "nosuch is no run folder",
    "compare image/digits --backbones LSTM,GRU --trainer.devices auto": "takes one device: give --trainer.devices 1",
    "compare image/digits --backbones LSTM,GRU --trainer.devices 2": "takes one device: give --trainer.devices 1",
    "compare screen text/char-lm": "screen stands alone",
    "compare LSTM GRU image/digits": "type seqkit compare image/digits --backbones LSTM,GRU",
    "compare image/digits RUN": "image/digits is no run folder; give one recipe, or folders of runs",
    "train table.csv": "there is no command 'train'; type seqkit fit",
    "test RUN": "there is no command 'test'; type seqkit evaluate",
    "recipes": "there is no command 'recipes'; type seqkit list recipes",
    "help fit": "there is no command 'help'; type seqkit --help",
    "version": "there is no command 'version'; type seqkit --version",
    "eval RUN": "there is no command 'eval'; did you mean evaluate?",
    "export RUN": "it needs --to torch|onnx|hf|safetensors; see seqkit export --help",
    "fit --data table.csv": "or your data alone: seqkit fit table.csv",
    "fit image/digits --debug": "there is no key 'debug'; type --preset debug",
    "fit image/digits --epochs 5": "there is no key 'epochs'; type --trainer.max_epochs 5",
    "fit image/digits --batch-size 64": "there is no key 'batch-size'; type --data.batch_size 64",
    "fit digits": "there is no recipe called 'digits'; did you mean image/digits?",
    "compare text/char-lm --backbones ''": "--backbones names none; give names such as",
    "compare text/char-lm --preset debug --vary tokenizer=Bytes,Characters": "is 64; add --data.limit null",
    "compare text/char-lm --seeds 0": "--seeds is 0; give 1 or more",
    "generate RUN --tokens -3": "give 1 or more",
    "generate RUN --temperature -1": "make it 0 (greedy) or more",
    "serve RUN --port 80": "--port is 80; give 1024 to 65535",
    "serve RUN --host example.com": "--host is example.com; give one of",
    "scale nosuch": "nosuch is no folder; give one that holds runs",
    "doctor --seed 2": "give its name or its YAML file",
    "fit broken.yaml": "is not readable as YAML",
    "fit empty.yaml": "is empty; write `key: value` lines",
}
"""Commands that are wrong by themselves, with a fact of their line. They end with 2."""

OF_DATA = {
    "fit empty.csv": "is empty (0 bytes); give a table",
    "fit text/char-lm --data empty.txt --preset debug": "is empty (0 bytes)",
    "fit header.csv": "and no rows; add some",
    "fit latin.csv": "is not UTF-8: byte 0xfc at offset 13, line 2; save it as UTF-8",
    "fit text/char-lm --data latin.txt --preset debug": "save it as UTF-8",
    "fit table.csv --data.target nosuch": "has no column 'nosuch'; there are: label, size",
    "predict RUN nosuch.txt --embed": "'nosuch.txt' is no file; give a file, or the text",
    "predict RUN 'a folder.csv' --embed": "holds no file to read",
    "predict RUN '' --embed": "'' is nothing; give a file",
    "predict DAMAGED x --embed": "summary.json is damaged",
    "generate RUN --prompt XYZ": "is not in the alphabet",
}
"""Commands whose data is wrong. They end with 3."""


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory):
    """The working folder, with a finished run and files of all kinds."""
    folder = tmp_path_factory.mktemp("wrong")
    rows = [f"{i * 7 % 11}.5,{['yes', 'no'][i % 2]}" for i in range(40)]
    table = "\n".join(["size,label", *rows]) + "\n"
    (folder / "table.csv").write_text(table)
    (folder / "crlf.csv").write_bytes(table.replace("\n", "\r\n").encode())
    (folder / "bom.csv").write_bytes(b"\xef\xbb\xbf" + table.encode())
    (folder / "header.csv").write_text("size,label\n")
    (folder / "latin.csv").write_bytes(
        ("text,label\n" + "Grüße,ja\nMaß,nein\n" * 20).encode("latin-1")
    )
    (folder / "latin.txt").write_bytes(("Größe und Maß. " * 200).encode("latin-1"))
    (folder / "text.txt").write_text("to be, or not to be: " * 30)
    (folder / "broken.yaml").write_text("data: {source: [unclosed\n")
    for name in ("empty.csv", "empty.txt", "empty.yaml"):
        (folder / name).touch()
    (folder / "a folder.csv").mkdir()
    (folder / "recipes").mkdir()
    (folder / "recipes" / "mine.yaml").write_text("data: digits\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        settings = {"data": "text.txt", "data.window": 9, "trainer.max_steps": 2}
        seqkit.fit("text/char-lm", settings, preset="debug", out="RUN", report=False)
        (folder / "DAMAGED").mkdir()
        for path in ("config.yaml", "state.json"):
            (folder / "DAMAGED" / path).write_bytes((folder / "RUN" / path).read_bytes())
        (folder / "DAMAGED" / "summary.json").write_text("{")
        yield folder


@pytest.fixture(autouse=True)
def _in_the_working_folder(place, monkeypatch):
    monkeypatch.chdir(place)


def ends_with(command):
    try:
        return main(shlex.split(command))
    except SystemExit as left:  # of argparse
        return left.code


def check(command, code, fact, capsys):
    assert ends_with(command) == code
    error = capsys.readouterr().err
    (line,) = [line for line in error.splitlines() if "this runs: " not in line]
    assert line.startswith("seqkit")
    assert fact in line


@pytest.mark.slow
def test_a_wrong_command_ends_with_2_and_one_line(capsys, subtests):
    for command, fact in OF_COMMAND.items():
        with subtests.test(command):
            check(command, 2, fact, capsys)


def test_wrong_data_ends_with_3_and_one_line(capsys, subtests):
    for command, fact in OF_DATA.items():
        with subtests.test(command):
            check(command, 3, fact, capsys)


@pytest.mark.parametrize("name", ["table.csv", "crlf.csv", "bom.csv"])
def test_line_ends_and_byte_order_marks_are_no_fault(name, capsys, caplog):
    """A control: the same table, as other systems write it."""
    words = "--trainer.max_steps 1 --classical off --trainer.enable_progress_bar false"
    assert ends_with(f"fit {name} {words} --out {name}-run") == 0
    assert "number: 'size'" in caplog.text
    assert "32 training, 8 test rows" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # uvicorn's socket
def test_a_port_in_use_is_said(capsys, monkeypatch):
    monkeypatch.setattr("signal.signal", lambda *_: None)  # else SIGTERM would be the server's
    pytest.importorskip("litserve")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        check(f"serve RUN --port {port}", 2, "cannot be used; give another --port", capsys)


def test_a_file_that_a_command_cannot_open_is_named_without_errno(capsys, monkeypatch):
    def run(args):
        raise PermissionError(13, "Permission denied", "/there/data.csv")

    monkeypatch.setattr("seqkit.cli.runs.run", run)
    check("runs .", 3, "/there/data.csv: Permission denied; check the path", capsys)


def test_a_full_disk_is_no_mistake_in_the_command(capsys, monkeypatch):
    def run(args):
        raise OSError(28, "No space left on device", str(args.out / "figure.png"))

    monkeypatch.setattr("seqkit.cli.scale.run", run)
    check("scale . --out pictures", 3, "pictures cannot be written (No space left", capsys)


def test_a_closed_pipe_ends_what_rich_prints_with_141_and_no_line():
    """As in `seqkit list | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "seqkit", "list", "backbones"]
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")
