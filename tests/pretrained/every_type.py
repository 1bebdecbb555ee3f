"""A small model of every imported type, from the tables of the tests beside: saved, imported, and asked the same.

A type that is added to `FAMILIES` is tested without being named here, once one of these tables has settings of it.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import foreign_models
import numpy as np
import paired_models
import test_audio
import test_encoder_decoder
import test_vision
import torch
import transformers
from parity import doubled
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn

from seqkit.interfaces import TokenBatch, Tokens
from seqkit.raw import Waveform
from seqkit.runs.imported import import_model
from seqkit.runs.trained_model import TrainedModel, load_one

EXACT = {"attn_implementation": "eager", "experts_implementation": "eager"}
LENGTHS = (11, 17, 6)
RATE = 16_000


FAST = (
    "bert", "deberta-v2", "modernbert", "llama", "gpt2", "gemma3_text", "gpt_oss", "mamba2", "falcon_h1", "qwen3_next",
    "t5", "whisper", "vit", "wavlm", "clip",
)  # fmt: skip
"""One type of each family; the others are slow."""


def small_models():
    """Names of classes with small settings by type: a list of the rows that the tables have of it."""
    rows = []
    for table in vars(foreign_models).values():
        for name, settings in table.items() if isinstance(table, dict) else ():
            if isinstance(name, str) and isinstance(settings, dict):
                rows += [(_class_with_head(name.split()[0]), settings)]
    for name, (kind, settings) in test_encoder_decoder.MODELS.items():
        rows += [(name.split()[0] + kind, settings)]
    for name, settings in test_vision.MODELS.values():
        rows += [(name, {**test_vision.SIZES, **settings})]
    for name, kind, settings, _ in test_audio.MODELS.values():
        if kind != "ForAudioClassification":
            rows += [(f"{name}Model", settings)]
    rows += paired_models.MODELS.values()
    found = defaultdict(list)
    for name, settings in rows:
        if name is not None:
            found[getattr(transformers, name).config_class.model_type].append((name, settings))
    return found


def _class_with_head(name):
    """Name of the class of a family of texts; None: there is no such family."""
    for kind in ("ForMaskedLM", "ForCausalLM", "LMHeadModel", "Model"):
        if hasattr(transformers, name + kind):
            return name + kind
    return None


def model_of(name, settings):
    """Their model of that class with random weights, none at 0 or 1."""
    model_class = getattr(transformers, name)
    torch.manual_seed(3)
    model = model_class(model_class.config_class(**{**settings, **EXACT})).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:  # tables of fixed waves are not saved
                p.add_(torch.randn_like(p) * 0.1)
        # published files of these have a head of their own, though the class ties it
        if hasattr(model.config, "d_kv") and not getattr(
            model.config, "scale_decoder_outputs", False
        ):
            model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.3)
    return model


def save(folder, model, **how):
    """The folder that their library writes, with a tokenizer of words, or what prepares images and sounds.

    how: as in `save_pretrained`.
    """
    folder.mkdir(exist_ok=True)
    model.save_pretrained(folder, **how)
    kind = model.config.model_type
    vocab_size = getattr(model.config.get_text_config(), "vocab_size", None)
    if kind.startswith(PAIRED):
        paired_models.tokenizer_of(kind).save_pretrained(folder)
    elif vocab_size and kind not in ("wav2vec2", "hubert"):
        words(vocab_size).save(str(folder / "tokenizer.json"))
    if (processor := processor_of(model.config)) is not None:
        processor.save_pretrained(folder)


def words(num):
    """A tokenizer of so many words, of which the last hides others."""
    made = Tokenizer(
        models.WordLevel(
            {**{f"w{i}": i for i in range(num - 1)}, "[MASK]": num - 1}, unk_token="w0"
        )
    )
    made.add_special_tokens(["[MASK]"])
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def processor_of(config):
    """What prepares images or sounds for a model; None: it reads neither."""
    if hasattr(config, "num_mel_bins"):
        seconds = config.max_source_positions // 50
        return transformers.WhisperFeatureExtractor(config.num_mel_bins, chunk_length=seconds)
    if hasattr(config, "feat_extract_norm"):
        has_mask = config.feat_extract_norm == "layer"
        return transformers.Wav2Vec2FeatureExtractor(return_attention_mask=has_mask)
    images = getattr(config, "vision_config", config)
    if not hasattr(images, "patch_size"):
        return None
    size = {"height": images.image_size, "width": images.image_size}
    if config.model_type.startswith("siglip"):
        return transformers.SiglipImageProcessor(size=size)
    if config.model_type.startswith(("clip", "metaclip")):
        own = {"size": {"shortest_edge": images.image_size}, "crop_size": size}
        return transformers.CLIPImageProcessor(**own)
    return transformers.ViTImageProcessor(size=size)


# ── the same question ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Asked:
    """Both models in float64, and examples. batch: ours. inputs: theirs, of each example alone."""

    theirs: Any
    run: TrainedModel
    batch: TokenBatch
    inputs: list[dict[str, torch.Tensor]]

    def ours(self, batch=None):
        """What our model gives for a batch: logits or hidden states [b n v], or what it gives for whole examples."""
        model = self.run.model
        batch = self.batch if batch is None else batch
        with torch.no_grad():
            if self.is_of_pairs:
                return self.run.objective.predict(model, batch)
            if self.run.summary["objective"] == "Features":
                return model.backbone(model.embed(batch))
            return model(batch)

    def rights(self):
        """What their model gives for each example alone, [n v] or [k]."""
        with torch.no_grad():
            return [self._right(self.theirs(**given)) for given in self.inputs]

    def _right(self, out):
        if self.run.summary["objective"] == "Contrastive":
            return torch.stack([out.text_embeds[0], out.image_embeds[0]])
        if self.is_of_pairs:
            names = ("text_embeds", "image_embeds", "pooler_output")
            return next(out[name][0] for name in names if name in out)
        if self.run.summary["objective"] == "Features":
            return out.last_hidden_state[0]
        return out.logits[0]

    @property
    def is_of_pairs(self):
        """Whether the model makes vectors of whole texts or images."""
        return self.theirs.config.model_type.startswith(PAIRED)


PAIRED = ("clip", "metaclip", "siglip")


def asked(place, model):
    """Both models and examples for each, from `theirs` in that place. Raises DataError if ours refuses theirs."""
    import_model(place / "theirs", place / "run", "theirs")
    run = load_one(place / "run")
    raws = _raws(model.config)
    batch = TokenBatch.collate([run.tokenizer.encode(raw) for raw in raws])
    inputs = [_inputs(model.config, raw, run.tokenizer) for raw in raws]
    if run.summary["objective"] == "Seq2Seq":
        texts = [_ids(model.config, n) for n in LENGTHS]
        targets = [Tokens(x, torch.arange(float(len(x)))[:, None]) for x in texts]
        batch = TokenBatch.collate(targets).replace(source=batch)
        inputs = [{**own, "decoder_input_ids": x[None]} for own, x in zip(inputs, texts)]
    run.model.double()
    is_of_pairs = model.config.model_type.startswith(PAIRED)
    if run.summary["objective"] == "Features" and not is_of_pairs:  # its head is not read
        model = getattr(model, model.base_model_prefix, model)
    return Asked(doubled(model), run, batch, inputs)


def _ids(config, n):
    """So many random ids, none of which means anything to their model."""
    given = [getattr(config, f"{name}_token_id", None) for name in SPECIAL]
    special = {i for one in given for i in (one if isinstance(one, list) else [one])}
    known = [i for i in range(3, config.vocab_size - 1) if i not in special]
    return torch.from_numpy(np.random.default_rng(n).choice(known, n))


SPECIAL = ("pad", "eos", "bos", "cls", "sep", "decoder_start")


def waves():
    """Noises of several lengths."""
    rng = np.random.default_rng(5)
    return [rng.standard_normal(299 * n).astype(np.float32) / 3 for n in LENGTHS]


def _raws(config):
    """Raw examples of several lengths, of what the model reads."""
    rng = np.random.default_rng(5)
    images = getattr(config, "vision_config", config)
    if processor_of(config) is None or images is not config:
        own = config.get_text_config()
        texts = [" ".join(f"w{i}" for i in _ids(own, n).tolist()) for n in LENGTHS]
    if hasattr(images, "patch_size"):
        shape = (3, images.image_size, images.image_size)
        pictures = [torch.from_numpy(rng.integers(0, 256, shape, np.uint8)) for _ in LENGTHS]
        if images is config:
            return pictures
        return [{"text": text, "image": one} for text, one in zip(texts, pictures)]
    if processor_of(config) is None:
        return texts
    return [Waveform(noise, RATE) for noise in waves()]


def _inputs(config, raw, tokenizer):
    """What their model gets of a raw example: our ids, or what their own processor makes of it."""
    if isinstance(raw, dict):
        text = _inputs(config, raw["text"], tokenizer.parts["text"])
        return {**text, **_inputs(config, raw["image"], tokenizer)}
    if isinstance(raw, str):
        return {"input_ids": tokenizer.encode(raw).content[None]}
    processor = processor_of(config)
    if isinstance(raw, Waveform):
        given = processor(np.asarray(raw.samples), sampling_rate=RATE, return_tensors="pt")
    else:
        given = processor(raw, return_tensors="pt")
    name = processor.model_input_names[0]
    found = {name: given[name].double()}
    if config.model_type == "vit_mae":  # its patches are in the order of noise
        num_patches = (config.image_size // config.patch_size) ** 2
        found["noise"] = torch.arange(float(num_patches))[None]
    return found
