"""`seqkit serve`: one server of three runs, asked as a client would, also by ones that mean harm or go away."""

import base64
import json
import shlex
import socket
import struct
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from shutil import which
from types import SimpleNamespace

import numpy as np
import pytest
import requests
from PIL import Image
from pyarrow.parquet import read_table

import seqkit
from seqkit.cli.main import main
from seqkit.data.inputs import example_of
from seqkit.data.tables.schema import Column, Schema
from seqkit.errors import DataError, UsageError
from seqkit.runs.trained_model import load_one
from seqkit.serve.limits import Limits
from seqkit.serve.requests import Inputs, RequestError, parse
from seqkit.serve.server import RunsServer, told_hang
from seqkit.serve.worker import ServedRun, Worker

QUICK = {"trainer.enable_progress_bar": False, "trainer.accelerator": "cpu"}
JSON = {"Content-Type": "application/json"}
WORDS = ["fine", "a rather good day", "no", "a bad, bad and very long story about a bad day", "good"]
STEADY = 1e-4
"""Largest difference of two probabilities of one text in batches of other sizes."""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def short_run(recipe, given, out):
    return seqkit.fit(recipe, {**QUICK, **given}, preset="debug", out=out, strong_baseline=False, report=False)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder with one run, of texts of a table."""
    place = tmp_path_factory.mktemp("serve")
    rows = [f"{text},{label}" for text, label in (("a good day", "up"), ("a bad day", "down"))] * 20
    (place / "own.csv").write_text("text,label\n" + "\n".join(f"{row}{i % 7}" for i, row in enumerate(rows)))
    given = {"data": str(place / "own.csv"), "data.input": "text", "data.target": "label"}
    short_run("text/classify", given, place / "own")
    return place


@pytest.fixture(scope="module")
def folder(own):
    """Three runs: digits, texts of a table, and a language model."""
    (own / "plain.txt").write_text("the cat sat on the mat and the dog sat on the log. " * 40)
    short_run("image/digits", {}, own / "digits")
    short_run("text/char-lm", {"data": str(own / "plain.txt")}, own / "lm")
    return own


@pytest.fixture(scope="module")
def process():
    """Number of the server's first process, once it runs."""
    return {}


