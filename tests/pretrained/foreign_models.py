"""Small models that transformers saves, with random weights and a tokenizer of words, for the tests of `pretrained`."""

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

VOCAB, CONTEXT = 29, 23
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
ENCODERS = {
    "Bert": BERT,
    "Roberta": {**BERT, "pad_token_id": 1, "type_vocab_size": 1},
    "XLMRoberta": {**BERT, "pad_token_id": 1, "type_vocab_size": 1},
    "DistilBert": {
        "vocab_size": VOCAB, "dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 40, "activation": "relu",
        "max_position_embeddings": CONTEXT,
    },
    "Electra": {**BERT, "embedding_size": 10},
    "ModernBert": {
        **{key: BERT[key] for key in BERT if key != "max_position_embeddings"}, "num_hidden_layers": 5,
        "local_attention": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1,
        "sep_token_id": 2,
    },
}  # fmt: skip
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
}


def saved(folder, name, settings, kind="Model", *, dtype="float32", max_shard_size="1GB", **how):
    """Their model with random weights, none at 0 or 1, and the folder that they save."""
    config = getattr(transformers, f"{name}Config")(**settings, attn_implementation="eager")
    torch.manual_seed(3)
    model = getattr(transformers, f"{name}{kind}")(config, **how).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
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
