"""Vision models that transformers saved: the raw image goes in, their logits come out; written back bit for bit."""

import json

import numpy as np
import pytest
import timm
import torch
import transformers
from foreign_models import short_run
from parity import assert_equal, doubled
from PIL import Image
from safetensors.torch import load_file, save_file
from timm.models._hub import save_for_hf

from seqkit.errors import DataError
from seqkit.interfaces import TokenBatch
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.folder import written
from seqkit.runs.exported import to_hf
from seqkit.runs.imported import import_model
from seqkit.runs.trained_model import load_one

SIDE, PATCH, CLASSES = 20, 5, 3
SIZES = {
    "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "image_size": SIDE, "patch_size": PATCH,
    "attn_implementation": "eager", "id2label": {0: "cat", 1: "dog", 2: "owl"},
}  # fmt: skip
MODELS = {
    "vit": ("ViTForImageClassification", {"intermediate_size": 40}),
    "deit": ("DeiTForImageClassification", {"intermediate_size": 40}),
    "dinov2": ("Dinov2Model", {"mlp_ratio": 2, "layerscale_value": 0.5, "use_mask_token": False}),
}


@pytest.fixture(params=MODELS)
def saved(request, tmp_path):
    """Their model with random weights, its processor, and the folder that both were saved in."""
    name, more = MODELS[request.param]
    kind = getattr(transformers, name)
    torch.manual_seed(3)
    model = kind(kind.config_class(**SIZES, **more)).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(tmp_path / "theirs")
    size = {"height": SIDE, "width": SIDE}
    processor = transformers.ViTImageProcessor(size=size, resample=3)
    processor.save_pretrained(tmp_path / "theirs")
    return model, processor, tmp_path


def image(side, seed):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8))


def test_raw_images_give_their_hidden_states_and_classes(saved):
    model, processor, place = saved
    import_model(place / "theirs", place / "run", "theirs")
    run, images = load_one(place / "run"), [image(SIDE, 0), image(SIDE, 1)]  # others differ by the filter's rounding
    given = [torch.from_numpy(np.array(one).transpose(2, 0, 1)) for one in images]
    batch = TokenBatch.collate([run.tokenizer.encode(one) for one in given])
    with torch.no_grad():
        ours, pixels = doubled(run.model), processor(images, return_tensors="pt").pixel_values.double()
        right = doubled(model)(pixels, output_hidden_states=True)
        if run.summary["objective"] == "Classify":
            assert_equal(ours(batch), right.logits)
            names = [SIZES["id2label"][int(i)] for i in right.logits.argmax(dim=1)]
            assert run.predict(given) == names
        else:
            assert_equal(ours.backbone(ours.embed(batch)), right.last_hidden_state)


def test_what_is_read_is_written_back_bit_for_bit(saved):
    _, _, place = saved
    import_model(place / "theirs", place / "run", "theirs")
    assert to_hf(load_one(place / "run"), place / "back") == []
    held, back = (load_file(place / name / "model.safetensors") for name in ("theirs", "back"))
    assert held.keys() == back.keys()
    assert all(held[name].equal(x) for name, x in back.items())


def test_classes_of_ones_own_are_written_with_their_names(tmp_path):
    config = transformers.ViTConfig(**SIZES, intermediate_size=40)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "theirs")
    transformers.ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(tmp_path / "theirs")
    for i in range(24):
        place = tmp_path / "photos" / ("fir", "oak", "yew")[i % 3] / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        image(SIDE, i).save(place)
    given = {"model.init": str(tmp_path / "theirs"), "data": str(tmp_path / "photos")}
    run = short_run("image/classify", given, tmp_path / "run")
    assert run.summary["initial"]["new"] == ["head"]
    assert to_hf(run, tmp_path / "back") == []
    back = transformers.ViTForImageClassification.from_pretrained(tmp_path / "back").eval()
    assert back.config.id2label == {0: "fir", 1: "oak", 2: "yew"}
    pixels = torch.from_numpy(np.array(image(SIDE, 3)).transpose(2, 0, 1))
    batch = TokenBatch.collate([run.tokenizer.encode(pixels)])
    with torch.no_grad():
        processor = transformers.ViTImageProcessor.from_pretrained(tmp_path / "back")
        right = doubled(back)(processor(image(SIDE, 3), return_tensors="pt").pixel_values.double())
        assert_equal(doubled(run.model)(batch), right.logits)


def test_an_image_processor_of_another_size_is_refused(saved):
    _, _, place = saved
    transformers.ViTImageProcessor(size={"height": 15, "width": 15}).save_pretrained(place / "theirs")
    with pytest.raises(DataError, match=r"\[15, 15\].*\[20"):
        import_model(place / "theirs", place / "run", "theirs")


