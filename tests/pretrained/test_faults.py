"""Faults that are planted in a saved folder: each is refused in one line, or what is read is the same as without."""

import json
import random
import shutil

import pytest
import torch
from every_type import model_of, save, small_models, words
from foreign_models import kept
from safetensors.torch import load_file, save_file

from seqkit.errors import DataError, UsageError
from seqkit.runs.imported import import_model
from seqkit.runs.trained_model import load_one

KINDS = ("bert", "llama", "gpt2", "mamba", "t5", "bart", "whisper", "vit", "clip", "wav2vec2")
OF_TEXTS = KINDS[:7]
JUNK = ["x", "\n", {"a": 1}, [1, {}], float("inf")]
NO_SETTINGS = ["", "{", "[]", "3", "null", '"x"', "\x00\xff"]
DRAWS = [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, 6))]


def folder_of(place, kind, *, in_shards=False):
    """A folder of the first row of a type, with an index in place of one file if so."""
    kept(place, _save, kind, in_shards)
    return place


def _save(place, kind, in_shards):
    model = model_of(*small_models()[kind][0])
    save(place, model)
    if in_shards:
        (place / "model.safetensors").unlink()
        model.save_pretrained(place, max_shard_size="9KB")


# ── faults of files of weights ────────────────────────────────────────────────────────────────────────────────────────


def cut(path, rng):
    path.write_bytes(path.read_bytes()[: rng.choice([0, 3, 8, 100, -1, -50])])


def longer(path, rng):
    path.write_bytes(path.read_bytes() + b"more")


def other_header(path, rng):
    held = bytearray(path.read_bytes())
    held[rng.randrange(2, 8)] ^= 255
    path.write_bytes(bytes(held))


def lost(path, rng):
    path.unlink()


def folder(path, rng):
    path.unlink()
    path.mkdir()


def link(path, rng):
    outside = path.parent.parent / "outside.safetensors"
    path.rename(outside)
    path.symlink_to(outside)


def tensors(change):
    """The fault that changes a drawn tensor. change: gets all by name, the drawn name, and the generator."""

    def plant(path, rng):
        held = load_file(path)
        change(held, rng.choice(sorted(name for name in held if held[name].ndim)), rng)
        save_file(held, path)

    return plant


def typed(held, name, rng):
    kinds = (torch.int8, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn)
    held[name] = held[name].to(rng.choice(kinds))


def no_number(held, name, rng):
    held[name].view(-1)[0] = rng.choice([torch.nan, torch.inf])


def narrower(held, name, rng):
    held[name] = held[name][..., :-1].contiguous()


OF_WEIGHTS = {
    "cut": cut,
    "longer": longer,
    "other header": other_header,
    "lost": lost,
    "folder": folder,
    "link": link,
    "lost tensor": tensors(lambda held, name, rng: held.pop(name)),
    "other name": tensors(lambda held, name, rng: held.update({f"{name}x": held.pop(name)})),
    "more": tensors(lambda held, name, rng: held.update({"more.weight": torch.ones(3)})),
    "adapter": tensors(lambda held, name, rng: held.update({f"{name}.lora_A": torch.ones(3)})),
    "narrower": tensors(narrower),
    "twice": tensors(lambda held, name, rng: held.update({name: torch.cat([held[name]] * 2)})),
    "type": tensors(typed),
    "no number": tensors(no_number),
}


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("fault", OF_WEIGHTS)
def test_damaged_weights_are_refused(tmp_path, fault, draw):
    rng = random.Random(f"{fault} {draw}")
    place = folder_of(tmp_path / "theirs", rng.choice(KINDS), in_shards=rng.random() < 0.5)
    OF_WEIGHTS[fault](rng.choice(sorted(place.glob("*.safetensors"))), rng)
    assert_refused(place)


def assert_refused(place):
    with pytest.raises((DataError, UsageError)) as refused:
        import_model(place, place.parent / "run", "theirs")
    said = str(refused.value)
    assert "\n" not in said
    assert len(said) < 500
    assert not (place.parent / "run").exists()


def without_map(held, names, rng):
    held.pop("weight_map")


def other_file(held, name, rng):
    files = ["nothing.safetensors", "../a.safetensors", "a.bin", "", 5, None]
    held["weight_map"][name] = rng.choice(files)


def other_shard(held, name, rng):
    files = {*held["weight_map"].values()} - {held["weight_map"][name]}
    held["weight_map"][name] = rng.choice(sorted(files))


