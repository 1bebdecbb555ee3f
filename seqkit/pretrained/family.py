"""Families of models of other libraries: settings as a recipe writes them, and the names of their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.rows import Rows

Settings = dict[str, Any]
MAX_LAYERS = 1000
"""Layers of a model at most: a damaged file should not fill the memory."""

TANH = {"type": "GELU", "approximate": "tanh"}
ACTIVATIONS: dict[Any, Any] = {
    "gelu": "GELU",
    "gelu_python": "GELU",
    "gelu_new": TANH,
    "gelu_fast": TANH,
    "gelu_pytorch_tanh": TANH,
    "gelu_python_tanh": TANH,
    "gelu_accurate": TANH,
    "quick_gelu": "QuickGELU",
    "relu": "ReLU",
    "relu2": "ReLUSquared",
    "relu6": "ReLU6",
    "leaky_relu": "LeakyReLU",
    "silu": "SiLU",
    "swish": "SiLU",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "mish": "Mish",
    "hardswish": "Hardswish",
}
"""Activations of a recipe by their names in `config.json`."""


@dataclass(frozen=True)
class Head:
    """A head that published models have.

    classes: ends of the names of the classes that have it (`architectures` of `config.json`). objective: the section
    `objective` of a recipe. table: whole names of the weights. state: state of the objective, such as names of classes.
    fits: whether a model of these settings has it, so that a recipe with the objective gets it. has_prefix: whether
    names of the other weights then begin with the family's prefix.
    """

    classes: tuple[str, ...]
    objective: Callable[[ConfigFile], Settings]
    table: Callable[[ConfigFile], Rows]
    state: Callable[[ConfigFile], Settings] = lambda _: {}
    fits: Callable[[ConfigFile], bool] = lambda _: True
    has_prefix: Callable[[ConfigFile], bool] = lambda _: True


@dataclass(frozen=True)
class Family:
    """How models of one kind are read and written.

    model: the section `model` of a recipe, without its objective. table: names of the weights of embedder and backbone.
    prefix: what these names begin with in a model that has a head. heads: by `task_of` their objectives. left_out:
    beginnings of the names of weights that may be in a file and are of no use here. inputs: the section `tokenizer` of
    a recipe, from the folder; None: texts, by its `tokenizer.json`. lacks: what a run of the model does not hold, such
    as a decoder, so that it is not written back; empty: nothing but heads. old_names: ends of names in other files, and
    those that are read in their place. stand_ins: names that a file may lack, and those that are read for them.
    """

    model: Callable[[ConfigFile], Settings]
    table: Callable[[ConfigFile], Rows]
    prefix: str
    heads: Mapping[str, Head] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    inputs: Callable[[Path, ConfigFile], Settings] | None = None
    lacks: Callable[[ConfigFile], str] = lambda _: ""
    old_names: Mapping[str, str] = field(default_factory=dict)
    stand_ins: Mapping[str, str] = field(default_factory=dict)

    def head(self, config: ConfigFile, task: str | None) -> Head | None:
        """The head for a task; None: the model has none."""
        found = self.heads.get(task or "")
        if found is not None and found.fits(config):
            return found
        return None


# ── settings that several families have alike ────────────────────────────────────────────────────────────────────────


def layer_norm(config: ConfigFile, eps: float, key: str = "layer_norm_eps") -> Settings:
    """LayerNorm. eps: by default. key: of the epsilon."""
    return {"type": "LayerNorm", "eps": config.positive(key, eps)}


def learned(num_tokens: int) -> Settings:
    """One table of positions."""
    return {"type": "Learned", "sizes": [num_tokens]}


def block(kind: str, norm: Settings, mlp: Settings, dropout: float) -> Settings:
    """A block with scaled dot-product attention. dropout: of its weights."""
    mechanism = {"type": "ScaledDotProductAttention", "dropout": dropout}
    return {"type": kind, "norm": norm, "mlp": mlp, "attention": {"mechanism": mechanism}}


def distances(
    config: ConfigFile, num_heads: int, buckets: tuple[str, int], longest: tuple[str, int]
) -> Settings:
    """Biases by distance. buckets, longest: keys of their number and of the last distance, and defaults."""
    num = config.size(*buckets, least=4)
    if num % 2:
        raise config.refused(buckets[0], "an even number")
    return {
        "type": "T5Bias",
        "num_heads": num_heads,
        "num_buckets": num,
        "max_distance": config.size(*longest, least=num // 2 + 1),
    }


# ── heads ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def class_names(config: ConfigFile) -> Settings:
    """State of `Classify` from `id2label`. Raises DataError for a head that is no classification."""
    if config.get("problem_type"):
        config.must_be("single_label_classification", "problem_type")
    labels = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    if (
        not isinstance(labels, Mapping)
        or {*map(str, labels)} != {*map(str, range(len(labels)))}
        or len(labels) < 2
    ):
        raise config.refused("id2label", "a name for each of two classes or more")
    return {"names": [str(labels[key]) for key in sorted(labels, key=int)]}


def task_of(objective: Any) -> str | None:
    """Name of what an objective predicts, from that section of a recipe: its type, and a level below whole examples."""
    if not isinstance(objective, Mapping):
        return None if objective is None else str(objective)
    level = objective.get("level", "sequence")
    if level == "sequence":
        return objective.get("type")
    return f"{objective.get('type')} {level}"


def has_classes(kind: str) -> Callable[[ConfigFile], bool]:
    """Whether a model was saved with a head for one of several classes. kind: end of the name of its own class."""

    def fits(config: ConfigFile) -> bool:
        problem = config.get("problem_type")
        labels = config.get("id2label")
        is_single = problem in (None, "single_label_classification") and (
            labels is None or len(labels) > 1
        )
        return is_single and class_of(config).endswith(kind)

    return fits


def classifier(kind: str, objective: Callable[[ConfigFile], Settings], rows: Rows) -> Head:
    """A head for one of several classes. kind: as in `has_classes`. rows: names of its weights."""
    return Head((kind,), objective, lambda _: rows, class_names, has_classes(kind))


def class_of(config: ConfigFile) -> str:
    """Name of the class that a model was saved by; empty where it is not said. Raises DataError for no names."""
    names = config.get("architectures") or [""]
    if not isinstance(names, list) or not isinstance(names[0], str):
        raise config.refused("architectures", "a list with the name of a class")
    return names[0]


def depth_of(
    config: ConfigFile, name: str = "num_hidden_layers", default: int | None = None
) -> int:
    """Number of layers."""
    return config.size(name, default, most=MAX_LAYERS)


def rotary_settings(
    config: ConfigFile,
    given: Mapping[str, Any] | None = None,
    *,
    base: float = 10_000.0,
    share: float | None = None,
) -> Settings:
    """Rotary positions: `rope_parameters` as of transformers 5, or `rope_theta` and `rope_scaling`, as before.

    given: in place of those of the file. base, share: where they are not written; share None: heads are turned whole.
    Raises DataError for a scaling of the frequencies that is not read.
    """
    is_partial = share is not None
    is_one = given is None
    if given is None:
        base = config.get("rope_theta", base)
        share = config.get("partial_rotary_factor", share)
        new = config.get("rope_parameters")
        old = config.get("rope_scaling")
        if new and old and new != old:
            raise config.refused(
                "rope_scaling", "what rope_parameters says, or one of the two alone"
            )
        given = new or old or {}
    key = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    left = dict(given)
    kind = left.pop("rope_type", left.pop("type", "default"))
    left.pop("type", None)
    rotary: Settings = {"type": "Rotary", "base": left.pop("rope_theta", base)}
    if (given_share := left.pop("partial_rotary_factor", share or 1.0)) != 1:
        if not is_partial:
            raise config.refused(key, "of all channels of a head")
        rotary["share"] = given_share
    if kind not in SCALINGS:
        raise config.refused(key, " or ".join(SCALINGS))
    name, needed, options = SCALINGS[kind]
    in_training = "original_max_position_embeddings"
    if is_one and in_training in needed and config.get(in_training) is not None:
        left[in_training] = config.size(in_training)  # transformers prefers it
    if name == "LongRoPEScaling" and in_training in left:
        left.pop("long_factor", None)
        left["max_tokens"] = left[in_training]
        if left.get("factor") is None:
            left["factor"] = config.size("max_position_embeddings") / left[in_training]
    if missing := [theirs for theirs in needed if theirs not in left]:
        raise config.refused(key, f"with {', '.join(missing)}")
    scaling = {RENAMED.get(theirs, theirs): left.pop(theirs) for theirs in needed}
    for of_axes in ("mrope_section", "mrope_interleaved"):  # a text has one axis
        left.pop(of_axes, None)
    scaling |= {theirs: x for theirs in options if (x := left.pop(theirs, None)) is not None}
    if scaling:
        rotary["scaling"] = {"type": name, **scaling}
    if left:
        raise config.refused(key, f"without {', '.join(sorted(left))}")
    return rotary


RENAMED = {
    "original_max_position_embeddings": "original_max_tokens",
    "short_factor": "factors",
}
SCALINGS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "default": ("", (), ()),
    "linear": ("LinearScaling", ("factor",), ()),
    "llama3": (
        "LLaMA3Scaling",
        ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
        (),
    ),
    "yarn": (
        "YaRNScaling",
        ("factor", "original_max_position_embeddings"),
        ("beta_fast", "beta_slow", "attention_factor", "truncate"),
    ),
    "longrope": (
        "LongRoPEScaling",
        ("short_factor", "factor", "original_max_position_embeddings", "max_tokens"),
        ("attention_factor",),
    ),
}
"""Scalings of rotary frequencies by the names of transformers: ours, the settings that they need, and those they may
have."""
