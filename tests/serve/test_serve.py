"""`seqkit serve`: servers of two runs, asked as a client would, also by ones that mean harm or go away."""

import base64
import io
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which
from urllib.parse import urlsplit

import numpy as np
import pytest
import requests
import torch
from PIL import Image
from pyarrow.parquet import read_table

pytest.importorskip("litserve")

import seqkit
from seqkit.cli.main import main
from seqkit.errors import DataError, UsageError
from seqkit.runs.trained_model import load_one
from seqkit.serve.answers import ServedRun, of_like_lengths
from seqkit.serve.inputs import InputReader
from seqkit.serve.server import AnswersAPI, Embed, Predict

QUICK = {"trainer.enable_progress_bar": False, "trainer.accelerator": "cpu"}
JSON = {"Content-Type": "application/json"}
WORDS = [
    "fine",
    "a rather good day",
    "no",
    "a bad, bad and very long story about a bad day",
    "good",
]
STEADY = 1e-4
"""Largest difference of two probabilities of one text in batches of other sizes."""

PLUGIN = """
import torch
from pathlib import Path
from seqkit import Tokenizer, Tokens
from seqkit.interfaces import TokenSpec
from seqkit.registry import register
from seqkit.tokenizers.text import Characters

@register("tokenizer")
class Plain(Characters):
    "Text, as its base class reads it."

class Opens(Tokenizer):
    "The raw example is a path."
    spec = TokenSpec(vocab_size=256)

    def encode(self, raw):
        ids = torch.tensor(list(Path(raw).read_bytes()[:20]))
        return Tokens(ids, torch.arange(float(len(ids)))[:, None])
"""


def short_run(recipe, given, out):
    return seqkit.fit(
        recipe, {**QUICK, **given}, preset="debug", out=out, classical="off", report=False
    )


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder with one run, of texts of a table."""
    place = tmp_path_factory.mktemp("serve")
    rows = [f"{text},{label}" for text, label in (("a good day", "up"), ("a bad day", "down"))] * 20
    (place / "own.csv").write_text(
        "text,label\n" + "\n".join(f"{row}{i % 7}" for i, row in enumerate(rows))
    )
    given = {"data": str(place / "own.csv"), "data.input": "text", "data.target": "label"}
    short_run("text/classify", given, place / "own")
    return place


@pytest.fixture(scope="module")
def lm(own):
    """A language model."""
    (own / "plain.txt").write_text("the cat sat on the mat and the dog sat on the log. " * 40)
    short_run("text/char-lm", {"data": str(own / "plain.txt")}, own / "lm")
    return own / "lm"


@contextmanager
def served(run, *words, end=signal.SIGTERM):
    """A server of a run: its process and address. end: the signal that stops it, which leaves no traceback."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "seqkit",
        "serve",
        str(run),
        "--port",
        str(port),
        "--device",
        "cpu",
        *words,
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, start_new_session=True) as server:
        line = server.stdout.readline()
        assert line.startswith(f"serve  http://127.0.0.1:{port}  /"), line or server.stderr.read()
        try:
            yield server, f"http://127.0.0.1:{port}"
        finally:
            if end == signal.SIGINT:  # which a terminal sends to all processes
                os.killpg(server.pid, end)
            else:
                server.send_signal(end)
        assert server.wait(timeout=30) == 0
        assert server.stderr.read() == "", "neither a request nor the end left a traceback"


@pytest.fixture(scope="module")
def url(own):
    with served(own / "own", end=signal.SIGINT) as (_, address):
        yield address


@pytest.fixture(scope="module")
def lm_url(lm):
    with served(lm) as (_, address):
        yield address


def post(address, **given):
    return requests.post(address, json=given, timeout=40)


