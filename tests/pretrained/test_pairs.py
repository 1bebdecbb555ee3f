"""CLIP and SigLIP that transformers saved: raw texts and images give their vectors and logits; written back."""

import json

import pytest
import torch
from foreign_models import short_run
from harmless import assert_any_other_value_counts
from paired_models import (
    CONTEXT,
    IMAGE,
    MODELS,
    PATCH,
    SIDE,
    TEXT,
    VOCAB,
    WHOLE,
    image,
    saved,
    texts_for,
    tokenizer_of,
)
from parity import assert_equal, doubled
from safetensors.torch import load_file, save_file

from seqkit.backbones.compatibility import check_compatible
from seqkit.cli.main import main
from seqkit.config import build, build_model, complete
from seqkit.data.inputs import Input
from seqkit.errors import DataError, UsageError
from seqkit.interfaces import TokenBatch
from seqkit.objectives import Masked
from seqkit.pretrained.folder import settings
from seqkit.runs.answers import vectors
from seqkit.runs.exported import to_hf
from seqkit.runs.imported import import_model
from seqkit.runs.initial_weights import InitialWeights
from seqkit.runs.trained_model import load_one
from seqkit.tokenizers import FromFile

LAST = f"w{VOCAB - 1}"
TEXTS = ["w3 w7 w11", f"w5 {LAST} w9 w8", "w4 w9 w9 w2 w8 w6 w5 w4 w12 w13 w14 w15 w16 w17 w18"]
"""A short one, one with the end token of CLIP in it, and one beyond the end of the table."""


@pytest.fixture(scope="module", params=MODELS)
def imported(request, tmp_path_factory):
    """Their model with tokenizer and processor, and its folder with ours beside it."""
    place = tmp_path_factory.mktemp("pairs")
    theirs = saved(place / "theirs", request.param)
    import_model(place / "theirs", place / "run", "theirs")
    return request.param, theirs, place


def rights(name, theirs):
    """What their model gives for all texts and images."""
    model, tokenizer, processor = theirs
    given = {}
    if "image" not in name:
        given |= texts_for(tokenizer, name, TEXTS)
    if "text" not in name:
        given["pixel_values"] = processor(
            [image(i) for i in range(3)], return_tensors="pt"
        ).pixel_values.double()
    with torch.no_grad():
        return doubled(model)(**given)


def test_raw_texts_and_images_give_their_vectors(imported):
    name, theirs, place = imported
    run, right = load_one(place / "run"), rights(name, theirs)
    run.model.double()
    raws = [{"text": text, "image": image(i)} for i, text in enumerate(TEXTS)]
    if name in WHOLE:
        expected = torch.stack([right.text_embeds, right.image_embeds], dim=1)
        batch = TokenBatch.collate([run.tokenizer.encode(raw) for raw in raws])
        found = run.objective.predict(run.model, batch)
    else:
        key = "pooler_output" if "projection" not in name else f"{name.split()[1]}_embeds"
        expected = right[key]
        given = [Input(str(i), raw[name.split()[1]]) for i, raw in enumerate(raws)]
        found = torch.stack([one.values for one in vectors(run, given)])
    assert_equal(found.double(), expected)


@pytest.mark.parametrize("imported", WHOLE, indirect=True)
def test_logits_and_loss_are_theirs(imported):
    name, theirs, place = imported
    run, right = load_one(place / "run"), rights(name, theirs)
    run.model.double()
    raws = [{"text": text, "image": image(i)} for i, text in enumerate(TEXTS)]
    batch = TokenBatch.collate([run.tokenizer.encode(raw) for raw in raws])
    with torch.no_grad():
        found = run.model(batch)
        is_sigmoid = name == "siglip"
        found, bias = (found[..., :-1], found[0, 0, -1]) if is_sigmoid else (found, 0.0)
        assert_equal(found[:, 1] @ found[:, 0].T + bias, right.logits_per_image)
        out = run.objective.step(run.model, (batch, None), training=True)
        model, tokenizer, processor = theirs
        pixels = processor([image(i) for i in range(3)], return_tensors="pt").pixel_values.double()
        loss = doubled(model)(
            **texts_for(tokenizer, name, TEXTS), pixel_values=pixels, return_loss=True
        ).loss
        torch.testing.assert_close(out.loss / out.count, loss, rtol=1e-5, atol=0)


def test_what_is_read_is_written_back_bit_for_bit(imported):
    _, _, place = imported
    run = load_one(place / "run")
    assert run.summary["initial"]["left_out"] == []
    assert to_hf(run, place / "back") == []
    for file in (
        "model.safetensors",
        "config.json",
        "preprocessor_config.json",
        "tokenizer_config.json",
    ):
        assert (place / "theirs" / file).read_bytes() == (place / "back" / file).read_bytes(), file
    has_text = (place / "back" / "tokenizer.json").is_file()
    assert has_text == (run.config["tokenizer"]["type"] != "Patches")
    if has_text:
        before, after = (
            json.loads((place / part / "tokenizer.json").read_text()) for part in ("theirs", "back")
        )
        assert before == after


