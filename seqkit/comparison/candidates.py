"""Candidates of a comparison: one complete configuration each, with budgets made equal to the reference's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from seqkit.analysis.cost import training_flops
from seqkit.analysis.receptive_field import farthest_input, state_size
from seqkit.comparison.budget import nearest
from seqkit.comparison.settings import Settings, Variant
from seqkit.config import build, complete
from seqkit.config.schema import Field, fits
from seqkit.data.batching import Batch
from seqkit.data.module import DataModule
from seqkit.errors import DataError, UsageError
from seqkit.interfaces import Objective, Tokenizer
from seqkit.model import Model
from seqkit.runs.prepare import data_module

NEARLY = 0.05
"""Another depth is tried if its budget is equal up to this share; the answer says by how much it is off."""

VALID_FRACTION = 0.1
"""Share of the training split to tune on, where neither source nor recipe has a validation split."""

ADAMW_RATE = 0.001
"""Middle of the grid of AdamW's learning rates, where the recipe has none."""

OBJECTIVES = {"masked": "Masked", "next": "NextToken"}


class Depth(NamedTuple):
    """Another depth of a candidate, with the width at which its budget is the same. values: by dotted key."""

    values: dict[str, Any]
    width: int
    depth: int
    parameters: int
    flops: int
    budget_gap: float
    farthest: int | None
    state: int | None


@dataclass(frozen=True)
class Candidate:
    """One row of the comparison.

    config: complete, learning rate untuned. group: how it was pretrained; None: not at all. of: the candidate whose
    tuned configuration is pretrained; None: it is not pretrained. budget_gap: relative to the reference. optimizers:
    complete configurations of the optimizers that are tried, the recipe's first. depths: others that are tried.
    farthest: tokens between an input and an output that depends on it, at most; None: all, or it is not known. state:
    numbers that it keeps of an example, however long; None: they grow with it, or it is not known. causal: tokens learn
    of earlier ones alone. notes: what had to be changed beside what differs on purpose.
    """

    name: str
    config: dict[str, Any]
    group: str | None = None
    of: str | None = None
    parameters: int = 0
    flops: int = 0
    width: int | None = None
    depth: int | None = None
    budget_gap: float | None = None
    optimizers: list[dict[str, Any]] = field(default_factory=list)
    depths: list[Depth] = field(default_factory=list)
    farthest: int | None = None
    state: int | None = None
    causal: bool = False
    notes: list[str] = field(default_factory=list)


