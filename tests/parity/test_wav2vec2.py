"""Our Model equals Hugging Face's Wav2Vec2 and HuBERT from the waveform on, in padded batches too.

Theirs gets an attention mask where it has been trained with one (norms at each place). Where the first convolution is
normed over the whole clip, padding changes what theirs gives, so each clip goes through it alone.
"""

from functools import partial

import pytest
import torch
from families import family
from parity import SLACK, assert_equal, randomized
from transformers import (
    HubertConfig,
    HubertModel,
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2Model,
)
from weights import take
from whole import assert_every_value_is_mapped

from seqkit.interfaces import TokenBatch
from seqkit.model import Model
from seqkit.nn.position.convolutional import ConvolutionalPosition
from seqkit.objectives import Classify
from seqkit.pretrained.audio_stems import Convolutions
from seqkit.pretrained.audio_tokenizers import SampleWindows
from seqkit.raw import Waveform

DIM, WIDTHS, KERNELS, STRIDES = 24, (5, 7, 11), (10, 3, 2), (5, 2, 2)
WINDOW, HOP = 30, 20
LENGTHS = (1013, 419, WINDOW + HOP - 1, 9)
"""Samples of the clips: the last is shorter than a window, the one before gives one token."""
PRE_NORM = {"block.type": "PreNormBlock", "input_norm": None, "norm": {"type": "LayerNorm"}}

VARIANTS = {
    "base": (Wav2Vec2Config, Wav2Vec2Model, {"feat_extract_norm": "group", "conv_bias": False}),
    "large": (
        Wav2Vec2Config, Wav2Vec2Model,
        {"feat_extract_norm": "layer", "conv_bias": True, "do_stable_layer_norm": True, "num_conv_pos_embeddings": 7},
    ),
    "hubert": (HubertConfig, HubertModel, {"feat_extract_norm": "group", "conv_bias": True}),
    "hubert without a norm before the projection": (
        HubertConfig, HubertModel, {"feat_extract_norm": "layer", "feat_proj_layer_norm": False}
    ),
}  # fmt: skip


@pytest.fixture(params=VARIANTS)
def pair(request):
    """Their model, our tokenizer and model with its weights, and whether theirs knows padding."""
    kind, build, more = VARIANTS[request.param]
    given = {"num_conv_pos_embeddings": 8, **more}
    config = kind(
        hidden_size=DIM, num_hidden_layers=2, num_attention_heads=3, intermediate_size=36, conv_dim=WIDTHS,
        conv_kernel=KERNELS, conv_stride=STRIDES, num_conv_pos_embedding_groups=4, attn_implementation="eager", **given,
    )  # fmt: skip
    theirs = randomized(build(config))
    has_norm = getattr(config, "feat_proj_layer_norm", True)
    norm, bias = config.feat_extract_norm, config.conv_bias
    convolutions = Convolutions(
        WIDTHS, KERNELS, STRIDES, norm, bias, config.layer_norm_eps if has_norm else None
    )
    tokenizer = SampleWindows(convolutions=convolutions)
    objective = Classify()
    objective.fit([0, 1], ["a", "b"])
    position = partial(
        ConvolutionalPosition, kernel_size=config.num_conv_pos_embeddings, num_groups=4
    )
    backbone = family("wav2vec 2.0", PRE_NORM if config.do_stable_layer_norm else None)
    ours = Model(tokenizer.spec, backbone, objective, position=position).eval()
    missing, unexpected = ours.load_state_dict(weights(theirs), strict=False)
    assert [*missing, *unexpected] == ["head.linear.weight", "head.linear.bias"]
    return theirs, tokenizer, ours, norm == "layer"


def weights(theirs):
    """Their weights under our names."""
    left = dict(theirs.state_dict())
    del left["masked_spec_embed"]  # of training alone
    mapped = {}
    for i in range(len(WIDTHS)):
        mapped |= take(
            left, [f"feature_extractor.conv_layers.{i}.conv"], f"embedder.content.layers.{i}.conv"
        )
        mapped |= take(
            left,
            [f"feature_extractor.conv_layers.{i}.layer_norm"],
            f"embedder.content.layers.{i}.norm",
        )
    mapped |= take(left, ["feature_projection.layer_norm"], "embedder.content.norm")
    mapped |= take(left, ["feature_projection.projection"], "embedder.content.projection")
    for name in ("bias", "parametrizations.weight.original0", "parametrizations.weight.original1"):
        mapped[f"embedder.position.conv.{name}"] = left.pop(f"encoder.pos_conv_embed.conv.{name}")
    is_pre_norm = theirs.config.do_stable_layer_norm
    mapped |= take(
        left, ["encoder.layer_norm"], "backbone.norm" if is_pre_norm else "backbone.input_norm"
    )
    for i in range(theirs.config.num_hidden_layers):
        layer, name = f"encoder.layers.{i}", f"backbone.blocks.{i}"
        mapped |= take(
            left, [f"{layer}.attention.{kind}_proj" for kind in "qkv"], f"{name}.attention.qkv_proj"
        )
        for ours, other in {
            "attention.out_proj": "attention.out_proj", "attention_norm": "layer_norm",
            "mlp.up_proj": "feed_forward.intermediate_dense", "mlp.down_proj": "feed_forward.output_dense",
            "mlp_norm": "final_layer_norm",
        }.items():  # fmt: skip
            mapped |= take(left, [f"{layer}.{other}"], f"{name}.{ours}")
    assert not left, f"not mapped: {sorted(left)}"
    return mapped


def clips():
    """Sounds whose neighbouring samples are alike, as those of speech are, with an offset."""
    return [0.1 + 0.02 * torch.randn(n).cumsum(0) / n**0.5 + 0.01 * torch.randn(n) for n in LENGTHS]


def alone(theirs, wave):
    """Hidden states of one clip, [n d]. Their convolutions need a window of samples."""
    extractor = Wav2Vec2FeatureExtractor()
    values = extractor(wave.numpy(), sampling_rate=16_000, return_tensors="pt").input_values
    values = torch.nn.functional.pad(values, [0, max(0, WINDOW - len(wave))])
    return theirs(values.double()).last_hidden_state[0]


def test_hidden_states_from_waveforms_in_a_padded_batch(pair):
    theirs, tokenizer, ours, _ = pair
    ours.head = torch.nn.Identity()
    assert_every_value_is_mapped(ours, theirs, unused=[theirs.masked_spec_embed])
    batch = TokenBatch.collate([tokenizer.encode(Waveform(wave, 16_000)) for wave in clips_once()])
    assert batch.valid.sum(dim=1).tolist() == [50, 20, 1, 1]
    with torch.no_grad():
        hidden = ours.backbone(ours.embed(batch))
        right = torch.cat([alone(theirs, wave) for wave in clips_once()])
        assert_equal(hidden[batch.valid], right)


def clips_once():
    torch.manual_seed(1)
    return clips()


def test_theirs_gives_the_same_in_a_batch_only_where_it_is_normed_at_each_place(pair):
    """Why ours does not copy what theirs makes of a padded batch that is normed over the whole clip."""
    theirs, _, _, knows_padding = pair
    waves = clips_once()[:2]
    extractor = Wav2Vec2FeatureExtractor(return_attention_mask=knows_padding)
    given = extractor(
        [x.numpy() for x in waves], sampling_rate=16_000, padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        together = theirs(
            given.input_values.double(), given.get("attention_mask")
        ).last_hidden_state
        together = together[1, : (LENGTHS[1] - WINDOW) // HOP + 1]
        difference = float((together - alone(theirs, waves[1])).abs().max())
    assert difference < 10 * SLACK if knows_padding else difference > 0.01
