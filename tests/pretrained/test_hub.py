"""Models of a hub on 127.0.0.1: what is fetched, what is refused, and what is left when something fails."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from foreign_models import DECODERS, ENCODERS, saved
from huggingface_hub import constants
from stub_hub import MODEL, SHARDED, SMALL, TOKEN, Repo, git_sha, sha256

import seqkit
from seqkit.cli.main import main
from seqkit.config import complete
from seqkit.errors import DataError, UsageError
from seqkit.pretrained.folder import located
from seqkit.pretrained.folder import weights as weights_of
from seqkit.pretrained.hub import fetched, parsed, pinned
from seqkit.runs.exported import to_seqkit
from seqkit.runs.imported import import_model
from seqkit.runs.initial_weights import InitialWeights
from seqkit.runs.trained_model import load_one

ROOT = Path(__file__).parents[2]
NAME = "hf:owner/tiny"
STORED = f"/storage/{sha256(MODEL['model.safetensors'])}"


def names(folder):
    return {path.name for path in folder.iterdir()}


def blobs():
    """Whole files in the cache, whatever they are."""
    return [
        path
        for path in Path(constants.HF_HUB_CACHE).glob("models--*/blobs/*")
        if path.suffix != ".incomplete"
    ]


# ── what is fetched ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_settings_tokenizer_and_safetensors_are_fetched_and_nothing_else(hub):
    more = (
        "pytorch_model.bin",
        "modeling.py",
        "README.md",
        "onnx/model.safetensors",
        "1/config.json",
        "tf_model.h5",
    )
    hub.repos["owner/tiny"] = Repo(MODEL | dict.fromkeys(more, b"no"))
    folder = fetched(NAME)
    assert {name: (folder / name).read_bytes() for name in names(folder)} == MODEL
    assert not [path for path in hub.asked if any(name in path for name in more)]


def said(caplog) -> list[str]:
    """Warnings of seqkit; the libraries below it log at levels that are not ours."""
    own = (one for one in caplog.records if one.name.startswith("seqkit"))
    return [one.getMessage() for one in own if one.levelname == "WARNING"]


def test_of_several_files_of_weights_all_are_fetched(hub):
    hub.repos["owner/tiny"] = Repo(SHARDED | {"other.safetensors": b"no"})
    folder = fetched(NAME)
    assert {name: (folder / name).read_bytes() for name in names(folder)} == SHARDED


def test_one_file_of_weights_is_enough_where_there_are_several_too(hub):
    hub.repos["owner/tiny"] = Repo(MODEL | SHARDED)
    assert names(fetched(NAME)) == set(MODEL)


def test_the_commit_is_said(hub, caplog):
    hub.repos["owner/tiny"] = repo = Repo(MODEL)
    fetched(NAME)
    assert said(caplog) == [f"{NAME} is commit {repo.revisions['main']}"]


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub):
    hub.repos["tiny"] = repo = Repo(MODEL)
    old = repo.revisions["main"]
    repo.revisions |= {"v1.0": old, "refs/pr/2": old}
    new = repo.commit(MODEL | {"config.json": b"{}"})
    found = {
        each: fetched(f"hf:tiny{each}").name
        for each in ("", "@main", "@v1.0", "@refs/pr/2", f"@{old}")
    }
    assert found == {"": new, "@main": new, "@v1.0": old, "@refs/pr/2": old, f"@{old}": old}
    assert {each: fetched(f"hf:tiny{each}", offline=True).name for each in found} == found


def test_a_model_that_transformers_saved_is_read_from_the_hub_as_from_its_folder(hub, tmp_path):
    place = tmp_path / "bert"
    saved(place, "Bert", ENCODERS["Bert"], max_shard_size="20KB")
    hub.repos["owner/bert"] = Repo({path.name: path.read_bytes() for path in place.iterdir()})
    (theirs, left_out, digest), (mine, *rest) = (
        weights_of(each, None) for each in (place, located("hf:owner/bert"))
    )
    assert rest == [left_out, digest]
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


@pytest.mark.parametrize(
    "name",
    [
        "hf:", "hf:/tiny", "hf://owner/tiny", "hf:a/b/c", "hf:../tiny", "hf:owner/..", "hf:owner/ti ny", "owner/tiny",
        "hf:owner/tiny@", "hf:owner/tiny@../main", "hf:owner/tiny@a//b", "hf:owner/tiny@/a", "hf:a--b/tiny",
        "hf:owner/tiny\n", "hf:-a/tiny", "hf:owner/tiny@a@b",
    ],
)  # fmt: skip
def test_a_name_that_is_none_is_refused_before_the_hub_is_asked(hub, name):
    with pytest.raises(UsageError, match="no name"):
        fetched(name)
    assert hub.asked == []


def test_names_are_owner_name_and_revision():
    assert parsed("hf:tiny") == ("tiny", "main")
    assert parsed("hf:o_1/t.i-ny@refs/pr/1") == ("o_1/t.i-ny", "refs/pr/1")


# ── the cache ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_fetched_once_is_there_without_a_network(hub, monkeypatch):
    hub.repos["owner/tiny"] = Repo(SHARDED)
    folder = fetched(NAME)
    before = list(hub.asked)
    assert fetched(NAME, offline=True) == folder
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetched(NAME) == folder
    assert hub.asked == before


def test_what_is_in_the_cache_is_not_fetched_again(hub):
    hub.repos["owner/tiny"] = Repo(MODEL)
    fetched(NAME)
    before = len(hub.asked)
    fetched(NAME)
    assert {path.split()[0] for path in hub.asked[before:]} == {"GET", "HEAD"}
    assert not [
        path for path in hub.asked[before:] if path.startswith("GET") and "/api/" not in path
    ]


def test_a_hub_that_cannot_be_reached_is_a_warning_if_the_cache_has_the_model(hub, caplog):
    hub.repos["owner/tiny"] = Repo(MODEL)
    folder = fetched(NAME)
    caplog.clear()
    hub.says["/api/models/owner/tiny/revision/main"] = lambda handler: handler.fail(503)
    assert fetched(NAME) == folder
    (line,) = said(caplog)
    assert "503" in line
    assert f"the commit {folder.name} of the cache is used" in line


def test_without_a_network_and_a_cache_there_is_an_error_in_a_line(hub, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")  # where nobody listens
    with pytest.raises(DataError, match=r"ConnectError") as failure:
        fetched(NAME)
    assert "\n" not in str(failure.value)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match="HF_HUB_OFFLINE"):
        fetched(NAME)


@pytest.mark.parametrize(
    "missing", ["model-00002-of-00002.safetensors", "model.safetensors.index.json"]
)
def test_a_cache_that_lacks_a_file_of_the_weights_is_not_taken_for_the_model(hub, missing):
    hub.repos["owner/tiny"] = Repo(SHARDED)
    (fetched(NAME) / missing).unlink()
    with pytest.raises(DataError, match="does not have all of it"):
        fetched(NAME, offline=True)
    assert (fetched(NAME) / missing).read_bytes() == SHARDED[missing]


def test_a_link_out_of_the_cache_is_refused(hub, tmp_path):
    hub.repos["owner/tiny"] = Repo(MODEL)
    folder = fetched(NAME)
    (outside := tmp_path / git_sha(SMALL["config.json"])).write_bytes(SMALL["config.json"])
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(outside)
    for offline in (False, True):
        with pytest.raises(DataError, match=r"config\.json is a link"):
            fetched(NAME, offline=offline)
    assert outside.exists()


def test_weights_of_the_cache_that_have_changed_are_named(hub, tmp_path):
    saved(tmp_path / "bert", "Bert", ENCODERS["Bert"])
    hub.repos["owner/tiny"] = Repo(
        {path.name: path.read_bytes() for path in (tmp_path / "bert").iterdir()}
    )
    blob = (fetched(NAME) / "model.safetensors").resolve()
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.write_bytes(content)
    with pytest.raises(DataError, match=rf"model\.safetensors is damaged.*{blob.name}"):
        import_model(located(NAME), tmp_path / "run", NAME)


@pytest.mark.parametrize("header", ["ETag", "X-Linked-ETag", "X-Repo-Commit"])
def test_a_hub_that_names_a_path_writes_nothing_outside_the_cache(hub, tmp_path, header):
    hub.repos["owner/tiny"] = repo = Repo(MODEL)
    commit, content = repo.revisions["main"], MODEL["config.json"]
    headers = {
        "X-Repo-Commit": commit,
        "ETag": f'"{git_sha(content)}"',
        header: '"../../../../evil"',
    }
    hub.says[f"/owner/tiny/resolve/{commit}/config.json"] = lambda handler: handler.answer(
        200, content, headers
    )
    with pytest.raises(DataError, match="check HF_ENDPOINT"):
        fetched(NAME)
    assert [path.name for path in tmp_path.rglob("*evil*")] == []


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


def without(files, *left_out):
    return {name: content for name, content in files.items() if name not in left_out}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (SMALL | {"pytorch_model.bin": b"x"}, "unpickling them runs code"),
        (SMALL | {"tf_model.h5": b"x", "a/b.safetensors": b""}, "unpickling them runs code"),
        (SMALL, "no other weights"),
        (without(MODEL, "config.json"), r"no config\.json"),
        ({"config.yaml": b"", "summary.json": b"", "model.safetensors": b""}, r"state\.json"),
    ],
)  # fmt: skip
def test_a_model_that_is_not_read_is_refused_in_a_line(hub, files, said):
    hub.repos["owner/tiny"] = Repo(files)
    with pytest.raises(DataError, match=said) as failure:
        fetched(NAME)
    assert "\n" not in str(failure.value)
    assert not [path for path in hub.asked if path.startswith("GET /storage")]


def test_a_model_that_lacks_a_file_of_its_index_is_refused(hub):
    hub.repos["owner/tiny"] = Repo(without(SHARDED, "model-00002-of-00002.safetensors"))
    with pytest.raises(DataError, match="lists files that the model does not have"):
        fetched(NAME)


def test_a_file_whose_name_climbs_out_is_not_asked_for(hub, tmp_path):
    climbing = {
        "../../../evil.json": b"{}",
        "/evil.json": b"{}",
        "..": b"",
        "a/../../config.json": b"{}",
    }
    hub.repos["owner/tiny"] = Repo(MODEL | climbing)
    assert names(fetched(NAME)) == set(MODEL)
    assert not list(tmp_path.rglob("evil.json"))


@pytest.mark.parametrize("sha", ["../../../../evil", "abc", None, 7])
def test_a_commit_that_is_none_is_refused(hub, tmp_path, sha):
    info = {"id": "owner/tiny", "sha": sha, "private": False, "siblings": [], "tags": []}
    hub.says["/api/models/owner/tiny/revision/main"] = lambda handler: handler.answer(200, info)
    with pytest.raises(DataError, match="the hub names the commit"):
        fetched(NAME)
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        (lambda h: h.fail(404, "RepoNotFound"), UsageError, "not on the hub"),
        (lambda h: h.fail(404, "RevisionNotFound"), UsageError, "has no such revision"),
        (lambda h: h.fail(403, "GatedRepo"), DataError, "is gated"),
        (lambda h: h.fail(401), DataError, "401.*log in"),
        (lambda h: h.fail(403), DataError, "403.*log in"),
        (lambda h: h.fail(418), DataError, "418"),
        (lambda h: h.fail(500), DataError, "500"),
        (lambda h: h.answer(200, b"<html>log in</html>"), DataError, "JSONDecodeError"),
        (lambda h: h.answer(200, {"siblings": 7}), DataError, "no answer"),
        (lambda h: h.answer(200, b"{}" * 9, cut=3), DataError, "no answer"),
    ],
)  # fmt: skip
def test_what_the_hub_says_instead_is_told_in_a_line(hub, how, kind, said):
    hub.says["/api/models/owner/tiny/revision/main"] = how
    with pytest.raises(kind, match=said) as failure:
        fetched(NAME)
    assert "\n" not in str(failure.value)


def test_a_model_whose_files_alone_are_gated_says_so(hub):
    hub.repos["owner/tiny"] = Repo(MODEL, gated=True)
    with pytest.raises(DataError, match="is gated"):
        fetched(NAME)


def test_a_private_model_needs_the_token(hub, monkeypatch):
    hub.repos["owner/tiny"] = Repo(MODEL, private=True)
    with pytest.raises(UsageError, match="not on the hub"):
        fetched(NAME)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert names(fetched(NAME)) == set(MODEL)


def test_the_token_does_not_go_to_another_host(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.repos["owner/tiny"] = Repo(MODEL)
    fetched(NAME)
    assert hub.stored, "weights come from another host"
    assert all(headers["authorization"] == f"Bearer {TOKEN}" for headers in hub.requests)
    assert not [headers for headers in hub.stored if TOKEN in str(headers)]


def test_a_redirect_of_the_listing_does_not_take_the_token_along(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    path = "/api/models/owner/tiny/revision/main"
    hub.says[path] = lambda handler: (
        handler.answer(302, b"", {"Location": f"{hub.storage}{path}?again"}) if handler.log is hub.requests
        else handler.fail(404)
    )  # fmt: skip
    with pytest.raises(DataError):
        fetched(NAME)
    assert hub.stored
    assert not [headers for headers in hub.stored if TOKEN in str(headers)]


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", None)
    with pytest.raises(UsageError, match=r"seqkit\[pretrained\]"):
        fetched(NAME)


# ── downloads that fail ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_download_that_breaks_off_is_made_whole(hub):
    hub.repos["owner/tiny"] = Repo(MODEL)
    ends = iter([7])

    def answer(handler):
        if (cut := next(ends, None)) is None:
            return handler.stored(STORED.rpartition("/")[2], b"")
        return handler.answer(200, MODEL["model.safetensors"], cut=cut)

    hub.says[STORED] = answer
    assert (fetched(NAME) / "model.safetensors").read_bytes() == MODEL["model.safetensors"]
    assert hub.asked.count(f"GET {STORED}") == 2


def test_a_file_of_another_size_is_not_kept(hub):
    hub.repos["owner/tiny"] = Repo(MODEL)
    hub.says[STORED] = lambda handler: handler.answer(200, MODEL["model.safetensors"][:-1])
    with pytest.raises(DataError, match="Consistency") as failure:
        fetched(NAME)
    assert "\n" not in str(failure.value)
    with pytest.raises(DataError, match="the cache"):
        fetched(NAME, offline=True)
    hub.says.clear()
    assert (fetched(NAME) / "model.safetensors").read_bytes() == MODEL["model.safetensors"]


def test_a_storage_that_fails_is_told_with_the_file(hub):
    hub.repos["owner/tiny"] = Repo(MODEL)
    hub.says[STORED] = lambda handler: handler.fail(500)
    with pytest.raises(DataError, match="500"):
        fetched(NAME)


FETCH = f"from seqkit.pretrained.hub import fetched; print(fetched({NAME!r}))"


def in_another_process(hub):
    own = {
        "HF_ENDPOINT": hub.url, "HF_HUB_CACHE": constants.HF_HUB_CACHE, "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1", "HF_TOKEN_PATH": constants.HF_TOKEN_PATH,
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", FETCH], cwd=ROOT, env={**os.environ, **own}, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def test_a_download_that_is_killed_leaves_no_half_file_and_begins_anew(hub):
    hub.repos["owner/tiny"] = Repo(MODEL)
    content, begun = MODEL["model.safetensors"], threading.Event()

    def half(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2])
        handler.wfile.flush()
        begun.set()
        killed.wait(60)
        handler.close_connection = True

    killed = threading.Event()
    hub.says[STORED] = half
    with in_another_process(hub) as process:
        assert begun.wait(60)
        process.kill()
    killed.set()
    assert process.returncode < 0
    assert sha256(content) not in {path.name for path in blobs()}
    with pytest.raises(DataError, match="the cache"):
        fetched(NAME, offline=True)
    hub.says.clear()
    assert (fetched(NAME) / "model.safetensors").read_bytes() == content


@pytest.mark.slow
def test_two_processes_at_once_get_the_same_whole_folder(hub):
    hub.repos["owner/tiny"] = repo = Repo(SHARDED)
    first = f"/owner/tiny/resolve/{repo.revisions['main']}/model.safetensors.index.json"
    both = threading.Barrier(2, timeout=60)

    def together(handler):
        both.wait()
        hub.says.pop(f"HEAD {first}", None)
        handler.route(first, {}, b"")

    hub.says[f"HEAD {first}"] = together
    with in_another_process(hub) as one, in_another_process(hub) as other:
        said = [process.communicate(timeout=120)[0] for process in (one, other)]
    assert said[0] == said[1]
    folder = Path(said[0].strip())
    assert {name: (folder / name).read_bytes() for name in names(folder)} == SHARDED


# ── runs that begin with a model of the hub ──────────────────────────────────────────────────────────────────────────


def test_a_configuration_names_the_commit_and_needs_the_hub_no_more(hub, tmp_path, caplog):
    place = tmp_path / "bert"
    saved(place, "Bert", ENCODERS["Bert"])
    hub.repos["owner/bert"] = repo = Repo(
        {path.name: path.read_bytes() for path in place.iterdir()}
    )
    commit = repo.revisions["main"]
    config = complete("text/classify", None, {"model.init": "hf:owner/bert"})
    assert config["model"]["init"] == f"hf:owner/bert@{commit}"
    assert said(caplog) == [f"hf:owner/bert is commit {commit}"]
    recipe = {"recipe": "mine", "model": {"init": "hf:owner/bert", "objective": "Classify"}}
    written = complete(recipe, None, {"data": "sentence-ends"})
    assert written["model"]["init"] == config["model"]["init"]
    before = list(hub.asked)
    assert complete(config) == config
    assert located(config["model"]["init"]) == fetched("hf:owner/bert", offline=True)
    assert hub.asked == before


def test_pinning_leaves_a_path_and_a_commit_as_they_are(hub):
    assert [pinned(source) for source in ("runs/bert", f"{NAME}@{'0' * 40}")] == [
        "runs/bert",
        f"{NAME}@{'0' * 40}",
    ]
    assert hub.asked == []


def test_an_imported_run_names_the_commit(hub, tmp_path):
    place = tmp_path / "gpt2"
    saved(place, "GPT2", DECODERS["GPT2"], "LMHeadModel")
    hub.repos["owner/gpt2"] = repo = Repo(
        {path.name: path.read_bytes() for path in place.iterdir()}
    )
    assert main(["import", "hf:owner/gpt2", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["initial"]["run"] == f"hf:owner/gpt2@{repo.revisions['main']}"


# ── published runs ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def published(hub, tmp_path):
    """A run that began with a GPT-2, in the folder `run`; on the hub it is as `export --to safetensors` writes it."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    saved(theirs, "GPT2", DECODERS["GPT2"], "LMHeadModel")
    import_model(theirs, tmp_path / "run", "theirs")
    run = load_one(tmp_path / "run")
    to_seqkit(run, tmp_path / "published")
    files = {
        path.relative_to(tmp_path / "published").as_posix(): path.read_bytes()
        for path in (tmp_path / "published").rglob("*")
        if path.is_file()
    }
    hub.repos["owner/tiny"] = Repo(
        {**files, "README.md": b"# Tiny", "evil.py": b"raise SystemExit"}
    )
    return run