@pytest.fixture(scope="module")
def url(folder, process):
    """Address of a server of the three runs."""
    port = free_port()
    words = ["serve", *(str(folder / name) for name in ("digits", "own", "lm")), "--port", str(port), "--device", "cpu"]
    command = [sys.executable, "-m", "seqkit", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        line = server.stdout.readline()
        assert line.startswith(f"serve  http://127.0.0.1:{port}  digits: predict, embed (image); own: "), (
            line or server.stderr.read()
        )
        process["pid"] = server.pid
        yield f"http://127.0.0.1:{port}"
        server.terminate()
        assert server.wait(timeout=30) == 0
        assert server.stderr.read() == "", "neither a request nor the end left a traceback"


def post(address, **given):
    return requests.post(address, json=given, timeout=40)


def png(height, width):
    """A small PNG that declares this size."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(bytes(10**6))), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def printed(capsys, *words):
    """What a command prints as JSON Lines."""
    capsys.readouterr()
    assert main([*map(str, words), "--device", "cpu"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def assert_alike(answer, expected):
    assert answer["prediction"] == expected["prediction"]
    assert answer["probabilities"] == pytest.approx(expected["probabilities"], abs=STEADY)


@pytest.mark.slow
def test_texts_of_a_ragged_batch_get_the_answers_of_the_command(url, folder, capsys):
    lines = printed(capsys, "predict", folder / "own", *WORDS, "--probabilities", "--format", "jsonl")
    together = post(f"{url}/own/predict", inputs=WORDS, probabilities=True).json()["results"]
    for text, answer, expected in zip(WORDS, together, lines):
        assert_alike(answer, expected)
        assert_alike(post(f"{url}/own/predict", input=text, probabilities=True).json(), expected)


@pytest.mark.slow
def test_an_image_gets_the_answer_of_the_command_as_base64_and_as_the_body(url, folder, tmp_path, capsys):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    (expected,) = printed(
        capsys, "predict", folder / "digits", tmp_path / "x.png", "--probabilities", "--format", "jsonl"
    )
    content = (tmp_path / "x.png").read_bytes()
    coded = {"base64": base64.b64encode(content).decode()}
    assert_alike(post(f"{url}/digits/predict", input=coded, probabilities=True).json(), expected)
    sent = requests.post(f"{url}/digits/predict", content, headers={"Content-Type": "image/png"}, timeout=40)
    assert sent.json()["prediction"] == expected["prediction"]


@pytest.mark.slow
def test_vectors_are_those_of_the_command(url, folder, tmp_path):
    assert (
        main(
            ["predict", str(folder / "own"), *WORDS, "--embed", "--out", str(tmp_path / "x.parquet"), "--device", "cpu"]
        )
        == 0
    )
    results = post(f"{url}/own/embed", inputs=WORDS).json()["results"]
    vectors = read_table(tmp_path / "x.parquet")["vector"].to_pylist()
    np.testing.assert_allclose([one["vector"] for one in results], vectors, atol=STEADY)


@pytest.mark.slow
def test_a_text_is_that_of_the_command_whole_and_streamed_and_beside_others(url, folder, capsys):
    assert main(["generate", str(folder / "lm"), "--prompt", "the", "--tokens", "30", "--device", "cpu"]) == 0
    expected = capsys.readouterr().out.removesuffix("\n")
    asked = {"input": "the", "max_new_tokens": 30}
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(post, f"{url}/lm/generate", input="a", max_new_tokens=40, seed=i) for i in range(3)]
        assert "the" + post(f"{url}/lm/generate", **asked).json()["text"] == expected
        assert len({one.result().json()["text"] for one in others}) == 3
    streamed = requests.post(f"{url}/lm/generate", json={**asked, "stream": True}, timeout=40, stream=True)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line.removeprefix(b"data: ")) for line in streamed.iter_lines() if line]
    assert events[-1] == {"end": "done"}
    assert len(events) > 2
    assert "the" + "".join(one.get("text", "") for one in events) == expected


@pytest.mark.slow
def test_one_bad_input_leaves_the_others_of_its_batch_alone(url):
    good = post(f"{url}/own/predict", inputs=WORDS).json()["results"]
    mixed = post(f"{url}/own/predict", inputs=[WORDS[0], 3, *WORDS[1:3], "", *WORDS[3:]]).json()["results"]
    assert [one for one in mixed if "error" not in one] == good
    assert [i for i, one in enumerate(mixed) if "error" in one] == [1, 4]
    with ThreadPoolExecutor(16) as pool:
        sent = [pool.submit(post, f"{url}/own/predict", input=WORDS[i % 5] if i % 3 else None) for i in range(48)]
        for i, one in enumerate(sent):
            assert one.result().status_code == (200 if i % 3 else 422)
            assert one.result().json().get("prediction") == (good[i % 5]["prediction"] if i % 3 else None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("own/predict", b"", 400, "no JSON"),
        ("own/predict", b"[1]", 400, "no JSON object"),
        ("own/predict", b'{"input": NaN}', 400, "NaN"),
        ("own/predict", b'{"input": 1e999}', 400, "infinite"),
        ("own/predict", b'{"input": "\xff"}', 400, "utf-8"),
        ("own/predict", b'{"input": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", 400, "nested"),
        ("own/predict", b'{"input": ' + b"9" * 10**5 + b"}", 400, "no JSON"),
        ("own/predict", b'{"input": ["a"' + b', "a"' * 2**18 + b"]}", 413, "262,144"),
        ("own/predict", b'{"input": "a", "inputs": ["a"]}', 422, "either"),
        ("own/predict", b'{"inputs": ["a"' + b', "a"' * 10**4 + b"]}", 422, "1 to 64"),
        ("own/predict", b'{"input": "a", "path": "x"}', 422, "path"),
        ("own/predict", b'{"input": {"a": 1}}', 422, "an object; give a text"),
        ("own/predict", b'{"input": "' + b"a" * 70_000 + b'"}', 422, "65,536"),
        ("lm/embed", b'{"input": "' + b"a" * 5000 + b'"}', 422, "4,096"),
        ("digits/predict", b'{"input": "/etc/passwd"}', 422, "content of the file"),
        ("digits/predict", b'{"input": {"path": "/etc/passwd"}}', 422, "content of the file"),
        ("digits/predict", b'{"input": {"base64": "###"}}', 422, "not base64"),
        ("digits/predict", b'{"input": {"base64": "AAAA"}}', 422, "the upload cannot be read as an image"),
        ("lm/generate", b'{"input": "a", "temperature": -1}', 422, "temperature"),
        ("lm/generate", b'{"input": "a", "temperature": -1, "stream": true}', 422, "temperature"),
        ("lm/generate", b'{"input": "a", "max_new_tokens": 1000000000}', 422, "2,048"),
        ("lm/generate", b'{"input": "a", "stop": [""]}', 422, "stop"),
        ("lm/predict", b'{"input": "a"}', 404, "Not Found"),
    ],
    ids=str,
)
def test_a_bad_request_has_one_line_that_says_why(url, path, body, status, says):
    answer = requests.post(f"{url}/{path}", body, headers=JSON, timeout=40)
    assert answer.status_code == status
    assert says in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.slow
def test_bodies_that_are_too_large_compressed_or_of_another_type_are_refused(url):
    address = f"{url}/own/predict"
    for body in (b"a" * (2**24 + 1), (b"a" * 2**16 for _ in range(300))):  # with a declared length, and in chunks
        with suppress(requests.ConnectionError):  # the rest of the body was not taken
            assert requests.post(address, body, headers=JSON, timeout=40).status_code == 413
    for headers in ({**JSON, "Content-Encoding": "gzip"}, {"Content-Type": "text/plain"}, {}):
        assert requests.post(address, b"{}", headers=headers, timeout=40).status_code == 415


@pytest.mark.slow
@pytest.mark.parametrize("size", [(50_000, 50_000), (5000, 5000)])
def test_an_image_that_declares_too_many_pixels_is_not_unpacked(url, size):
    answer = requests.post(f"{url}/digits/predict", png(*size), headers={"Content-Type": "image/png"}, timeout=40)
    assert (answer.status_code, "pixels" in answer.json()["error"]) == (422, True)


@pytest.mark.slow
def test_clients_that_are_slow_or_gone_leave_the_server_to_others(url):
    host, port = url.removeprefix("http://").split(":")
    head = b"POST /lm/generate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    slow = [socket.create_connection((host, int(port))) for _ in range(50)]
    for i, one in enumerate(slow):
        body = json.dumps({"input": "a", "max_new_tokens": 2000, "stream": i % 2 == 0}).encode()
        one.sendall(head % len(body) + (body if i % 5 else body[:3]))
    time.sleep(0.2)
    for one in slow[1:]:
        one.close()
    assert post(f"{url}/own/predict", input="good").status_code == 200
    slow[0].close()


@pytest.mark.slow
def test_health_openapi_and_the_pages(url):
    health = requests.get(f"{url}/health", timeout=40).json()
    assert health["status"] == "ok"
    assert health["runs"]["lm"]["offers"] == ["embed", "generate"]
    paths = requests.get(f"{url}/openapi.json", timeout=40).json()["paths"]
    assert {"/own/predict", "/digits/embed", "/lm/generate"} <= set(paths)
    assert "swagger" in requests.get(f"{url}/docs", timeout=40).text
    assert 'type="file"' in requests.get(f"{url}/digits/", timeout=40).text
    page = requests.get(f"{url}/own/", timeout=40)
    assert "<textarea" in page.text
    assert "http" not in page.text, "nothing of the page is elsewhere"
    assert 'href="lm/"' in requests.get(f"{url}/", timeout=40).text


@pytest.mark.slow
@pytest.mark.skipif(which("curl") is None, reason="needs curl")
def test_the_commands_of_the_page_work(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save("digit.png")
    page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
    lines = page.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert len(lines) >= 14
    for command, shown in zip(lines[::2], lines[1::2]):
        words = shlex.split(command.removeprefix("$ ").replace("localhost:8000", url))
        printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.partition("\n\n")[0]
        answer, expected = (json.loads(text.removeprefix("data: ")) for text in (printed, shown))
        assert answer.keys() == expected.keys(), command


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no-such"], "no run"),
        (["{run}", "{run}"], "two runs are called own"),
        (["predict={run}"], "cannot be part of an address"),
        (["{run}", "--port", "{taken}"], "cannot be used"),
        (["{run}", "--port", "80"], "1024"),
        (["{run}", "--host", "example.org"], "127.0.0.1"),
        (["{run}", "--timeout", "nan"], "--timeout"),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line(own, capsys, words, says):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        given = [word.format(run=own / "own", taken=taken.getsockname()[1]) for word in words]
        assert main(["serve", *given]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # uvicorn leaves its socket open
def test_a_port_that_is_taken_between_the_check_and_the_start_is_one_line_with_the_option(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("seqkit.runs.summary.check_trained", lambda folder: None)
    monkeypatch.setattr("seqkit.cli.serve.check_port", lambda host, port: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", str(tmp_path), "--port", str(taken.getsockname()[1])]) == 2
    error = capsys.readouterr().err
    assert "give another --port" in error
    assert error.count("\n") == 1


def test_a_port_on_which_another_process_listens_first_names_the_option(monkeypatch):
    class Taken:
        def listen(self, backlog):
            raise OSError(98, "Address already in use")

    monkeypatch.setattr("seqkit.serve.app.application", lambda *_: None)
    with pytest.raises(UsageError, match=r"port 8000 .*--port"):
        server = SimpleNamespace(described={}, limits=Limits())
        RunsServer._start_server(server, 8000, 1, "warning", [Taken()], "process")


def test_a_wrong_field_gets_the_nearest_one_and_cells_without_a_value_the_columns():
    request = SimpleNamespace(headers={"content-type": "application/json"})
    with pytest.raises(RequestError, match="did you mean input"):
        parse(request, b'{"inpt": "a"}', Inputs, Limits())
    for body, fact in ((b"", "no JSON"), (b"[1]", "no JSON object"), (b'{"input": 1e999}', "infinite"), (b"{", "JSON")):
        with pytest.raises(RequestError, match=fact):
            parse(request, body, Inputs, Limits())
    for cells in ({}, {"age": None}):
        with pytest.raises(DataError, match="age, note"):
            example_of(cells, Schema((Column("age", "number"), Column("note", "text")), "none"), None)


def test_several_labels_are_named_as_by_the_command(tmp_path, capsys):
    rows = "\n".join(f"the train is {i},{i % 2},{i % 3 % 2}" for i in range(30))
    (tmp_path / "labels.csv").write_text(f"text,late,dirty\n{rows}\n")
    given = {"data": str(tmp_path / "labels.csv"), "data.input": "text", "data.target": ["late", "dirty"]}
    given["model.objective"] = "MultiLabel"
    trained = short_run("text/classify", given, tmp_path / "run")
    (answer,) = ServedRun(trained, Limits()).answer("predict", [trained.encode("a train")])
    words = ["predict", tmp_path / "run", "a train", "--format", "jsonl", "--probabilities"]
    (expected,) = printed(capsys, *words)
    assert [*answer["prediction"]] == ["late", "dirty"]
    for key in ("prediction", "probabilities"):
        assert answer[key] == pytest.approx(expected[key], abs=STEADY)


def test_a_missing_extra_is_named(own, capsys, monkeypatch):
    monkeypatch.setattr("seqkit.cli.serve.find_spec", lambda name: None)
    assert main(["serve", str(own / "own")]) == 2
    assert 'pip install "seqkit[serve]"' in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_process_of_the_models_is_started_again(url, process):
    psutil = pytest.importorskip("psutil")
    children = psutil.Process(process["pid"]).children(recursive=True)
    max(children, key=lambda one: one.memory_info().rss).kill()  # the one that holds torch and the models
    time.sleep(2)  # a request that it took with it would be answered 504, at the time limit
    until = time.monotonic() + 60
    while (answer := post(f"{url}/own/predict", input="good")).status_code != 200:
        assert time.monotonic() < until, answer.text


def padded(trained):
    """List of the sizes, (texts, tokens), of all batches that the model is called with."""
    sizes = []
    trained.model.embedder.register_forward_hook(lambda _, given, __: sizes.append(tuple(given[0].valid.shape)))
    return sizes


def worker(folder, limits, *, max_batch_size=32):
    """A worker that serves texts, the model's batches, its answers by request, and tokens of each piece of work."""
    trained = load_one(folder / "own")
    sizes, sent, work = padded(trained), {}, []
    served = {"own": ServedRun(trained, limits)}
    one = Worker(served, limits, max_batch_size, lambda uid, data, _: sent.update({uid: data}), work.append)
    return one, sizes, sent, work


def ask(one, uid, *texts):
    given = {"run": "own", "action": "predict", "inputs": list(texts), "probabilities": True}
    one.add(uid, time.monotonic(), given)


def turns(one):
    """Let a worker do all that it has."""
    for _ in range(1000):
        if one.is_idle:
            return
        one.turn()
    raise AssertionError("it has always more to do")


def test_short_texts_are_not_padded_to_a_long_one_that_came_with_them(own):
    one, sizes, sent, work = worker(own, Limits())
    long = "a good day " * 90
    ask(one, "first", long)
    for i in range(31):
        ask(one, str(i), "a good day")
    turns(one)
    (num_long,) = {n for _, n in sizes if n > 32}
    assert [b for b, n in sizes if n > 32] == [1]
    assert sum(b * n for b, n in sizes) <= num_long + 31 * 32
    assert len(sent) == 32
    alone, _, others, _ = worker(own, Limits())
    ask(alone, "x", "a good day")
    turns(alone)
    assert_alike(sent["30"]["results"][0], others["x"]["results"][0])
    assert [n for n in work if n] == [b * n for b, n in sizes], "each batch is told before it begins"


def test_batches_keep_a_budget_of_tokens_and_a_large_request_waits_between_its_batches(own):
    one, sizes, sent, _ = worker(own, Limits(tokens=120), max_batch_size=4)
    ask(one, "large", *["a good day " * 5] * 9, 3)
    ask(one, "late", "a bad day")
    one.turn()
    assert sent == {}
    one.turn()
    assert [*sent] == ["late"], "the request that had a batch is behind the one that had none"
    turns(one)
    assert all(b * n <= 120 for b, n in sizes)
    assert [*sent] == ["late", "large"]
    results = sent["large"]["results"]
    assert ["error" in each for each in results] == [False] * 9 + [True]
    assert len({each["prediction"] for each in results[:9]}) == 1


def test_a_process_that_hung_is_told_in_one_line():
    dump = (
        'Timeout (0:01:00)!\nThread 0x1 (most recent call first):\n  File "/a.py", line 1 in run\n\n'
        'Thread 0x2 (most recent call first):\n  File "/b.py", line 6 in attend\n  File "/c.py", line 7 in main\n'
    )
    assert told_hang(dump) == (
        'the process of the models did nothing for 0:01:00, at File "/b.py", line 6 in attend; it is started again'
    )


@pytest.mark.slow
def test_a_server_that_is_stopped_while_it_starts_says_so_in_one_line(own):
    command = [sys.executable, "-m", "seqkit", "serve", str(own / "own"), "--port", str(free_port())]
    psutil = pytest.importorskip("psutil")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        until = time.monotonic() + 60
        while len(psutil.Process(server.pid).children()) < 3:  # LitServe's manager, one that watches, and the models'
            assert time.monotonic() < until
            time.sleep(0.05)
        server.terminate()
        out, error = server.communicate(timeout=30)
    assert (out, error, server.returncode) == ("", "seqkit serve: stopped before it listened\n", 143)
