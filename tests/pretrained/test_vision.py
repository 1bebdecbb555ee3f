"""Vision models that transformers saved: the raw image goes in, their logits come out; written back bit for bit."""

import numpy as np
import pytest
import torch
import transformers
from foreign_models import short_run
from parity import assert_equal, doubled
from PIL import Image
from safetensors.torch import load_file

from seqkit.errors import DataError, UsageError
from seqkit.interfaces import TokenBatch
from seqkit.runs.exported import to_hf
from seqkit.runs.imported import import_model
from seqkit.runs.trained_model import load_one

SIDE, PATCH = 20, 5
SIZES = {
    "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "image_size": SIDE, "patch_size": PATCH,
    "attn_implementation": "eager", "id2label": {0: "cat", 1: "dog", 2: "owl"},
}  # fmt: skip
MODELS = {
    "vit": ("ViTForImageClassification", {"intermediate_size": 40}),
    "deit": ("DeiTForImageClassification", {"intermediate_size": 40}),
    "vit_msn": ("ViTMSNModel", {"intermediate_size": 40}),
    "vit_mae": ("ViTMAEForPreTraining", {
        "intermediate_size": 40, "mask_ratio": 0.0, "decoder_hidden_size": 8, "decoder_num_hidden_layers": 1,
        "decoder_num_attention_heads": 2, "decoder_intermediate_size": 8}),
    "ijepa": ("IJepaForImageClassification", {"intermediate_size": 40}),
    "dinov2": ("Dinov2Model", {"mlp_ratio": 2, "layerscale_value": 0.5, "use_mask_token": False}),
    "dinov2, gated": ("Dinov2Model", {"mlp_ratio": 3, "use_swiglu_ffn": True, "use_mask_token": False}),
    "dinov2_with_registers": ("Dinov2WithRegistersModel", {"mlp_ratio": 2, "num_register_tokens": 3}),
    "dinov3_vit": ("DINOv3ViTModel", {"intermediate_size": 40, "num_register_tokens": 2}),
    "dinov3_vit, gated": ("DINOv3ViTModel", {
        "intermediate_size": 40, "use_gated_mlp": True, "hidden_act": "silu", "key_bias": True, "mlp_bias": False}),
}  # fmt: skip


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
    if name.startswith("DINOv3"):
        processor = transformers.DINOv3ViTImageProcessor(size=size)
    else:
        processor = transformers.ViTImageProcessor(size=size, resample=3)
    processor.save_pretrained(tmp_path / "theirs")
    return model, processor, tmp_path


def image(side, seed):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8))