def test_a_published_run_is_loaded_imported_and_begun_with(
    hub, published, tmp_path, monkeypatch, capsys
):
    batch = seqkit.TokenBatch.collate([published.tokenizer.encode("w3 w7")])
    with torch.no_grad():
        right = published.model(batch)
        assert seqkit.load(NAME).model(batch).equal(right)
        assert main(["import", NAME, str(tmp_path / "copy")]) == 0
        assert "objective NextToken" in capsys.readouterr().out
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        for source in (NAME, tmp_path / "copy"):
            assert seqkit.load(source).model(batch).equal(right)
    given = {name: published.config["model"][name] for name in ("backbone", "position")}
    config = complete("text/char-lm", "debug", {"model.init": NAME, "tokenizer": published.config["tokenizer"],
                                                **{f"model.{name}": x for name, x in given.items()}})  # fmt: skip
    assert InitialWeights(NAME, config).source.sha256 == published.summary["sha256"]
    assert not list(Path(constants.HF_HUB_CACHE).glob("**/evil.py"))
    assert {path.name for path in (located(NAME) / "pretrained").iterdir()} == {
        "config.json",
        "generation_config.json",
    }


def test_a_published_run_with_plugins_is_refused(hub, published):
    repo = hub.repos["owner/tiny"]
    config = repo.at("main")[1]["config.yaml"] + b"plugins: [evil.py]\n"
    hub.repos["owner/tiny"] = Repo({**repo.at("main")[1], "config.yaml": config})
    with pytest.raises(DataError, match="plug-ins"):
        seqkit.load(NAME)


def test_a_damaged_published_run_is_not_copied(hub, published, tmp_path):
    files = hub.repos["owner/tiny"].at("main")[1]
    hub.repos["owner/tiny"] = Repo({**files, "state.json": files["state.json"] + b" "})
    with pytest.raises(DataError):
        import_model(located(NAME), tmp_path / "copy", NAME)
    assert not (tmp_path / "copy").exists()