def test_the_mask_token_of_a_model_without_masks_is_said_to_be_left_out(tmp_path):
    config = transformers.Dinov2Config(**SIZES, mlp_ratio=2)
    transformers.Dinov2Model(config).save_pretrained(tmp_path / "theirs")
    size = {"height": SIDE, "width": SIDE}
    transformers.ViTImageProcessor(size=size).save_pretrained(tmp_path / "theirs")
    summary = import_model(tmp_path / "theirs", tmp_path / "run", "theirs")
    assert summary["initial"]["left_out"] == ["mask_token"]


# ── names of timm ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def of_timm(tmp_path):
    """A ViT of timm with random weights, and the folder that timm saved it in."""
    torch.manual_seed(3)
    sizes = {"img_size": SIDE, "patch_size": PATCH, "embed_dim": 24, "depth": 3, "num_heads": 3}
    model = timm.create_model("vit_tiny_patch16_224", **sizes, num_classes=CLASSES).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    save_for_hf(model, tmp_path / "timm", {"label_names": ["cat", "dog", "owl"]}, safe_serialization=True)
    return model, tmp_path


def transform_of(folder):
    """What timm does to an image for the model of a folder."""
    said = json.loads((folder / "config.json").read_text())["pretrained_cfg"]
    return timm.data.create_transform(**timm.data.resolve_data_config(pretrained_cfg=said))


def test_a_vit_of_timm_gives_its_classes_and_is_written_back(of_timm):
    model, place = of_timm
    run = import_and_load(place, "timm")
    transform = transform_of(place / "timm")
    images = [image(SIDE, seed) for seed in range(4)]
    given = [torch.from_numpy(np.array(one).transpose(2, 0, 1)) for one in images]
    with torch.no_grad():
        right = doubled(model)(torch.stack([transform(one) for one in images]).double())
        batch = TokenBatch.collate([run.tokenizer.encode(one) for one in given])
        assert_equal(doubled(run.model)(batch), right)
    assert run.predict(given) == [["cat", "dog", "owl"][int(i)] for i in right.argmax(dim=1)]
    assert to_hf(run, place / "back") == []
    held, back = (load_file(place / name / "model.safetensors") for name in ("timm", "back"))
    assert held.keys() == back.keys()
    assert all(held[name].equal(x) for name, x in back.items())


def test_both_libraries_names_of_one_vit_give_one_model(of_timm):
    _, place = of_timm
    ours = import_and_load(place, "timm").model.state_dict()
    config = transformers.ViTConfig(**SIZES, intermediate_size=96, layer_norm_eps=1e-6)
    (place / "other").mkdir()
    transformers.ViTForImageClassification(config).save_pretrained(place / "other")
    found, _ = written(ConfigFile(place / "other" / "config.json"), ours, "Classify")
    save_file(found, place / "other" / "model.safetensors", metadata={"format": "pt"})
    transformers.ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(place / "other")
    again = import_and_load(place, "other").model.state_dict()
    assert ours.keys() == again.keys()
    assert all(x.equal(again[name]) for name, x in ours.items())
    theirs = transformers.ViTForImageClassification.from_pretrained(place / "other").eval()
    pixels = torch.randn(2, 3, SIDE, SIDE, dtype=torch.float64)
    with torch.no_grad():
        assert_equal(doubled(theirs)(pixels).logits, doubled(of_timm[0])(pixels))


def test_classes_of_ones_own_are_written_as_timm_names_them(of_timm):
    _, place = of_timm
    for i in range(24):
        path = place / "photos" / ("elm", "fir", "oak", "yew")[i % 4] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image(SIDE, i).save(path)
    given = {"model.init": str(place / "timm"), "data": str(place / "photos")}
    run = short_run("image/classify", given, place / "run")
    assert to_hf(run, place / "back") == []
    back = timm.create_model(f"local-dir:{place / 'back'}", pretrained=True).eval()
    assert json.loads((place / "back" / "config.json").read_text())["label_names"] == ["elm", "fir", "oak", "yew"]
    pixels = torch.from_numpy(np.array(image(SIDE, 3)).transpose(2, 0, 1))
    batch = TokenBatch.collate([run.tokenizer.encode(pixels)])
    with torch.no_grad():
        right = doubled(back)(transform_of(place / "back")(image(SIDE, 3))[None].double())
        assert_equal(doubled(run.model)(batch), right)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("architecture", "vit_base_patch16_clip_224", "model_type is None"),
        ("global_pool", "avg", "global_pool is 'avg'"),
        ("model_args", {"qk_norm": True}, "qk_norm=True is not read"),
        ("model_args", {"patch_size": 3}, "multiple of 3"),
        ("model_args", {"depth": "deep"}, "whole numbers"),
        ("label_names", ["cat"], "a name for each of 3 classes"),
    ],
)
def test_another_model_of_timm_is_refused(of_timm, key, value, said):
    _, place = of_timm
    path = place / "timm" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(DataError, match=said):
        import_model(place / "timm", place / "run", "timm")


def import_and_load(place, name):
    """The run of a folder in `place`."""
    import_model(place / name, place / f"run-{name}", name)
    return load_one(place / f"run-{name}")