def hidden_states(model, pixels):
    """What their model returns; that of a masked autoencoder's encoder, whose patches are shuffled by noise."""
    if isinstance(model, transformers.ViTMAEPreTrainedModel):
        noise = torch.arange(float((SIDE // PATCH) ** 2)).expand(len(pixels), -1)
        return getattr(model, "vit", model)(pixels, noise=noise)
    return model(pixels)


def test_raw_images_give_their_hidden_states_and_classes(saved):
    model, processor, place = saved
    import_model(place / "theirs", place / "run", "theirs")
    # others differ by the filter's rounding
    run, images = load_one(place / "run"), [image(SIDE, 0), image(SIDE, 1)]
    given = [torch.from_numpy(np.array(one).transpose(2, 0, 1)) for one in images]
    batch = TokenBatch.collate([run.tokenizer.encode(one) for one in given])
    with torch.no_grad():
        ours, pixels = (
            doubled(run.model),
            processor(images, return_tensors="pt").pixel_values.double(),
        )
        right = hidden_states(doubled(model), pixels)
        if run.summary["objective"] == "Classify":
            assert_equal(ours(batch), right.logits)
            names = [SIZES["id2label"][int(i)] for i in right.logits.argmax(dim=1)]
            assert run.predict(given) == names
        else:
            assert_equal(ours.backbone(ours.embed(batch)), right.last_hidden_state)


def test_what_is_read_is_written_back_bit_for_bit(saved):
    model, _, place = saved
    import_model(place / "theirs", place / "run", "theirs")
    assert to_hf(load_one(place / "run"), place / "back") == []
    held, back = (load_file(place / name / "model.safetensors") for name in ("theirs", "back"))
    own = {name for name in held if not name.endswith("mask_token") and name[:8] != "decoder."}
    if len(own) < len(held):
        held = {name.removeprefix("vit."): held[name] for name in own}
    assert held.keys() - {"embeddings.mask_token"} == back.keys()
    assert all(held[name].equal(x) for name, x in back.items())
    config = transformers.AutoConfig.from_pretrained(place / "back")
    again = getattr(transformers, config.architectures[0]).from_pretrained(place / "back").eval()
    pixels = torch.rand(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        right, got = (hidden_states(doubled(each), pixels.double()) for each in (model, again))
    assert_equal(got[0], right[0])


@pytest.mark.slow
def test_classes_of_ones_own_are_written_with_their_names(tmp_path):
    config = transformers.ViTConfig(**SIZES, intermediate_size=40)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "theirs")
    transformers.ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(
        tmp_path / "theirs"
    )
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


def test_a_dinov3_reads_images_that_are_no_squares(tmp_path):
    torch.manual_seed(3)
    config = transformers.DINOv3ViTConfig(**SIZES, intermediate_size=40)
    model = transformers.DINOv3ViTModel(config).eval()
    model.save_pretrained(tmp_path / "theirs")
    processor = transformers.DINOv3ViTImageProcessor(size={"height": 10, "width": 35})
    processor.save_pretrained(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "run", "theirs")
    run = load_one(tmp_path / "run")
    photo = torch.rand(3, 41, 57, generator=torch.Generator().manual_seed(5))
    photo = (photo * 255).to(torch.uint8)
    tokens = run.tokenizer.encode(photo)
    torch.testing.assert_close(run.tokenizer.decode(tokens), run.tokenizer.resized(photo / 255))
    with torch.no_grad():
        pixels = processor(photo, return_tensors="pt").pixel_values.double()
        ours = doubled(run.model)
        right = doubled(model)(pixels).last_hidden_state
        assert_equal(ours.backbone(ours.embed(TokenBatch.collate([tokens]))), right)


@pytest.mark.parametrize(("side", "name"), [(10, ""), (30, ""), (10, "WithRegisters")])
def test_a_dinov2_reads_images_of_another_size_than_its_table_of_positions(tmp_path, side, name):
    """As published: tables are for 518 pixels, and processors crop to 224."""
    torch.manual_seed(3)
    kind = getattr(transformers, f"Dinov2{name}Model")
    model = kind(kind.config_class(**SIZES, mlp_ratio=2)).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(tmp_path / "theirs")
    processor = transformers.ViTImageProcessor(size={"height": side, "width": side}, resample=3)
    processor.save_pretrained(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "run", "theirs")
    run, given = load_one(tmp_path / "run"), image(side, 0)
    batch = TokenBatch.collate(
        [run.tokenizer.encode(torch.from_numpy(np.array(given).transpose(2, 0, 1)))]
    )
    with torch.no_grad():
        right = doubled(model)(
            processor(given, return_tensors="pt").pixel_values.double()
        ).last_hidden_state
        ours = doubled(run.model)
        assert_equal(ours.backbone(ours.embed(batch)), right)
    with pytest.raises(UsageError, match="interpolated"):
        to_hf(run, tmp_path / "back")


def test_an_image_processor_of_another_size_is_refused(saved):
    model, _, place = saved
    if model.config.model_type.startswith("dino"):
        pytest.skip("its table of positions is interpolated, or it has none")
    transformers.ViTImageProcessor(size={"height": 15, "width": 15}).save_pretrained(
        place / "theirs"
    )
    with pytest.raises(DataError, match=r"\[15, 15\].*\[20"):
        import_model(place / "theirs", place / "run", "theirs")


def test_the_mask_token_of_a_model_without_masks_is_said_to_be_left_out(tmp_path):
    config = transformers.Dinov2Config(**SIZES, mlp_ratio=2)
    transformers.Dinov2Model(config).save_pretrained(tmp_path / "theirs")
    size = {"height": SIDE, "width": SIDE}
    transformers.ViTImageProcessor(size=size).save_pretrained(tmp_path / "theirs")
    summary = import_model(tmp_path / "theirs", tmp_path / "run", "theirs")
    assert summary["initial"]["left_out"] == ["mask_token"]
