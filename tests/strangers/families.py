"""Families of transformers on the page, at two sizes; each is built by lines that its maintainers could run."""

import importlib.util
import inspect
import logging
import sys
from dataclasses import dataclass, field
from typing import Any

import torch
from strangers.laws import Subject
from torch import Tensor

from seqkit.testing.adapters import call, is_causal, reorder, small_config, step

VOCABULARY = 37
ATTENTION = {"num_attention_heads": 16, "num_key_value_heads": 8}
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}


@dataclass(frozen=True)
class Family:
    """A model type of transformers. published: settings at the width of a published checkpoint; empty: too large for
    the page. checkpoint: which one. group: its place on the page."""

    kind: str
    group: str
    published: dict[str, Any] = field(default_factory=dict)
    checkpoint: str = ""


RECURRENT = "Recurrent and hybrid, transformers"
PLAIN = "Attention alone, transformers"

FAMILIES = {
    family.kind: family
    for family in (
        Family("mamba", RECURRENT, {"hidden_size": 768, "state_size": 16}, "mamba-130m"),
        Family("falcon_mamba", RECURRENT),
        Family(
            "mamba2",
            RECURRENT,
            {"hidden_size": 768, "num_heads": 24, "head_dim": 64, "state_size": 128, "n_groups": 1},
            "mamba2-130m",
        ),
        Family(
            "rwkv", RECURRENT, {"hidden_size": 768, "attention_hidden_size": 768}, "rwkv-4-169m"
        ),
        Family("xlstm", RECURRENT),
        Family("recurrent_gemma", RECURRENT),
        Family("jamba", RECURRENT),
        Family("bamba", RECURRENT),
        Family("zamba", RECURRENT),
        Family("zamba2", RECURRENT),
        Family(
            "falcon_h1",
            RECURRENT,
            {
                "hidden_size": 1024,
                "intermediate_size": 2048,
                "num_attention_heads": 8,
                "num_key_value_heads": 2,
                "head_dim": 64,
                "mamba_d_ssm": 1536,
                "mamba_n_heads": 24,
                "mamba_d_head": 64,
                "mamba_d_state": 128,
                "mamba_n_groups": 1,
                "mamba_chunk_size": 128,
            },
            "Falcon-H1-0.5B",
        ),
        Family("granitemoehybrid", RECURRENT),
        Family("nemotron_h", RECURRENT),
        Family(
            "lfm2",
            RECURRENT,
            {
                "hidden_size": 1024,
                "intermediate_size": 6656,
                "layer_types": ["conv", "full_attention"],
                "full_attn_idxs": [1],
                **ATTENTION,
            },
            "LFM2-350M",
        ),
        Family("lfm2_moe", RECURRENT),
        Family("qwen3_next", RECURRENT),
        Family(
            "qwen3_5_text",
            RECURRENT,
            {
                "hidden_size": 1024,
                "intermediate_size": 3584,
                "num_attention_heads": 8,
                "num_key_value_heads": 2,
                "head_dim": 256,
                "linear_num_key_heads": 16,
                "linear_num_value_heads": 16,
                "linear_key_head_dim": 128,
                "linear_value_head_dim": 128,
                **HYBRID,
            },
            "Qwen3.5-0.8B",
        ),
        Family("olmo_hybrid", RECURRENT),
        Family("minimax", RECURRENT),
        Family("kimi_linear", RECURRENT),
        Family("zaya", RECURRENT),
        Family(
            "llama",
            PLAIN,
            {
                "hidden_size": 2048,
                "intermediate_size": 8192,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "head_dim": 64,
            },
            "Llama-3.2-1B",
        ),
        Family("gpt2", PLAIN, {"hidden_size": 768, "num_attention_heads": 12}, "gpt2"),
        Family("mistral", PLAIN),
        Family("gemma3_text", PLAIN),
        Family(
            "gpt_neox",
            PLAIN,
            {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
            "pythia-160m",
        ),
        Family("bloom", PLAIN, {"hidden_size": 1024, "num_attention_heads": 16}, "bloom-560m"),
        Family("qwen2_moe", PLAIN),
        Family(
            "bert",
            PLAIN,
            {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
            "bert-base",
        ),
        Family("modernbert", PLAIN),
    )
}


def without_kernels() -> None:
    """Let transformers take its plain torch code, whatever kernels are installed; and say nothing.

    Kernels of Triton need a GPU, and this page is made without one.
    """
    for package in ("fla", "xlstm", "mamba_ssm", "causal_conv1d", "mlstm_kernels"):
        sys.modules.setdefault(package, None)  # type: ignore[arg-type]
    logging.getLogger("transformers").setLevel(logging.CRITICAL)


def settings_of(family: Family, size: str) -> dict[str, Any]:
    """Settings of a configuration, as far as they are not the defaults of its type. size: "tiny" or "published"."""
    from transformers import AutoConfig

    if size == "published":
        common = {"num_hidden_layers": 2, "vocab_size": VOCABULARY, "max_position_embeddings": 256}
        tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        return {**tokens, **common, **family.published}
    known = AutoConfig.for_model(family.kind).to_dict()
    small = small_config(family.kind).to_dict()
    return {name: value for name, value in small.items() if _is_setting(name, value, known)}


def _is_setting(name: str, value: Any, known: dict[str, Any]) -> bool:
    hidden = name.startswith("_") or name in {"transformers_version", "architectures", "dtype"}
    return not hidden and known.get(name) != value and value is not None


def build_lines(family: Family, size: str, dtype: str, head: bool = False) -> list[str]:
    """Lines that make `model`, at weights times 3, so that states matter."""
    settings = ", ".join(f"{name}={value!r}" for name, value in settings_of(family, size).items())
    auto = "AutoModelForCausalLM" if head else "AutoModel"
    experts = ', experts_implementation="eager"' if dtype == "float64" else ""
    return [
        "import torch; torch.manual_seed(0); torch.set_grad_enabled(False)",
        f"from transformers import AutoConfig, {auto}, DynamicCache",
        f'config = AutoConfig.for_model("{family.kind}", {settings})',
        f"model = {auto}.from_config(config{experts}).to(torch.{dtype}).eval()",
        "for p in model.parameters(): p.mul_(3 if p.dim() > 1 else 1)  # so that states matter",
    ]


def built(family: Family, size: str, dtype: str) -> Subject:
    """A family with random weights. Raises ImportError without transformers, whatever it raises if it is not built."""
    without_kernels()
    made: dict[str, Any] = {}
    with torch.enable_grad():  # which the lines turn off, and the context on again
        exec("\n".join(build_lines(family, size, dtype)), made)
    module = made["model"]
    causal = is_causal(module.config)
    model = None
    if causal:
        with torch.enable_grad():
            exec("\n".join(build_lines(family, size, dtype, head=True)), made)
        model = made["model"]
    named = inspect.signature(module.forward).parameters
    has_cache = {"past_key_values", "cache_params", "state"} & set(named)

    def draw(rows: int, length: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, VOCABULARY, (rows, length), generator=generator)
        return module.get_input_embeddings()(ids).detach()

    return Subject(
        module=module,
        draw=draw,
        call=call,
        causal=causal,
        takes_mask="attention_mask" in named and family.kind != "rwkv",
        warns_of_masks=family.kind == "rwkv",
        step=step if causal and has_cache else None,
        reorder=reorder,
        model=model,
    )


def is_installed(package: str) -> bool:
    """Whether a package is here."""
    return importlib.util.find_spec(package) is not None
