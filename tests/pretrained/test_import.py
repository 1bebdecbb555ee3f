"""Models of other libraries as run folders, and back: the same answers, the same bytes, or a refusal."""

import json

import pytest
import torch
from foreign_models import DECODERS, saved, short_run
from parity import assert_equal, doubled
from safetensors.torch import load_file, save_file

import seqkit
from seqkit.cli.main import main
from seqkit.errors import DataError, UsageError
from seqkit.runs.exported import to_hf, to_seqkit
from seqkit.runs.imported import import_model
from seqkit.runs.trained_model import load_one

IDS = [3, 7, 11]
TEXT = "w3 w7 w11"


@pytest.fixture
def gpt2(tmp_path):
    """Their model, and the folder that it was saved in."""
    folder = tmp_path / "gpt2"
    folder.mkdir()
    settings = {**DECODERS["GPT2"], "bos_token_id": 0, "eos_token_id": 0}
    return saved(folder, "GPT2", settings, "LMHeadModel"), folder


def greedy(model, ids, num):
    for _ in range(num):
        with torch.no_grad():
            ids = [*ids, int(model(torch.tensor([ids])).logits[0, -1].argmax())]
    return " ".join(f"w{i}" for i in ids)


def test_an_imported_model_writes_what_it_wrote_before(gpt2, tmp_path, capsys):
    theirs, folder = gpt2
    assert main(["import", str(folder), str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "objective NextToken" in said
    assert "seqkit generate" in said
    assert (
        main(["generate", str(tmp_path / "run"), "--prompt", TEXT, "--tokens", "6", "--top-k", "1"])
        == 0
    )
    assert capsys.readouterr().out.strip() == greedy(theirs, IDS, 6)


def test_its_file_is_written_back_byte_for_byte(gpt2, tmp_path):
    _, folder = gpt2
    import_model(folder, tmp_path / "run", "gpt2")
    assert to_hf(load_one(tmp_path / "run"), tmp_path / "back") == []
    for name in ("model.safetensors", "config.json", "generation_config.json"):
        assert (tmp_path / "back" / name).read_bytes() == (folder / name).read_bytes()
    before, after = (
        json.loads((place / "tokenizer.json").read_text()) for place in (folder, tmp_path / "back")
    )
    assert before == after


@pytest.mark.slow
def test_a_fine_tuned_run_is_a_model_of_theirs_again(gpt2, tmp_path):
    from transformers import GPT2LMHeadModel

    _, folder = gpt2
    (tmp_path / "notes.txt").write_text(" ".join(f"w{i * i % 29}" for i in range(2_000)))
    given = {"model.init": str(folder), "data": str(tmp_path / "notes.txt"), "data.window": 16}
    run = short_run("text/char-lm", given, tmp_path / "run")
    assert to_hf(run, tmp_path / "back") == []
    tuned = GPT2LMHeadModel.from_pretrained(tmp_path / "back").eval()
    batch = seqkit.TokenBatch.collate([run.tokenizer.encode(TEXT)])
    with torch.no_grad():
        assert_equal(doubled(run.model)(batch), doubled(tuned)(batch.content).logits)
    old, new = (load_file(place / "model.safetensors") for place in (folder, tmp_path / "back"))
    assert not old["transformer.wte.weight"].equal(new["transformer.wte.weight"])


def test_a_folder_for_seqkit_is_a_run_without_its_training(gpt2, tmp_path):
    _, folder = gpt2
    import_model(folder, tmp_path / "run", "gpt2")
    run = load_one(tmp_path / "run")
    to_seqkit(run, tmp_path / "published")
    again = load_one(tmp_path / "published")
    for name, x in run.model.state_dict().items():
        assert x.equal(again.model.state_dict()[name])
    to_hf(again, tmp_path / "back")
    assert (tmp_path / "back" / "model.safetensors").read_bytes() == (
        folder / "model.safetensors"
    ).read_bytes()


def test_a_published_folder_has_no_paths_of_this_machine(gpt2, tmp_path):
    _, folder = gpt2
    (tmp_path / "notes.txt").write_text(" ".join(f"w{i * i % 29}" for i in range(2_000)))
    given = {"model.init": str(folder), "data": str(tmp_path / "notes.txt"), "data.window": 16}
    run = short_run("text/char-lm", given, tmp_path / "run")
    to_seqkit(run, tmp_path / "published")
    for path in (tmp_path / "published").rglob("*.*"):
        assert path.suffix == ".safetensors" or str(tmp_path) not in path.read_text(), path.name
    again = load_one(tmp_path / "published")
    assert again.config["data"]["source"]["path"] == ["notes.txt"]


@pytest.mark.slow
def test_a_training_goes_on_from_an_imported_run(gpt2, tmp_path):
    _, folder = gpt2
    import_model(folder, tmp_path / "run", "gpt2")
    (tmp_path / "notes.txt").write_text(" ".join(f"w{i * i % 29}" for i in range(2_000)))
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert "FromFile" in config
    from seqkit.config.recipe import load_yaml

    model = load_yaml(config)
    given = {
        "model.init": str(tmp_path / "run"), "data": str(tmp_path / "notes.txt"), "data.window": 16,
        "tokenizer": model["tokenizer"], "model.backbone": model["model"]["backbone"],
        "model.position": model["model"]["position"], "model.objective": model["model"]["objective"],
    }  # fmt: skip
    run = short_run("text/char-lm", given, tmp_path / "tuned")
    assert run.summary["initial"]["taken"] == ["backbone", "embedder", "head"]
    assert to_hf(run, tmp_path / "back") == []


def test_load_takes_a_folder_of_theirs_too(gpt2, tmp_path):
    theirs, folder = gpt2
    run = seqkit.load(folder)
    batch = seqkit.TokenBatch.collate([run.tokenizer.encode(TEXT)])
    with torch.no_grad():
        assert_equal(doubled(run.model)(batch), doubled(theirs)(batch.content).logits)
    to_hf(run, tmp_path / "back")
    assert (tmp_path / "back" / "model.safetensors").read_bytes() == (
        folder / "model.safetensors"
    ).read_bytes()


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_is_never_overwritten_and_a_failed_import_leaves_nothing(gpt2, tmp_path):
    _, folder = gpt2
    held = load_file(folder / "model.safetensors")
    held["transformer.h.0.adapter.weight"] = torch.ones(2)
    save_file(held, folder / "model.safetensors")
    with pytest.raises(DataError, match=r"h\.0\.adapter\.weight"):
        import_model(folder, tmp_path / "run", "gpt2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpt2"]
    with pytest.raises(UsageError, match="exists already"):
        import_model(folder, folder, "gpt2")


def test_what_is_no_model_of_theirs_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"no model of another library with a config\.json"):
        import_model(tmp_path, tmp_path / "run", "x")


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("model.backbone.block.mlp.activation", "ReLU", "model.backbone"),
        ("model.backbone.norm.eps", 0.1, "model.backbone"),
        ("tokenizer.special_tokens", False, "tokenizer"),
    ],
)
def test_a_run_of_other_settings_is_not_written_with_the_old_ones(
    gpt2, tmp_path, key, value, named
):
    _, folder = gpt2
    (tmp_path / "notes.txt").write_text(" ".join(f"w{i * i % 29}" for i in range(2_000)))
    given = {
        "model.init": str(folder),
        "data": str(tmp_path / "notes.txt"),
        "data.window": 16,
        key: value,
    }
    run = short_run("text/char-lm", given, tmp_path / "run")
    with pytest.raises(UsageError, match=named):
        to_hf(run, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_another_dropout_is_written(gpt2, tmp_path):
    _, folder = gpt2
    (tmp_path / "notes.txt").write_text(" ".join(f"w{i * i % 29}" for i in range(2_000)))
    given = {"model.init": str(folder), "data": str(tmp_path / "notes.txt"), "data.window": 16}
    given |= {"model.dropout": 0.0, "model.backbone.dropout": 0.3}
    assert to_hf(short_run("text/char-lm", given, tmp_path / "run"), tmp_path / "back") == []


@pytest.mark.slow
def test_a_run_of_ones_own_is_not_written_as_theirs(tmp_path):
    run = short_run("text/char-lm", {}, tmp_path / "own")
    with pytest.raises(UsageError, match="did not begin"):
        to_hf(run, tmp_path / "back")
    assert not (tmp_path / "back").exists()