def printed(capsys, *words):
    """What a command prints as JSON Lines."""
    capsys.readouterr()
    assert main([*map(str, words), "--device", "cpu"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def assert_alike(answer, expected):
    assert answer["prediction"] == expected["prediction"]
    columns = {name: expected[f"probability of {name}"] for name in answer["probabilities"]}
    assert answer["probabilities"] == pytest.approx(columns, abs=STEADY)


# ── over HTTP ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_texts_that_come_at_once_get_the_answers_of_the_command(url, own, capsys):
    lines = printed(capsys, "predict", own / "own", *WORDS, "--probabilities", "--format", "jsonl")
    with ThreadPoolExecutor(16) as pool:
        inputs = [WORDS[i % 5] if i % 3 else None for i in range(48)]
        answers = list(
            pool.map(lambda one: post(f"{url}/predict", input=one, probabilities=True), inputs)
        )
    for i, answer in enumerate(answers):
        assert answer.status_code == (200 if i % 3 else 422)
        if i % 3:
            assert_alike(answer.json(), lines[i % 5])


@pytest.mark.slow
def test_vectors_are_those_of_the_command(url, own, tmp_path):
    words = [
        "predict",
        str(own / "own"),
        *WORDS,
        "--embed",
        "--out",
        str(tmp_path / "x.parquet"),
        "--device",
        "cpu",
    ]
    assert main(words) == 0
    for text, vector in zip(
        WORDS, read_table(tmp_path / "x.parquet")["vector"].to_pylist(), strict=True
    ):
        np.testing.assert_allclose(
            post(f"{url}/embed", input=text).json()["vector"], vector, atol=STEADY
        )


@pytest.mark.slow
def test_a_text_is_that_of_the_command_and_comes_in_pieces(lm_url, lm, capsys):
    assert main(["generate", str(lm), "--prompt", "the", "--tokens", "30", "--device", "cpu"]) == 0
    expected = capsys.readouterr().out.removesuffix("\n")
    answer = post(f"{lm_url}/generate", input="the", max_new_tokens=30)
    pieces = [json.loads(line)["text"] for line in answer.text.splitlines()]
    assert len(pieces) > 2
    assert "the" + "".join(pieces) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("predict", b"", 422, "required"),
        ("predict", b"[1]", 422, "object"),
        ("predict", b'{"input": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", 422, "nested"),
        ("predict", b'{"input": "\xff"}', 422, "no JSON"),
        ("predict", b'{"input": "a", "input": "b"}', 422, "'input' is given twice"),
        ("embed", b'{"input": {"a": 1, "a": 1}}', 422, "'a' is given twice"),
        ("predict", b'{"input": "a", "path": "x"}', 422, "path"),
        ("predict", b'{"input": {"a": 1}}', 422, "no text"),
        ("predict", b'{"input": NaN}', 422, "empty"),
        ("predict", b'{"input": "' + b"a" * 70_000 + b'"}', 422, "65,536"),
        ("embed", b'{"input": "' + b"a" * 5000 + b'"}', 422, "4,096"),
        ("generate", b'{"input": "a"}', 404, "Not Found"),
    ],
    ids=range(12),
)
def test_a_bad_request_has_one_line_that_says_why(url, path, body, status, says):
    answer = requests.post(f"{url}/{path}", body, headers=JSON, timeout=40)
    assert answer.status_code == status
    assert says in answer.json()["detail"]
    assert "\n" not in answer.json()["detail"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"input": ""}, "empty"),
        ({"input": "the" * 1400}, "4,096"),
        ({"input": "the", "temperature": -1}, "temperature"),
        ({"input": "the", "max_new_tokens": 10**9}, "4096"),
        ({"input": "the", "stop": [""]}, "stop"),
    ],
    ids=range(5),
)
def test_a_bad_request_for_a_text_is_no_stream(lm_url, given, says):
    answer = post(f"{lm_url}/generate", **given)
    assert answer.status_code == 422
    assert says in answer.json()["detail"]


@pytest.mark.slow
def test_bodies_that_are_too_large_or_no_json_and_other_hosts_are_refused(url):
    address = f"{url}/predict"
    # with a declared length, and in chunks
    for body in (b"a" * (2**23 + 1), (b"a" * 2**16 for _ in range(300))):
        with suppress(requests.ConnectionError):  # the rest of the body was not taken
            assert requests.post(address, body, headers=JSON, timeout=40).status_code == 413
    # by its header: the rest is not waited for
    host = urlsplit(address)
    with socket.create_connection((host.hostname, host.port), 40) as raw:
        raw.sendall(
            f"POST {host.path} HTTP/1.1\r\nHost: {host.netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: 99999999999\r\n\r\n{{".encode()
        )
        assert b" 413 " in raw.recv(100)
    # what a web page may send without being asked
    for headers in ({"Content-Type": "text/plain"}, {}):
        assert (
            requests.post(address, b'{"input": "a"}', headers=headers, timeout=40).status_code
            == 422
        )
    assert (
        requests.post(
            address, json={"input": "a"}, headers={"Host": "evil.example"}, timeout=40
        ).status_code
        == 400
    )


