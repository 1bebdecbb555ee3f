import gzip
import random
import threading
import time
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from seqkit.data.download import data_folder, fetch, find, missing, writable
from seqkit.errors import DataError

BODY = random.Random(1).randbytes(200_003)
DIGEST = sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked += 1
        if self.path == "/none":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        if self.path == "/slow":
            for byte in BODY:
                self.wfile.write(bytes([byte]))
                time.sleep(0.02)
        self.wfile.write(BODY[: len(BODY) // 2] if self.path == "/cut" else BODY)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = 0
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def left(folder):
    return [p.name for p in folder.rglob("*") if p.is_file()]


def test_a_file_is_fetched_once(server, own_folder):
    path = fetch(f"{server.url}/good", DIGEST, "set/file.bin")
    assert path == own_folder / "set" / "file.bin"
    assert path.read_bytes() == BODY
    assert path.stat().st_mode & 0o444 == 0o444
    assert fetch(f"{server.url}/good", DIGEST, "set/file.bin") == path
    assert server.asked == 1


def test_a_damaged_file_is_fetched_again(server, own_folder):
    path = fetch(f"{server.url}/good", DIGEST, "set/file.bin")
    path.write_bytes(BODY[:-1])
    assert fetch(f"{server.url}/good", DIGEST, "set/file.bin").read_bytes() == BODY


@pytest.mark.parametrize(
    ("page", "digest", "reason"),
    [
        ("good", sha256(b"other").hexdigest(), DIGEST),
        ("none", DIGEST, "404"),
        ("cut", DIGEST, "IncompleteRead"),
    ],
)
def test_a_failed_download_leaves_no_file_and_says_what_to_put_where(
    server, own_folder, page, digest, reason
):
    with pytest.raises(DataError) as caught:
        fetch(f"{server.url}/{page}", digest, "set/file.bin")
    for word in (reason, f"{server.url}/{page}", str(own_folder / "set" / "file.bin"), digest):
        assert word in str(caught.value)
    assert left(own_folder.parent) == []


@pytest.mark.parametrize(
    ("page", "reason"), [("good", "more than 1,000 bytes"), ("slow", "more than 0.2 s")]
)
def test_a_download_has_a_size_and_a_deadline(server, own_folder, monkeypatch, page, reason):
    monkeypatch.setattr("seqkit.data.download.MAX_SECONDS", 0.2)
    monkeypatch.setattr("seqkit.data.download.MAX_BYTES", 1000 if page == "good" else 10**6)
    started = time.monotonic()
    with pytest.raises(DataError, match=reason):
        fetch(f"{server.url}/{page}", DIGEST, "set/file.bin")
    assert time.monotonic() - started < 5
    assert left(own_folder.parent) == []


def test_a_failed_download_leaves_the_damaged_file_and_says_so(server, own_folder):
    path = own_folder / "set" / "file.bin"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    with pytest.raises(DataError, match="has another SHA-256"):
        fetch(f"{server.url}/cut", DIGEST, "set/file.bin")
    assert path.read_bytes() == b"damaged"
    assert left(own_folder) == ["file.bin"]


def test_without_a_server_the_error_says_what_to_put_where(own_folder):
    with pytest.raises(DataError, match=r"put it at"):
        fetch("http://127.0.0.1:9/file", DIGEST, "file.bin")


def test_a_read_only_folder_is_read_and_left_alone(server, own_folder, tmp_path):
    own_folder.mkdir()
    (own_folder / "here.gz").write_bytes(gzip.compress(b"x"))
    own_folder.chmod(0o555)  # respected for root, too, who could write
    assert find("here.gz") == own_folder / "here.gz"
    path = fetch(f"{server.url}/good", DIGEST, "set/file.bin")
    assert path == tmp_path / "user" / "set" / "file.bin"
    assert find("set/file.bin") == path
    assert left(own_folder) == ["here.gz"]


def test_where_nothing_can_be_written_the_error_names_both_places(own_folder, tmp_path):
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(DataError, match=r"file\.bin .*data .*user"):
            writable("file.bin")
    finally:
        tmp_path.chmod(0o755)


def test_the_data_folder_is_the_environments_or_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SEQKIT_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.delenv("SEQKIT_DATA")
    assert data_folder().name == "seqkit"
    assert "SEQKIT_DATA" in str(missing("set", "do this"))
