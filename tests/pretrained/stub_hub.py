"""A hub on 127.0.0.1 with the routes that huggingface_hub asks for models, and faults to order.

Large files are redirected to storage at localhost, which is another host to the library.
"""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import constants
from safetensors.numpy import save

TOKEN = "hf_" + "aBc1" * 8


def git_sha(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def weights(*names):
    """A file of safetensors that holds a vector under each name."""
    return save({name: np.arange(5, dtype=np.float32) + i for i, name in enumerate(names)})


SMALL = {"config.json": b'{"model_type": "bert"}', "tokenizer.json": b'{"version": "1.0"}'}
MODEL = {**SMALL, "model.safetensors": weights("a", "b")}
INDEX = {
    "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
}
SHARDED = {
    **SMALL,
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    "model-00001-of-00002.safetensors": weights("a"),
    "model-00002-of-00002.safetensors": weights("b"),
}


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub on 127.0.0.1, which huggingface_hub takes for its own, with an empty cache and no token."""
    with serving(StubHub()) as found:
        own = {
            "ENDPOINT": found.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": found.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(tmp_path / "cache"),
            "HF_TOKEN_PATH": str(tmp_path / "token"),
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_DISABLE_TELEMETRY": True,
            "HF_HUB_OFFLINE": False,
        }
        for name, value in own.items():
            monkeypatch.setattr(constants, name, value)
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        yield found
        huggingface_hub.close_session()


class Repo:
    """Files by name at each commit, the newest last; branches and tags by name."""

    def __init__(self, files, *, private=False, gated=False):
        self.private, self.gated = private, gated
        self.commits, self.revisions = {}, {}
        self.commit(files)

    def commit(self, files):
        sha = hashlib.sha1(repr((len(self.commits), sorted(files.items()))).encode()).hexdigest()
        self.commits[sha] = dict(files)
        self.revisions["main"] = sha
        return sha

    def at(self, revision):
        sha = self.revisions.get(revision, revision)
        return (sha, self.commits[sha]) if sha in self.commits else (None, None)


class StubHub:
    """Two servers. repos: by name. says: how one answers for a path, in the place of what is right."""

    def __init__(self):
        self.repos, self.says, self.objects = {}, {}, {}
        self.asked = []  # methods and paths of all requests
        # headers of the requests to the hub, and to the storage
        self.requests, self.stored = [], []
        self.created = []  # models that were made
        self.servers = []
        for name, log in (("Hub", self.requests), ("Storage", self.stored)):
            handler = type(name, (Handler,), {"hub": self, "log": log})
            self.servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
            self.servers[-1].daemon_threads = True
        ports = [server.server_port for server in self.servers]
        self.url, self.storage = f"http://127.0.0.1:{ports[0]}", f"http://localhost:{ports[1]}"


@contextmanager
def serving(hub):
    """A hub that answers inside this context."""
    threads = [
        threading.Thread(target=server.serve_forever, args=(0.01,)) for server in hub.servers
    ]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        for server, thread in zip(hub.servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()


def is_large(name):
    return name.endswith(".safetensors")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: StubHub
    log: list

    def log_message(self, *_):
        pass

    def answer(self, status=200, content=b"", headers=None, *, cut=None):
        """cut: bytes after which the connection ends."""
        if isinstance(content, dict | list):
            content = json.dumps(content).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content if cut is None else content[:cut])
        if cut is not None:
            self.close_connection = True

    def fail(self, status, code="", message="no"):
        self.answer(
            status,
            {"error": message},
            {"X-Error-Code": code, "X-Error-Message": message} if code else {},
        )

    def handle_any(self):
        url = urlsplit(self.path)
        path, body = unquote(url.path), b""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.hub.asked.append(f"{self.command} {path}")
        self.log.append({name.lower(): value for name, value in self.headers.items()})
        key = next((key for key in self.hub.says if key in (path, f"{self.command} {path}")), None)
        if key is not None:
            self.hub.says[key](self)
        else:
            self.route(path, parse_qs(url.query), body)

    do_GET = do_HEAD = do_POST = do_PUT = handle_any

    def route(self, path, query, body):
        hub, parts = self.hub, path.strip("/").split("/")
        if parts[0] == "storage":
            return self.stored(parts[1], body)
        if path == "/api/validate-yaml":
            return self.answer(200, {"warnings": [], "errors": []})
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            if name in hub.repos:
                return self.answer(
                    409, {"error": "You already created it", "url": f"{hub.url}/{name}"}
                )
            hub.created.append(asked)
            is_private = asked.get("visibility") == "private" or bool(asked.get("private"))
            hub.repos[name] = Repo({".gitattributes": b"*"}, private=is_private)
            return self.answer(200, {"url": f"{hub.url}/{name}"})
        name = next(
            (name for name in hub.repos if f"/{name}/" in f"{path}/" or f"/{name}.git/" in path),
            None,
        )
        if name is None or (hub.repos[name].private and not self.is_known()):
            return self.fail(
                404 if self.is_known() else 401, "RepoNotFound", "Repository not found"
            )
        repo, rest = hub.repos[name], path.split(name, 1)[1]
        if rest.startswith("/resolve/"):
            return self.resolved(repo, name, *self.cut(repo, rest.removeprefix("/resolve/")))
        if rest.startswith(".git/info/lfs"):
            return self.batch(json.loads(body))
        if rest.startswith("/preupload/"):
            there = repo.at("main")[1]
            files = [
                {"path": each, "uploadMode": "lfs" if is_large(each) else "regular", "shouldIgnore": False}
                | ({"oid": (sha256 if is_large(each) else git_sha)(there[each])} if each in there else {})
                for each in (file["path"] for file in json.loads(body)["files"])
            ]  # fmt: skip
            return self.answer(200, {"files": files})
        if rest.startswith("/commit/"):
            return self.committed(repo, name, body)
        if rest.startswith("/tree/"):
            _, files = repo.at(rest.removeprefix("/tree/"))
            return self.answer(200, [
                {"type": "file", "path": each, "size": len(content), "oid": git_sha(content)}
                for each, content in files.items()
            ])  # fmt: skip
        sha, files = repo.at(rest.removeprefix("/revision/") if rest else "main")
        if sha is None:
            return self.fail(404, "RevisionNotFound", "Invalid rev id")
        siblings = [
            {"rfilename": each, "size": len(content), "blobId": git_sha(content)}
            | ({"lfs": {"size": len(content), "sha256": sha256(content), "pointerSize": 130}} if is_large(each) else {})
            for each, content in files.items()
        ]  # fmt: skip
        return self.answer(
            200, {"id": name, "sha": sha, "private": repo.private, "siblings": siblings, "tags": []}
        )

    def is_known(self):
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def cut(self, repo, rest):
        known = [*repo.revisions, *repo.commits]
        revision = next(
            (each for each in known if rest.startswith(f"{each}/")), rest.partition("/")[0]
        )
        return revision, rest.removeprefix(f"{revision}/")

    def resolved(self, repo, name, revision, file):
        sha, files = repo.at(revision)
        if repo.gated and not self.is_known():
            return self.fail(401, "GatedRepo", "Access is restricted")
        if sha is None or file not in files:
            return self.fail(404, "EntryNotFound" if sha else "RevisionNotFound")
        content, headers = files[file], {"X-Repo-Commit": sha}
        if not is_large(file):
            return self.answer(200, content, headers | {"ETag": f'"{git_sha(content)}"'})
        oid = sha256(content)
        self.hub.objects[oid] = content
        place = f"{self.hub.storage}/storage/{oid}"
        headers |= {
            "X-Linked-ETag": f'"{oid}"',
            "X-Linked-Size": str(len(content)),
            "Location": place,
        }
        return self.answer(302, b"", headers)

    def stored(self, oid, body):
        if self.command == "PUT":
            self.hub.objects[oid] = body
            return self.answer(200, b"", {"ETag": '"x"'})
        content = self.hub.objects[oid]
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        ranged = (
            {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        )
        return self.answer(206 if start else 200, content[start:], ranged)

    def batch(self, asked):
        objects = [
            {**each, "actions": {"upload": {"href": f"{self.hub.storage}/storage/{each['oid']}"}}}
            for each in asked["objects"]
        ]
        return self.answer(200, {"transfer": "basic", "objects": objects})

    def committed(self, repo, name, body):
        if not self.is_known():
            return self.fail(403, message="You have read access only")
        header, *lines = [json.loads(line) for line in body.splitlines()]
        parent = header["value"].get("parentCommit")
        if parent is not None and parent != repo.revisions["main"]:
            return self.fail(412, message="A commit has happened since")
        files = dict(repo.at("main")[1])
        for line in lines:
            key, value = line["key"], line["value"]
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            else:
                assert key == "deletedFile"
                del files[value["path"]]
        sha = repo.commit(files)
        return self.answer(
            200,
            {"success": True, "commitOid": sha, "commitUrl": f"{self.hub.url}/{name}/commit/{sha}"},
        )