@pytest.mark.slow
def test_slow_clients_and_the_end_of_the_models_process_leave_the_server_to_others(own):
    psutil = pytest.importorskip("psutil")
    with served(own / "own", "--timeout", "5") as (server, url):
        host, port = url.removeprefix("http://").split(":")
        fields = (
            f"{name}: {x}\r\n"
            for name, x in {"Host": "localhost", **JSON, "Content-Length": 14}.items()
        )
        head = f"POST /predict HTTP/1.1\r\n{''.join(fields)}\r\n".encode()
        slow = [socket.create_connection((host, int(port))) for _ in range(50)]
        for i, one in enumerate(slow):
            one.sendall(head + (b'{"input": "a"}' if i % 5 else b'{"in'))
        for one in slow[1:]:
            one.close()
        assert post(f"{url}/predict", input="good").status_code == 200
        assert b"504" in slow[0].recv(100)
        slow[0].close()
        children = psutil.Process(server.pid).children()
        next(one for one in children if "spawn_main" in " ".join(one.cmdline())).kill()
        until = time.monotonic() + 60
        while (answer := post(f"{url}/predict", input="good")).status_code != 200:
            assert answer.json()["detail"] == "there was no answer within 5 seconds"
            assert time.monotonic() < until
        assert requests.get(f"{url}/health", timeout=40).text == "ok"


@pytest.mark.slow
@pytest.mark.skipif(which("curl") is None, reason="needs curl")
def test_the_commands_of_the_page_work(url, lm_url):
    page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
    lines = page.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert len(lines) >= 8
    for command, shown in zip(lines[::2], lines[1::2], strict=True):
        address = lm_url if "/generate" in command else url
        words = shlex.split(command.removeprefix("$ ").replace("http://localhost:8000", address))
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.partition(
            "\n"
        )[0]
        assert json.loads(said).keys() == json.loads(shown).keys(), command


@pytest.mark.slow
def test_the_process_of_the_model_imports_the_plug_ins(own):
    (own / "plain_plugin.py").write_text(PLUGIN)
    plugin = ["--plugin", str(own / "plain_plugin.py")]
    words = [
        "fit",
        "text/classify",
        "--data",
        str(own / "own.csv"),
        "--data.input",
        "text",
        "--data.target",
        "label",
    ]
    words += [
        "--tokenizer",
        "Plain",
        "--preset",
        "debug",
        "--classical",
        "off",
        "--out",
        str(own / "plugin"),
        *plugin,
    ]
    subprocess.run([sys.executable, "-m", "seqkit", *words], check=True, capture_output=True)
    with served(own / "plugin", *plugin) as (_, url):
        assert post(f"{url}/predict", input="a good day").status_code == 200


# ── without a server ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_client_cannot_name_a_file_to_a_tokenizer_that_opens_one(own):
    """The prediction for a text that is read as a path would tell of the file."""
    space = {}
    exec(PLUGIN.replace('@register("tokenizer")', ""), space)
    trained = load_one(own / "own")
    object.__setattr__(trained, "tokenizer", space["Opens"]())
    for kind in ("text", "category"):
        trained.config["data"]["source"]["columns"] = {"text": kind}
        with pytest.raises(UsageError, match="may take a client's text for the path of a file"):
            InputReader(trained)
    trained.config["data"]["source"] = {"type": "OfSomebodyElse"}
    reader = InputReader(trained)
    for value in (__file__, [__file__], {"base64": "AAAA"}, {"path": __file__}):
        with pytest.raises(DataError, match="no list of numbers"):
            reader.raw(value)
    assert reader.raw([1, 2]) == [1, 2]


@pytest.mark.slow
def test_an_image_is_its_content_and_no_name(tmp_path, capsys):
    run = short_run("image/digits", {}, tmp_path / "run")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)).save(
        tmp_path / "x.png"
    )
    words = [
        "predict",
        tmp_path / "run",
        tmp_path / "x.png",
        "--probabilities",
        "--format",
        "jsonl",
    ]
    (expected,) = printed(capsys, *words)
    huge = io.BytesIO()
    Image.new("1", (8000, 8000)).save(huge, "png")
    contents = [(tmp_path / "x.png").read_bytes(), b"no image", huge.getvalue()]
    inputs = [{"base64": base64.b64encode(content).decode()} for content in contents]
    inputs += [str(tmp_path / "x.png"), {"path": str(tmp_path / "x.png")}, {"base64": "###"}, None]
    good, *bad = ServedRun(run, 30.0).answers([("predict", one) for one in inputs])
    assert_alike(good, expected)
    says = [
        "cannot be read as an image",
        "megapixels",
        "by its content",
        "by its content",
        "not base64",
        "filled",
    ]
    for answer, fact in zip(bad, says, strict=True):
        assert answer["status"] == 422
        assert fact in answer["detail"]