@pytest.mark.parametrize("imported", ["siglip"], indirect=True)
def test_the_command_line_gives_the_cosine_of_a_text_and_an_image(imported, tmp_path, capsys):
    name, theirs, place = imported
    picture(0).save(tmp_path / "a.png")
    given = f"image={tmp_path / 'a.png'},text={TEXTS[0]}"
    assert main(["predict", str(place / "run"), "--input", given]) == 0
    right = rights(name, theirs)
    cosine = float(right.text_embeds[0] @ right.image_embeds[0])
    assert float(capsys.readouterr().out.split()[-1].rstrip("}")) == pytest.approx(cosine, abs=1e-4)


# ── training ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("imported", ["clip", "siglip"], indirect=True)
def test_a_recipe_begins_with_all_of_it_and_is_written_back(imported, tmp_path):
    _, _, place = imported
    rows = "".join(f"{tmp_path}/{i}.png,w{i % 7 + 3} w{i % 5 + 9}\n" for i in range(24))
    for i in range(24):
        picture(i).save(tmp_path / f"{i}.png")
    (tmp_path / "pairs.csv").write_text("image,text\n" + rows)
    given = {
        "model.init": str(place / "theirs"),
        "data": str(tmp_path / "pairs.csv"),
        "optimizer": "AdamW",
    }
    run = short_run("multimodal/clip", given, tmp_path / "run")
    assert run.summary["initial"]["taken"] == [
        "backbone",
        "embedder of image",
        "embedder of text",
        "head",
    ]
    assert run.summary["initial"]["new"] == []
    assert to_hf(run, tmp_path / "back") == []
    old, new = (
        load_file(folder / "model.safetensors") for folder in (place / "theirs", tmp_path / "back")
    )
    assert old.keys() == new.keys()
    assert all(
        not old[key].equal(x)
        for key, x in new.items()
        if key.startswith("logit_") or key.endswith("fc1.weight")
    )


def picture(seed):
    from PIL import Image

    return Image.fromarray(image(seed))


@pytest.mark.parametrize("imported", ["clip image", "siglip image"], indirect=True)
def test_a_classifier_begins_with_a_tower(imported):
    _, _, place = imported
    config = complete("image/classify", "debug", {"model.init": str(place / "theirs")})
    built = build(config)
    built.model["objective"].fit([0, 1], ["cat", "dog"])
    model = build_model(built, built.tokenizer.spec)
    origin = InitialWeights(place / "theirs", config).load_into(model, built.model["objective"])
    assert (origin["taken"], origin["new"]) == (["backbone", "embedder"], ["head"])


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def configured(folder, change):
    """The settings in the folder, changed by `change`, and what is then read."""
    path = folder / "config.json"
    held = json.loads(path.read_text())
    change(held)
    path.write_text(json.dumps(held))


@pytest.mark.parametrize("name", MODELS)
def test_another_value_of_any_key_is_another_model_or_refused(tmp_path, name):
    saved(tmp_path, name)
    task = "Contrastive" if name in WHOLE else "Features"
    here = {"logit_scale_init_value", "projection_size", "text_config", "vision_config"}
    if name.startswith("clip"):
        counts = {"model_type", "eos_token_id"}
    else:
        counts = {"model_type"}
    assert_any_other_value_counts(tmp_path, task, here, counts)


@pytest.mark.parametrize(
    "name", ["clip", "siglip", "clip text", "clip image", "siglip text", "siglip image"]
)
def test_keys_that_are_not_written_have_the_values_of_the_library(tmp_path, name):
    import transformers

    config = getattr(transformers, MODELS[name][0]).config_class()
    whole, side = config.to_dict(), {"height": 224, "width": 224}
    tokenizer = tokenizer_of(name)
    if name.startswith("clip"):  # whose published id is that of another tokenizer
        for place in (whole, whole.get("text_config", {})):
            place["eos_token_id"] = VOCAB - 1
    tokenizer.model_max_length = 64
    tokenizer.save_pretrained(tmp_path)
    kind = "CLIP" if name.startswith("clip") else "Siglip"
    size = {"size": {"shortest_edge": 224}, "crop_size": side} if kind == "CLIP" else {"size": side}
    getattr(transformers, f"{kind}ImageProcessor")(**size).save_pretrained(tmp_path)
    alone = {"model_type": whole["model_type"]}
    if name.startswith("clip") and "image" not in name:
        alone |= (
            {"text_config": {"eos_token_id": VOCAB - 1}}
            if name == "clip"
            else {"eos_token_id": VOCAB - 1}
        )
    found = []
    for held in (whole, alone):
        (tmp_path / "config.json").write_text(json.dumps(held))
        found.append(settings(tmp_path, "Contrastive" if name in WHOLE else "Features"))
    assert found[0] == found[1]