OF_AN_INDEX = {
    "without a map": without_map,
    "other file": other_file,
    "other shard": other_shard,
    "lacks a name": lambda held, name, rng: held["weight_map"].pop(name),
    "one more": lambda held, name, rng: held["weight_map"].update(
        {"more.weight": held["weight_map"][name]}
    ),
    "of another type": lambda held, name, rng: held.update(
        weight_map=rng.choice([3, [], {}, None])
    ),
}


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("fault", OF_AN_INDEX)
def test_a_wrong_index_is_refused(tmp_path, fault, draw):
    rng = random.Random(f"{fault} {draw}")
    place = folder_of(tmp_path / "theirs", rng.choice(KINDS), in_shards=True)
    path = place / "model.safetensors.index.json"
    held = json.loads(path.read_text())
    OF_AN_INDEX[fault](held, rng.choice(sorted(held["weight_map"])), rng)
    path.write_text(json.dumps(held))
    assert_refused(place)


@pytest.mark.parametrize("text", NO_SETTINGS)
@pytest.mark.parametrize("file", ["config.json", "model.safetensors.index.json", "tokenizer.json"])
def test_a_file_of_no_settings_is_refused(tmp_path, file, text):
    place = folder_of(tmp_path / "theirs", "bart", in_shards=True)
    (place / file).write_text(text)
    assert_refused(place)


def test_a_file_that_no_index_lists_is_not_read(tmp_path):
    place = folder_of(tmp_path / "theirs", "llama", in_shards=True)
    import_model(place, tmp_path / "right", "theirs")
    shutil.copy(next(place.glob("*.safetensors")), place / "model-00099-of-00099.safetensors")
    import_model(place, tmp_path / "run", "theirs")
    found, right = (load_one(tmp_path / name).model.state_dict() for name in ("run", "right"))
    assert all(found[name].equal(x) for name, x in right.items())


# ── faults of settings ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("kind", KINDS)
def test_values_of_wrong_types_are_refused_or_change_nothing(tmp_path, kind, draw):
    place = folder_of(tmp_path / "theirs", kind)
    import_model(place, tmp_path / "right", "theirs")
    right = (tmp_path / "right" / "config.yaml").read_text()
    path = place / "config.json"
    held = json.loads(path.read_text())
    rng = random.Random(f"{kind} {draw}")
    for i, key in enumerate(rng.sample(sorted(held), 5)):
        path.write_text(json.dumps({**held, key: rng.choice(JUNK)}))
        try:
            import_model(place, tmp_path / f"run{i}", "theirs")
        except (DataError, UsageError) as error:
            said = str(error)
        else:
            said = ""
            found = (tmp_path / f"run{i}" / "config.yaml").read_text()
            assert found == right, path.read_text()
        assert "\n" not in said
        assert len(said) < 500


# ── tokenizers ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", OF_TEXTS)
def test_a_tokenizer_of_more_ids_than_the_model_is_refused(tmp_path, kind):
    place = folder_of(tmp_path / "theirs", kind)
    words(900).save(str(place / "tokenizer.json"))
    with pytest.raises((DataError, UsageError), match="ids up to 899, and the model has"):
        import_model(place, tmp_path / "run", "theirs")


@pytest.mark.parametrize(("num", "is_said"), [(9, True), (28, False)])
def test_a_tokenizer_of_far_less_ids_is_said(tmp_path, caplog, num, is_said):
    place = folder_of(tmp_path / "theirs", "llama")
    words(num).save(str(place / "tokenizer.json"))
    import_model(place, tmp_path / "run", "theirs")
    assert ("has 9 ids, and the model 29; check that" in caplog.text) == is_said


@pytest.mark.parametrize("kind", OF_TEXTS)
def test_a_tokenizer_of_sentencepiece_alone_is_refused_with_what_to_do(tmp_path, kind):
    place = folder_of(tmp_path / "theirs", kind)
    (place / "tokenizer.json").rename(place / "tokenizer.model")
    with pytest.raises(DataError, match=r"has no tokenizer\.json; save its fast tokenizer there"):
        import_model(place, tmp_path / "run", "theirs")


def test_quantised_weights_are_refused(tmp_path):
    place = folder_of(tmp_path / "theirs", "llama")
    path = place / "config.json"
    held = {**json.loads(path.read_text()), "quantization_config": {"quant_method": "fp8"}}
    path.write_text(json.dumps(held))
    with pytest.raises(DataError, match=r"quantization_config is .*fp8"):
        import_model(place, tmp_path / "run", "theirs")