def candidates(settings: Settings) -> list[Candidate]:
    """Every candidate, the reference first. Raises UsageError or DataError where one cannot be built."""
    fitted = _Fitted(tunes=bool(settings.lr_trials or settings.dropout_trials))
    found: list[Candidate] = []
    complete(settings.recipe, settings.preset, settings.overrides)  # a fault of the recipe's is no candidate's
    for variant in settings.variants():
        with naming(variant.name):
            found.append(_candidate(settings, fitted, variant, found))
    configs = [{**candidate.config, "seed": None} for candidate in found]
    for i, candidate in enumerate(found):
        if configs[i] in configs[:i]:
            same = found[configs.index(configs[i])].name
            raise UsageError(f"{candidate.name} and {same} are the same configuration; leave one out")
    if len({c.name for c in found}) < len(found):
        raise UsageError("two candidates have the same name; give values that differ in their last key")
    if settings.pretrain is not None:
        group = f"{settings.pretrain} pretraining"
        found += [replace(c, name=f"{c.name} + {group}", group=group, of=c.name) for c in found]
        for candidate in found[: len(found) // 2]:
            with naming(f"--pretrain {settings.pretrain}: {candidate.name}"):
                fitted.flops(pretraining_config(candidate.config, settings.pretrain))
    return found


def _candidate(settings: Settings, fitted: _Fitted, variant: Variant, found: list[Candidate]) -> Candidate:
    """One candidate of a variant, at the budget of the first candidate that was found."""
    words = words_of(settings, variant)
    return _matched(settings, fitted, variant.name, variant.preset, words, found[0] if found else None)


def words_of(settings: Settings, variant: Variant) -> list[str]:
    """Override words of a candidate, before its budget is made equal to the reference's."""
    _, backbone, preset, width, words = variant
    base = complete(settings.recipe, preset, [*settings.overrides, *words])
    words = [*settings.overrides, *words, *backbone_words(base, backbone)]
    if width is not None:
        base = complete(settings.recipe, preset, words)
        words += [f"--{key}={width}" for key in widths_of(base)]
    if base["data"]["valid_fraction"] == 0:
        words.append(f"--data.valid_fraction={VALID_FRACTION}")
    if settings.pretrain == "next":
        words += [f"--{key}=true" for key in keys_of(base["model"]["backbone"], "causal")]
    return words


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Names the candidate in every error, in one line, whatever a user's own component raises."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        if "meta tensor" in text and not isinstance(error, ValueError):
            text += "; budgets are planned on tensors without values (device meta): guard it by `if not x.is_meta`"
        what = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise UsageError(f"{name}: {what}{text}") from error


def _matched(
    settings: Settings, fitted: _Fitted, name: str, preset: str | None, words: list[str], reference: Candidate | None
) -> Candidate:
    """The candidate of the override words, with the width at which its budget is the reference's."""
    notes: list[str] = []
    config = complete(settings.recipe, preset, words)
    try:
        fitted.parameters(config)
    except ValueError as error:
        if "does not support adjacency" not in str(error):
            raise
        words = [*words, "--model.adjacency=ignore"]
        config = complete(settings.recipe, preset, words)
        notes.append("It does not support adjacency, so it ignores the edges.")
    gap: float | None = None
    measure = fitted.flops if settings.match == "flops" else fitted.parameters
    target = measure(config)
    if reference is not None and settings.match != "none":
        target = reference.flops if settings.match == "flops" else reference.parameters
        if abs(measure(config) - target) > 0.001 * target and widths_of(config):
            init = config["model"].get("init")
            if init not in (None, reference.config["model"].get("init")):
                raise ValueError(
                    f"the weights of model.init have a width of their own, so {measure(config):,} {settings.match} "
                    f"cannot be made the {target:,} of {reference.name}; give --match none"
                )
            config = _resized(settings, preset, words, config, measure, target, None)
        gap = measure(config) / target - 1
    width, depth = size_of(config)
    farthest, state = fitted.memory(config)
    return Candidate(
        name,
        config,
        parameters=fitted.parameters(config),
        flops=fitted.flops(config),
        width=width,
        depth=depth,
        optimizers=_optimizers(settings, config),
        depths=list(_other_depths(settings, fitted, preset, words, config, target)),
        farthest=farthest,
        state=state,
        causal=fitted.is_causal(config),
        budget_gap=0.0 if reference is None and settings.match != "none" else gap,
        notes=notes,
    )


def _resized(
    settings: Settings,
    preset: str | None,
    words: list[str],
    config: Mapping[str, Any],
    measure: Callable[[Mapping[str, Any]], int],
    target: int,
    depth: int | None,
) -> dict[str, Any]:
    """The configuration at that depth (None: its own), with the width at which its budget is nearest to the target.

    Raises ValueError where no width can be built.
    """
    widths = widths_of(config)
    depths = keys_of(config["model"]["backbone"], "depth") if depth is not None else []

    def at(width: int) -> dict[str, Any]:
        sizes = [*(f"--{key}={width}" for key in widths), *(f"--{key}={depth}" for key in depths)]
        return complete(settings.recipe, preset, [*words, *sizes])

    def cost(width: int) -> int | None:
        try:
            return measure(at(width))
        except ValueError:  # refused: heads do not divide this width, or the like
            return None

    return at(nearest(cost, target, value_at(config, widths[0])))


def _other_depths(
    settings: Settings, fitted: _Fitted, preset: str | None, words: list[str], config: Mapping[str, Any], target: int
) -> Iterator[Depth]:
    """Half and double the depth at an equal budget, where backbones are compared: not every one wants the recipe's.

    A depth at which no width comes nearly there is left out.
    """
    widths, depths = widths_of(config), keys_of(config["model"]["backbone"], "depth")
    if not settings.tries_depths or not widths or not depths or config["model"].get("init") is not None:
        return
    own, measure = value_at(config, depths[0]), fitted.flops if settings.match == "flops" else fitted.parameters
    for depth in sorted({max(1, own // 2), 2 * own} - {own}):
        try:
            found = _resized(settings, preset, words, config, measure, target, depth)
        except ValueError:
            continue
        gap, (width, _) = measure(found) / target - 1, size_of(found)
        if abs(gap) <= NEARLY and width is not None:
            values = {**dict.fromkeys(widths, width), **dict.fromkeys(depths, depth)}
            sizes = fitted.parameters(found), fitted.flops(found)
            yield Depth(values, width, depth, *sizes, gap, *fitted.memory(found))


def pretraining_config(config: Mapping[str, Any], pretrain: str) -> dict[str, Any]:
    """The same recipe with an objective that needs no labels."""
    model = {**config["model"], "objective": {"type": OBJECTIVES[pretrain]}}
    return complete({**config, "model": model})


class _Fitted:
    """Cache of fitted tokenizer, objective and first batch, which candidates with the same data share, and of what
    models were measured."""

    def __init__(self, *, tunes: bool) -> None:
        self.tunes = tunes
        self._known: dict[str, tuple[Tokenizer, Objective, Batch]] = {}
        self._longest: dict[str, Batch] = {}
        self._measured: dict[tuple[str, str], int] = {}

    def parameters(self, config: Mapping[str, Any]) -> int:
        """Trainable parameters. Raises ValueError where the model is refused."""
        return self._once(self._count_parameters, config)

    def flops(self, config: Mapping[str, Any]) -> int:
        """FLOPs of training on one batch. Raises ValueError where the model is refused."""
        return self._once(self._count_flops, config)

    def _once(self, measure: Callable[[Mapping[str, Any]], int], config: Mapping[str, Any]) -> int:
        key = measure.__name__, json.dumps([config["data"], config["tokenizer"], config["model"]], sort_keys=True)
        if key not in self._measured:
            self._measured[key] = measure(config)
        return self._measured[key]

    def _count_parameters(self, config: Mapping[str, Any]) -> int:
        tokenizer, objective, _ = self._of(config)
        return meta_model(config, tokenizer, objective).num_parameters

    def _count_flops(self, config: Mapping[str, Any]) -> int:
        tokenizer, objective, batch = self._of(config)
        model = meta_model(config, tokenizer, objective)  # first: it refuses what the objective could not prepare
        try:
            return training_flops(model, objective, batch)
        except ValueError:
            raise
        except Exception:  # a component that looks at values: it is counted with weights
            with torch.random.fork_rng(devices=[]):
                return training_flops(meta_model(config, tokenizer, objective, device="cpu"), objective, batch)

    def is_causal(self, config: Mapping[str, Any]) -> bool:
        """Whether each token learns of itself and earlier ones alone."""
        tokenizer, objective, _ = self._of(config)
        return meta_model(config, tokenizer, objective).causal

    def memory(self, config: Mapping[str, Any]) -> tuple[int | None, int | None]:
        """`farthest_input` on the longest training example, None where that is all of it; and `state_size`."""
        tokenizer, objective, _ = self._of(config)
        longest = self._longest[self._key(config)]
        with torch.random.fork_rng(devices=[]):
            model = meta_model(config, tokenizer, objective, device="cpu")
            batch, _ = objective.first_call(model, longest)
            found = farthest_input(model, batch)
            state = state_size(model, batch)
        return found if found is not None and found < int(batch.valid.sum(dim=1).max()) - 1 else None, state

    def _key(self, config: Mapping[str, Any]) -> str:
        return json.dumps([config["data"], config["tokenizer"], config["model"]["objective"]], sort_keys=True)

    def _of(self, config: Mapping[str, Any]) -> tuple[Tokenizer, Objective, Batch]:
        key = self._key(config)
        if key not in self._known:
            built = build(config)
            objective: Objective = built.model["objective"]
            data: DataModule = data_module(config, built.tokenizer, objective)
            if self.tunes and not data.val_dataloader():
                raise UsageError(
                    "its data has no validation split to tune on, and none can be taken from its training split; "
                    "give --lr-trials 0 --dropout-trials 0 to compare without tuning"
                )
            loader = data.train_dataloader()
            self._known[key] = data.tokenizer, data.objective, next(iter(loader))
            lengths = loader.examples.lengths
            self._longest[key] = loader.examples[0, [max(range(len(lengths)), key=lengths.__getitem__)]]
        return self._known[key]


def meta_model(config: Mapping[str, Any], tokenizer: Tokenizer, objective: Objective, *, device: str = "meta") -> Model:
    """The model of a configuration, by default without its weights. Raises ValueError where it is refused."""
    with torch.device(device):
        arguments = build({"model": config["model"]}).model
        return Model(tokenizer.spec, **{**arguments, "objective": objective})


def _optimizers(settings: Settings, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The recipe's optimizer and, where backbones are compared and the command names none, AdamW beside it.

    A recipe's optimizer was chosen with the recipe's backbone; AdamW is what most others are trained with.
    """
    own = config["optimizer"]
    named = any(word.lstrip("-").split("=")[0].split(".")[0] == "optimizer" for word in settings.overrides)
    if not settings.backbones or named or "optimizer" in settings.vary or own["type"] == "AdamW":
        return [own]
    rate = (own.get("adamw") or {"lr": ADAMW_RATE})["lr"]
    kept = {key: own[key] for key in ("weight_decay",) if key in own}
    return [own, complete({**config, "optimizer": {"type": "AdamW", "lr": rate, **kept}})["optimizer"]]


def backbone_words(config: Mapping[str, Any], name: str | None) -> list[str]:
    """Override words that put a backbone in the place of a recipe's; in an encoder–decoder, of both."""
    backbone = config["model"]["backbone"]
    if name is None:
        return []
    if "parts" in backbone:  # Towers
        return [f"--model.backbone.parts.{part}={name}" for part in backbone["parts"]]
    if "encoder" not in backbone:
        return [f"--model.backbone={name}", *_causal_words(config, name)]
    encoder = backbone["encoder"]
    if name.lower() == encoder["type"].lower():
        return []
    sizes = {key: encoder[key] for key in ("dim", "depth") if key in encoder}
    inner = {"type": name, **sizes, "causal": True}
    decoder = {"type": "AttentionDecoder", "backbone": inner}
    return [f"--model.backbone.encoder={name}", f"--model.backbone.decoder={json.dumps(decoder)}"]


def _causal_words(config: Mapping[str, Any], name: str) -> list[str]:
    """Where the recipe's backbone is as causal as the objective needs (null), and the other cannot be: that value."""
    if config["model"]["backbone"].get("causal", False) is not None:
        return []
    key = Field("backbone", kind="backbone").keys_below(name, "model.backbone").get("causal")
    if key is None or fits(None, key.hint):
        return []
    objective: Objective = build({"model": config["model"]}).model["objective"]
    return [f"--model.backbone.causal={str(bool(objective.causal)).lower()}"]


def widths_of(config: Mapping[str, Any]) -> list[str]:
    """Dotted keys of the backbone's width, and of the encoders of parts, which have the same; empty: it has none."""
    own = keys_of(config["model"]["backbone"], "dim")
    encoders = (config["model"].get("encoders") or {}).items() if own else ()
    return [*own, *(key for name, one in encoders for key in keys_of(one, "dim", f"model.encoders.{name}"))]


def keys_of(backbone: Mapping[str, Any], name: str, path: str = "model.backbone") -> list[str]:
    """Dotted keys of that name in a backbone and, where it has none, in the backbones inside it."""
    if name in backbone:
        return [f"{path}.{name}"]
    inner = {key: backbone[key] for key in ("encoder", "decoder", "backbone") if isinstance(backbone.get(key), Mapping)}
    inner |= {f"parts.{part}": one for part, one in backbone.get("parts", {}).items()}
    return [found for key, one in inner.items() for found in keys_of(one, name, f"{path}.{key}")]


def backbone_of(config: Mapping[str, Any]) -> str:
    """The type of a configuration's backbone, of an encoder–decoder that of its encoder."""
    backbone: Mapping[str, Any] = config["model"]["backbone"]
    inner = backbone.get("encoder")
    return str(inner["type"] if isinstance(inner, Mapping) else backbone["type"])


def value_at(config: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = value[part]
    return value


def size_of(config: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Width and depth of a configuration's backbone, where it has them."""
    keys = (keys_of(config["model"]["backbone"], name) for name in ("dim", "depth"))
    width, depth = (value_at(config, found[0]) if found else None for found in keys)
    return width, depth