def test_older_files_say_the_same(tmp_path):
    """Sections under their second names, junk of all configurations, and buffers among the weights."""
    saved(tmp_path, "clip")
    found = settings(tmp_path, "Contrastive")

    def older(held):
        for name in ("text_config", "vision_config"):
            held[f"{name}_dict"] = {**held[name], "dropout": 0.0, "top_k": 50, "num_beams": 1}
            held[name] = {**held[name], "num_hidden_layers": 99}
            del held[f"{name}_dict"]["model_type"]

    configured(tmp_path, older)
    assert settings(tmp_path, "Contrastive") == found
    held = load_file(tmp_path / "model.safetensors")
    for part, n in (("text", CONTEXT), ("vision", 1 + (SIDE // PATCH) ** 2)):
        held[f"{part}_model.embeddings.position_ids"] = torch.arange(n)[None]
    save_file(held, tmp_path / "model.safetensors")
    import_model(tmp_path, tmp_path / "run", "clip")


def inside(name, **keys):
    return lambda held: held[name].update(keys)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("clip", inside("text_config", hidden_act="xielu"), "hidden_act is 'xielu'"),
        ("clip", inside("vision_config", num_channels=4), "num_channels is 4"),
        ("clip", inside("text_config", model_type="bert"), "model_type is 'bert'"),
        ("clip", inside("text_config", eos_token_id=7), "id 30.*id 7"),
        ("clip", inside("vision_config", image_size=16), "image_size is 16"),
        ("clip", lambda held: held.update(text_config=[3]), r"text_config"),
        ("siglip", inside("text_config", projection_size=19), "projection_size is 19"),
        ("siglip", inside("vision_config", vision_use_head=False), "vision_use_head is False"),
        ("siglip", inside("text_config", max_position_embeddings=17), "model_max_length is 13.*17"),
    ],
)
def test_a_setting_that_is_not_read_is_refused(tmp_path, name, change, said):
    saved(tmp_path, name)
    configured(tmp_path, change)
    with pytest.raises(DataError, match=said) as refused:
        import_model(tmp_path, tmp_path / "run", name)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "clip",
            lambda held: held.pop("text_projection.weight"),
            r"has no weight text_projection\.weight",
        ),
        (
            "clip",
            lambda held: held.pop("vision_model.pre_layrnorm.bias"),
            r"input_norm\.bias is missing",
        ),
        ("siglip", lambda held: held.pop("logit_bias"), r"has no weight logit_bias"),
        ("siglip", lambda held: held.update(logit_gain=torch.ones(1)), "logit_gain"),
    ],
)
def test_weights_are_all_read_or_the_file_is_refused(tmp_path, name, change, said):
    saved(tmp_path, name)
    held = load_file(tmp_path / "model.safetensors")
    change(held)
    save_file(held, tmp_path / "model.safetensors")
    with pytest.raises(DataError, match=said):
        import_model(tmp_path, tmp_path / "run", name)


def test_an_objective_that_needs_the_parts_together_is_refused(tmp_path):
    saved(tmp_path, "clip")
    changed = {"model.init": str(tmp_path), "model.objective": "Masked"}
    with pytest.raises(UsageError, match="Masked needs them together"):
        complete("multimodal/clip", "debug", changed)
    built = build(complete("multimodal/clip", "debug", {"model.init": str(tmp_path)}))
    spec = built.tokenizer.spec
    with pytest.raises(ValueError, match="Masked needs the parts together"):
        check_compatible(spec, build_model(built, spec).backbone, Masked())


# ── texts of fixed lengths ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_ids_are_theirs_cut_and_filled(tmp_path, name):
    tokenizer = tokenizer_of(name)
    tokenizer.save_pretrained(tmp_path)
    how = {"end_id": VOCAB - 1} if name == "clip" else {"pad_id": 1}
    ours = FromFile(str(tmp_path), max_tokens=CONTEXT, **how)
    again = FromFile(str(tmp_path), max_tokens=CONTEXT, **how)
    again.load_state(ours.state())
    padding = {"padding": "max_length"} if name == "siglip" else {}
    for text in TEXTS:
        right = tokenizer(text, truncation=True, **padding).input_ids
        if name == "clip":
            right = right[: right.index(VOCAB - 1) + 1]
        assert ours.encode(text).content.tolist() == again.encode(text).content.tolist() == right
        assert len(right) == CONTEXT or name == "clip"
    assert ours.decode(ours.encode("w3 w7 w11")) == "w3 w7 w11"
    assert "max_tokens=13" in repr(ours)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pad_id": 1}, "pad_id=1 fills texts up to max_tokens"),
        ({"max_tokens": 0}, "max_tokens=0; .* at least 1"),
        ({"end_id": -1}, "end_id=-1; give 0 or more"),
        ({"max_tokens": 5, "token_types": 2}, "max_tokens are for single texts"),
    ],
)
def test_lengths_that_mean_nothing_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        FromFile("tokenizer.json", **given)


assert TEXT["max_position_embeddings"] == CONTEXT
assert IMAGE["image_size"] == SIDE