def test_several_labels_are_named_as_by_the_command(tmp_path, capsys):
    rows = "\n".join(f"the train is {i},{i % 2},{i % 3 % 2}" for i in range(30))
    (tmp_path / "labels.csv").write_text(f"text,late,dirty\n{rows}\n")
    given = {
        "data": str(tmp_path / "labels.csv"),
        "data.input": "text",
        "data.target": ["late", "dirty"],
    }
    given["model.objective"] = "MultiLabel"
    trained = short_run("text/classify", given, tmp_path / "run")
    (answer,) = ServedRun(trained, 30.0).answers([("predict", "a train")])
    (expected,) = printed(capsys, "predict", tmp_path / "run", "a train", "--format", "jsonl")
    assert [*answer["prediction"]] == ["late", "dirty"]
    assert answer["prediction"] == pytest.approx(
        {name: expected[name] for name in ("late", "dirty")}, abs=STEADY
    )


def test_inputs_beyond_the_time_budget_of_encoding_are_refused(own):
    answers = ServedRun(load_one(own / "own"), -1.0).answers([("predict", "a"), ("embed", "b")])
    assert [one["status"] for one in answers] == [503, 503]


@pytest.mark.slow
def test_a_library_that_hangs_ends_the_process():
    code = "import time; from seqkit.serve.server import RunAPI\nwith RunAPI(None, 0.1).watched(): time.sleep(30)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "Timeout" in done.stderr


def test_an_answer_that_is_not_finite_is_an_error(own):
    run = ServedRun(load_one(own / "own"), 30.0)
    with torch.no_grad():
        next(iter(run.trained.model.head.parameters())).fill_(torch.nan)
    (answer,) = run.answers([("predict", "a good day")])
    assert "NaN" in answer["detail"]
    response = AnswersAPI(lambda: None, 30.0, 8).encode_response(
        ({"prediction": float("inf")}, False)
    )
    assert response.status_code == 500


def test_probabilities_of_a_run_without_classes_are_refused_in_one_line():
    api = AnswersAPI(lambda: None, 30.0, 8)
    refused = api.encode_response(({"prediction": 1.5}, True))
    assert refused.status_code == 422
    assert json.loads(refused.body) == {
        "detail": "this run predicts no classes; leave out probabilities"
    }
    assert api.encode_response(({"prediction": 1.5}, False)).status_code == 200
    late = {"status": 503, "detail": "the server is busy; try again"}
    assert api.encode_response((dict(late), True)).status_code == 503


def test_each_request_of_a_batch_gets_what_it_asks_for(own):
    api = AnswersAPI(lambda: ServedRun(load_one(own / "own"), 30.0), 30.0, 8)
    api.run = api.load()
    forms = [
        Predict(input="a"),
        Predict(input="a", probabilities=True),
        Embed(input="a"),
        Embed(input=3),
    ]
    bodies = [json.loads(api.encode_response(one).body) for one in api.predict(forms)]
    assert [sorted({*one} - {"warning"}) for one in bodies] == [
        ["prediction"], ["prediction", "probabilities"], ["vector"], ["detail"],
    ]  # fmt: skip


def test_only_inputs_of_like_lengths_share_a_batch():
    lengths = {0: 2000} | {i: 1 + i % 40 for i in range(1, 201)}
    batches = list(of_like_lengths(lengths))
    assert sorted(key for batch in batches for key in batch) == sorted(lengths)
    assert batches[-1] == [0]
    for batch in batches:
        longest = max(lengths[key] for key in batch)
        assert len(batch) * longest <= 4096
        assert longest <= max(32, 2 * min(lengths[key] for key in batch))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no-such"], "no run"),
        (["{run}", "--port", "{taken}"], "give another --port"),
        (["{run}", "--port", "80"], "1024"),
        (["{run}", "--host", "example.org"], "127.0.0.1"),
        (["{run}", "--timeout", "nan"], "--timeout"),
        (["{run}", "--device", "qpu"], "device qpu"),
    ],
)
# uvicorn leaves its socket open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_server_that_cannot_start_says_why_in_one_line(own, capsys, monkeypatch, words, says):
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the handler would stay in this process
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        given = [word.format(run=own / "own", taken=taken.getsockname()[1]) for word in words]
        assert main(["serve", *given]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_missing_extra_is_named(own, capsys, monkeypatch):
    monkeypatch.setattr("seqkit.cli.serve.find_spec", lambda name: None)
    assert main(["serve", str(own / "own")]) == 2
    assert 'pip install "seqkit[serve]"' in capsys.readouterr().err
