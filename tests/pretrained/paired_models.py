"""Small CLIP, MetaCLIP 2 and SigLIP that transformers saves, whole and each tower alone, with their processors."""

import numpy as np
import torch
import transformers
from foreign_models import kept
from tokenizers import Tokenizer, models, pre_tokenizers, processors

VOCAB, CONTEXT, SIDE, PATCH = 31, 13, 15, 5
TEXT = {
    "vocab_size": VOCAB, "hidden_size": 14, "intermediate_size": 22, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": CONTEXT, "bos_token_id": 0, "eos_token_id": VOCAB - 1, "pad_token_id": 1,
}  # fmt: skip
IMAGE = {
    "hidden_size": 21, "intermediate_size": 34, "num_hidden_layers": 3, "num_attention_heads": 3, "image_size": SIDE,
    "patch_size": PATCH,
}  # fmt: skip
MODELS = {
    "clip": ("CLIPModel", {"projection_dim": 11, "text_config": TEXT, "vision_config": IMAGE}),
    "clip of before eos_token_id": (
        "CLIPModel", {"projection_dim": 11, "text_config": {**TEXT, "eos_token_id": 2}, "vision_config": IMAGE}
    ),
    "metaclip_2": ("MetaClip2Model", {
        "projection_dim": 11, "text_config": {**TEXT, "eos_token_id": 2}, "vision_config": IMAGE}),
    "siglip": ("SiglipModel", {"text_config": {**TEXT, "projection_size": 21}, "vision_config": IMAGE}),
    "clip text": ("CLIPTextModel", TEXT),
    "clip text with projection": ("CLIPTextModelWithProjection", {**TEXT, "projection_dim": 11}),
    "clip image": ("CLIPVisionModel", IMAGE),
    "clip image with projection": ("CLIPVisionModelWithProjection", {**IMAGE, "projection_dim": 11}),
    "metaclip_2 text": ("MetaClip2TextModel", {**TEXT, "eos_token_id": 2}),
    "metaclip_2 text with projection": (
        "MetaClip2TextModelWithProjection", {**TEXT, "eos_token_id": 2, "projection_dim": 11}),
    "metaclip_2 image with projection": ("MetaClip2VisionModelWithProjection", {**IMAGE, "projection_dim": 11}),
    "siglip text": ("SiglipTextModel", {**TEXT, "projection_size": 17}),
    "siglip image": ("SiglipVisionModel", IMAGE),
}  # fmt: skip
WHOLE = [name for name in MODELS if name.split()[1:2] not in (["text"], ["image"])]


def tokenizer_of(name):
    """Words, with what the model puts around a text and fills it with."""
    vocabulary = {f"w{i}": i for i in range(VOCAB)} if "clip" in name else {
        **{f"w{i}": i for i in range(VOCAB) if i != 1}, "</s>": 1
    }  # fmt: skip
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="w2"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if "clip" in name:
        # its model pools at the id of its config, 2 in the published ones
        end = 2 if name.startswith("metaclip") else VOCAB - 1
        first, last = "w0", f"w{end}"
        around, special = f"{first} $A {last}", [(first, 0), (last, end)]
        names = {"bos_token": first, "eos_token": last, "pad_token": last}
    else:
        around, special, names = (
            "$A </s>",
            [("</s>", 1)],
            {"eos_token": "</s>", "pad_token": "</s>"},
        )
    words.post_processor = processors.TemplateProcessing(single=around, special_tokens=special)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, model_max_length=CONTEXT, **names
    )


def saved(folder, name):
    """Their model with random weights, its tokenizer and image processor, all saved in the folder."""
    return kept(folder, _saved, name)


def _saved(folder, name):
    kind, settings = MODELS[name]
    model_class = getattr(transformers, kind)
    torch.manual_seed(3)
    model = model_class(model_class.config_class(**settings, attn_implementation="eager")).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    model.save_pretrained(folder)
    size = {"height": SIDE, "width": SIDE}
    if "clip" in name:
        processor = transformers.CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=size)
    else:
        processor = transformers.SiglipImageProcessor(size=size)
    processor.save_pretrained(folder)
    tokenizer = tokenizer_of(name)
    tokenizer.save_pretrained(folder)
    return model, tokenizer, processor


def texts_for(tokenizer, name, texts):
    """Their inputs of texts: SigLIP's are filled up, and attend to what fills them."""
    if name.startswith("siglip"):
        return {
            "input_ids": tokenizer(
                texts, padding="max_length", truncation=True, return_tensors="pt"
            ).input_ids
        }
    return {key: tokenizer(texts, padding=True, truncation=True, return_tensors="pt")[key] for key in
            ("input_ids", "attention_mask")}  # fmt: skip


def image(seed):
    return np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
