"""Small models that transformers saves, with random weights and a tokenizer of words, for the tests of `pretrained`."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import seqkit

VOCAB, CONTEXT = 29, 41
BERT = {
    "vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40,
    "max_position_embeddings": CONTEXT,
}  # fmt: skip
LLAMA = {
    "vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 3, "num_key_value_heads": 1,
    "intermediate_size": 43, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
DELTA = {
    "head_dim": 16, "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
    "linear_key_head_dim": 4, "linear_value_head_dim": 6, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_conv_kernel_dim": 3,
}  # fmt: skip
SSM = {
    "mamba_n_heads": 6, "mamba_d_state": 5, "mamba_n_groups": 2, "mamba_d_conv": 3, "mamba_expand": 2,
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 100.0, "short_factor": [1.0, 1.1, 1.3, 1.6],
    "long_factor": [1.0, 1.9, 4.3, 9.0],
}  # fmt: skip
ENCODERS = {
    "Bert": BERT,
    "Roberta": {**BERT, "pad_token_id": 1, "type_vocab_size": 1},
    "XLMRoberta": {**BERT, "pad_token_id": 1, "type_vocab_size": 1},
    "Camembert": {**BERT, "pad_token_id": 1},
    "Data2VecText": {**BERT, "pad_token_id": 1},
    "RobertaPreLayerNorm": {**BERT, "pad_token_id": 1},
    "XLMRobertaXL": {**BERT, "pad_token_id": 1, "type_vocab_size": 1},
    "Ernie": BERT,
    "DistilBert": {
        "vocab_size": VOCAB, "dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 40,
        "max_position_embeddings": CONTEXT,
    },
    "Electra": {**BERT, "embedding_size": 14},
    "MPNet": BERT,
    "DebertaV2": {
        **BERT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "share_att_key": True,
        "position_buckets": 8, "max_relative_positions": 23, "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
    },
    "DebertaV2 with positions": {
        **BERT, "relative_attention": True, "pos_att_type": "c2p|p2c", "share_att_key": True, "position_buckets": 6,
        "max_relative_positions": 9, "norm_rel_ebd": "none",
    },
    "Albert": {**BERT, "embedding_size": 14},
    "Albert in groups": {**BERT, "embedding_size": 14, "num_hidden_layers": 4, "num_hidden_groups": 2},
    "ModernBert": {
        **{key: BERT[key] for key in BERT if key != "max_position_embeddings"}, "num_hidden_layers": 5,
        "local_attention": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1,
        "sep_token_id": 2,
    },
}  # fmt: skip
SIMILAR = {
    "XLMRoberta", "Camembert", "Data2VecText", "RobertaPreLayerNorm", "XLMRobertaXL", "Ernie", "Albert in groups",
    "DebertaV2 with positions",
}  # fmt: skip
"""Encoders that differ from others by names or one setting: the dearer tests of them are slow."""
HEADS = {
    "ForMaskedLM": "Masked", "ForSequenceClassification": "Classify", "ForTokenClassification": "Classify token"
}  # fmt: skip
"""Ends of names of classes, and the tasks of their heads."""
NAMES = {0: "cat", 1: "dog", 2: "owl"}
DECODERS = {
    "GPT2": {"vocab_size": VOCAB, "n_embd": 24, "n_layer": 3, "n_head": 3, "n_positions": CONTEXT},
    "Llama": {**LLAMA, "rope_parameters": LLAMA3, "tie_word_embeddings": False},
    "Mistral": {**LLAMA, "sliding_window": 5, "head_dim": 10},
    "Qwen2": {**LLAMA, "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2},
    "Qwen3": {**LLAMA, "head_dim": 14, "tie_word_embeddings": True},
    "SmolLM3": {**LLAMA, "tie_word_embeddings": True},
    "Olmo2": {**LLAMA, "num_key_value_heads": 3},
    "Olmo": {**LLAMA, "tie_word_embeddings": True},
    "Granite": {
        **LLAMA, "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 1 / 6,
        "logits_scaling": 0.7,
    },
    "StableLm": {**LLAMA, "use_qkv_bias": True, "rope_parameters": {"rope_type": "default", "rope_theta": 100.0,
                                                                   "partial_rotary_factor": 0.5}},
    "Gemma": {**LLAMA, "head_dim": 10},
    "Gemma2": {**LLAMA, "head_dim": 10, "sliding_window": 5, "query_pre_attn_scalar": 25, "attn_logit_softcapping": 0.7,
               "final_logit_softcapping": 3.0},
    "Gemma3": {**LLAMA, "num_hidden_layers": 6, "head_dim": 10, "sliding_window": 5, "query_pre_attn_scalar": 23,
               "rope_parameters": {
                   "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                   "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0}}},
    "Qwen2 with YaRN": {**LLAMA, "rope_parameters": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e6}},
    "Phi3": {**LLAMA, "sliding_window": 11},
    "Phi3 with LongRoPE": {**LLAMA, "rope_parameters": LONGROPE, "original_max_position_embeddings": 24,
                           "max_position_embeddings": 96},
    "Mamba": {"vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 3, "state_size": 5, "conv_kernel": 3},
    "FalconMamba": {"vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 3, "state_size": 5, "conv_kernel": 3,
                    "time_step_rank": 3, "mixer_rms_eps": 0.01},
    "Mamba2": {"vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 3, "state_size": 5, "conv_kernel": 3,
               "num_heads": 6, "head_dim": 8, "n_groups": 2},
    "xLSTM": {"vocab_size": VOCAB, "hidden_size": 128, "num_hidden_layers": 2, "num_heads": 4, "ffn_proj_factor": 0.31,
              "ffn_round_up_to_multiple_of": 1, "chunk_size": 8},
    "Mixtral": {**LLAMA, "num_local_experts": 5, "num_experts_per_tok": 2},
    "Qwen3Moe": {**LLAMA, "head_dim": 14, "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 17,
                 "mlp_only_layers": [1]},
    "Qwen3Next": {**LLAMA, **DELTA, "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 17,
                  "shared_expert_intermediate_size": 13, "mlp_only_layers": [1]},
    "Qwen3_5": {**LLAMA, **DELTA, "tie_word_embeddings": True},
    "OlmoHybrid": {**LLAMA, **{key: DELTA[key] for key in DELTA if key != "head_dim"}},
    "Lfm2": {**LLAMA, "layer_types": ["conv", "conv", "full_attention", "conv"], "conv_bias": True,
             "intermediate_size": 44, "block_multiple_of": 1},
    "FalconH1": {**LLAMA, **SSM, "mamba_d_ssm": 36, "mamba_rms_norm": True, "embedding_multiplier": 5.0,
                 "lm_head_multiplier": 0.5, "mlp_multipliers": [0.8, 0.7], "key_multiplier": 0.9,
                 "attention_out_multiplier": 0.6, "attention_in_multiplier": 1.2, "ssm_in_multiplier": 1.1,
                 "ssm_multipliers": [0.9, 0.7, 1.3, 1.5, 0.8], "ssm_out_multiplier": 1.4},
    "RecurrentGemma": {**LLAMA, "lru_width": 30, "conv1d_width": 3, "logits_soft_cap": 3.0,
                       "attention_window_size": 5},
    "Bamba": {**LLAMA, **SSM, "attn_layer_indices": [2]},
    "GraniteMoeHybrid": {
        **LLAMA, **SSM, "layer_types": ["linear_attention", "full_attention"] * 2, "num_local_experts": 0,
        "shared_intermediate_size": 31, "position_embedding_type": "rope", "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22, "attention_multiplier": 1 / 6, "logits_scaling": 0.7,
    },
}  # fmt: skip
ALIKE = {
    "Olmo3": {**LLAMA, "num_key_value_heads": 3, "sliding_window": 5, "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0}}},
    "Phi": {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}},
    "Starcoder2": {**LLAMA, "sliding_window": 5},
    "Cohere": {**LLAMA, "logit_scale": 0.7},
    "Cohere2": {**LLAMA, "logit_scale": 0.7, "sliding_window": 5},
    "Olmoe": {**LLAMA, "num_experts": 5, "num_experts_per_tok": 2},
    "SeedOss": {**LLAMA, "head_dim": 10, "attention_out_bias": True},
    "Exaone4": {**LLAMA, "sliding_window": 5},
    "Glm": {**LLAMA, "head_dim": 12},
    "Glm4": {**LLAMA, "head_dim": 12},
    "Ernie4_5": {**LLAMA, "head_dim": 10, "use_bias": True},
    "Helium": {**LLAMA, "head_dim": 8},
    "Arcee": {**LLAMA, "mlp_bias": True},
    "Ministral": {**LLAMA, "sliding_window": 5, "head_dim": 10},
    "GPTNeoX": {**{key: LLAMA[key] for key in LLAMA if key != "num_key_value_heads"}, "rope_parameters": {
        "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}},
    "OPT": {"vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "ffn_dim": 43,
            "max_position_embeddings": CONTEXT, "word_embed_proj_dim": 24, "pad_token_id": None},
    "GptOss": {**LLAMA, "head_dim": 8, "sliding_window": 5, "num_local_experts": 5, "num_experts_per_tok": 2,
               "swiglu_limit": 0.5},
    "GraniteMoe": {**LLAMA, "num_local_experts": 5, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                   "attention_multiplier": 1 / 6, "logits_scaling": 0.7},
    "Bloom": {"vocab_size": VOCAB, "hidden_size": 24, "n_layer": 3, "n_head": 3},
}  # fmt: skip
"""Decoders that differ from those by names and flags; only the slow tests let them write."""
DECODERS |= ALIKE
OF_STATES = [
    "Mamba", "FalconMamba", "Mamba2", "Qwen3Next", "Qwen3_5", "OlmoHybrid", "FalconH1", "Bamba", "GraniteMoeHybrid",
    "Lfm2", "xLSTM", "RecurrentGemma",
]  # fmt: skip
"""Decoders that carry a state; `test_hybrids` tests their caches."""
TEXT_CONFIG = {"Gemma3", "Qwen3_5"}
"""Whose configuration is named after its texts."""


def short_run(recipe, overrides, out):
    """A run of the debug preset without what no test of this folder reads: a rival, and a report."""
    return seqkit.fit(recipe, overrides, preset="debug", out=out, classical="off", report=False)


def words_of(num):
    """A tokenizer of so many words."""
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(num)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return words


@cache
def _place():
    """A folder that stays until Python ends."""
    folder = tempfile.mkdtemp(prefix="seqkit-foreign-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


_KEPT = {}


def kept(folder, made, *given, **how):
    """What `made(place, …)` returns, and the files that it saves in `place`, copied to the folder.

    It is made once, so the tests leave what is returned as it is.
    """
    key = repr((made.__module__, made.__name__, given, how, torch.get_default_dtype()))
    if key not in _KEPT:
        place = _place() / str(len(_KEPT))
        place.mkdir()
        _KEPT[key] = made(place, *given, **how), place
    found, place = _KEPT[key]
    shutil.copytree(place, folder, dirs_exist_ok=True)
    torch.manual_seed(3)
    return found


def saved(folder, name, settings, kind="Model", **how):
    """Their model with random weights, none at 0 or 1, and the folder that they save."""
    return kept(folder, save, name, settings, kind, **how)


def save(folder, name, settings, kind, *, std=0.1, dtype="float32", max_shard_size="1GB", **how):
    name = name.split()[0]
    text = "Text" if name in TEXT_CONFIG else ""
    how_to = (
        {}
        if name in ("Mamba", "Mamba2", "FalconMamba", "xLSTM")
        else {"attn_implementation": "eager", "experts_implementation": "eager"}
    )
    config = getattr(transformers, f"{name}{text}Config")(**settings, **how_to)
    torch.manual_seed(3)
    model = getattr(transformers, f"{name}{kind}")(config, **how).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.add_(torch.randn_like(p) * std)
            # else the last norm makes a tied head say one id, or the last id, again
            if p.ndim == 1 and std > 0.1:
                p.mul_(0.1) if key.endswith("bias") else p.normal_()
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=max_shard_size)
    words = [f"w{i}" for i in range(settings["vocab_size"])]
    if kind == "ForMaskedLM":
        words[-1] = "[MASK]"
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="w0"))
    if kind == "ForMaskedLM":
        words.add_special_tokens(["[MASK]"])
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(folder / "tokenizer.json"))
    return model
