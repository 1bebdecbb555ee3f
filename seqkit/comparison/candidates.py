"""Candidates of a comparison: one complete configuration each, with budgets made equal to the reference's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from seqkit.analysis.cost import training_flops
from seqkit.analysis.receptive_field import farthest_input
from seqkit.comparison.budget import nearest
from seqkit.comparison.settings import Settings, Variant
from seqkit.config import Config, build, complete
from seqkit.config.schema import Field, fits
from seqkit.data.batching import Batch
from seqkit.errors import DataError, UsageError
from seqkit.interfaces import Objective, Tokenizer
from seqkit.model import Model
from seqkit.runs.prepare import data_module, untrained
from seqkit.training.trainer import count_steps

NEARLY = 0.05
"""Another depth is tried if its budget is equal up to this share; the page says by how much it is off."""

VALID_FRACTION = 0.1
"""Share of the training split to tune on, where neither source nor recipe has a validation split."""

ADAMW_RATE = 0.001
"""Middle of the grid of AdamW's learning rates, where the recipe has none."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of a candidate's model. values: the keys, by dotted key, that differ from the candidate's configuration.

    flops: of a training step. budget_gap: to the reference, relative. farthest: tokens between an input and an output
    that depends on it, at most; None: all, or it is not known.
    """

    parameters: int = 0
    flops: int = 0
    width: int | None = None
    depth: int | None = None
    budget_gap: float | None = None
    farthest: int | None = None
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A candidate before it is tuned. config: complete. num_steps: optimizer steps of a whole run.

    optimizers: complete configurations of those that are tried, the recipe's first. depths: other sizes that are tried.
    notes: what had to be changed beside what differs on purpose.
    """

    name: str
    config: dict[str, Any]
    num_steps: int
    size: Size = field(default_factory=Size)
    depths: list[Size] = field(default_factory=list)
    optimizers: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def candidates(settings: Settings) -> list[Candidate]:
    """Every candidate, the reference first. Raises UsageError or DataError where one cannot be built."""
    fitted = _Fitted(tunes=bool(settings.lr_trials))
    found: list[Candidate] = []
    # a fault of the recipe's is no candidate's
    complete(settings.recipe, settings.preset, settings.overrides)
    for variant in settings.variants():
        with naming(variant.name):
            found.append(_candidate(settings, fitted, variant, found[0] if found else None))
            _check_one_device(found[-1].config["trainer"])
    configs = [{**candidate.config, "seed": None} for candidate in found]
    for i, candidate in enumerate(found):
        if configs[i] in configs[:i]:
            same = found[configs.index(configs[i])].name
            raise UsageError(
                f"{candidate.name} and {same} are the same configuration; leave one out"
            )
    return found


def words_of(settings: Settings, variant: Variant) -> list[str]:
    """Override words of a candidate, before its budget is made equal to the reference's."""
    _, backbone, width, words = variant
    base = complete(settings.recipe, settings.preset, [*settings.overrides, *words])
    words = [*settings.overrides, *words, *backbone_words(base, backbone)]
    if width is not None:
        base = complete(settings.recipe, settings.preset, words)
        words += [f"--{key}={width}" for key in widths_of(base)]
    if base["model"]["objective"].get("linear") and not any(
        "objective.linear" in word for word in words
    ):
        # networks are compared, not what stands beside them
        words.append("--model.objective.linear=false")
    if base["data"]["valid_fraction"] == 0:
        words.append(f"--data.valid_fraction={VALID_FRACTION}")
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


def _check_one_device(settings: Mapping[str, Any]) -> None:
    """Raise UsageError for several devices: a run of a comparison is not started by a command that ranks repeat."""
    devices = settings["devices"]
    if isinstance(devices, list):
        several = len(devices) > 1
    else:
        several = str(devices).isdigit() and int(devices) > 1
    if several or settings["num_nodes"] != 1:
        raise UsageError(
            f"trainer.devices is {devices} and trainer.num_nodes {settings['num_nodes']}; "
            "a run of a comparison takes one device: give --trainer.devices 1, and use --jobs"
        )


def _candidate(
    settings: Settings, fitted: _Fitted, variant: Variant, reference: Candidate | None
) -> Candidate:
    """The candidate of a variant, with the width at which its budget is the reference's."""
    words = words_of(settings, variant)
    notes = list[str]()
    config = complete(settings.recipe, settings.preset, words)
    try:
        fitted.parameters(config)
    except ValueError as error:
        if "does not support adjacency" not in str(error):
            raise
        words = [*words, "--model.adjacency=ignore"]
        config = complete(settings.recipe, settings.preset, words)
        notes.append("It does not support adjacency, so it ignores the edges.")
    measure = fitted.flops if settings.match == "flops" else fitted.parameters
    target = measure(config)
    if reference is not None and settings.match != "none":
        if settings.match == "flops":
            target = reference.size.flops
        else:
            target = reference.size.parameters
        if abs(measure(config) - target) > 0.001 * target and widths_of(config):
            init = config["model"].get("init")
            if init not in (None, reference.config["model"].get("init")):
                raise ValueError(
                    f"the weights of model.init have a width of their own, so {measure(config):,} {settings.match} "
                    f"cannot be made the {target:,} of {reference.name}; give --match none"
                )
            config = _resized(settings, words, config, _Budget(measure, target))
    if config["model"].get("init") is not None:
        untrained(config)  # it refuses weights of another backbone before anything runs
    gap = None if settings.match == "none" else measure(config) / target - 1
    own = fitted.size(config, gap)
    return Candidate(
        name=variant.name,
        config=config,
        num_steps=count_steps(config["trainer"], fitted.num_batches(config)),
        size=own,
        depths=list(_other_depths(settings, fitted, words, config, _Budget(measure, target))),
        optimizers=_optimizers(settings, config),
        notes=notes,
    )


class _Budget(NamedTuple):
    """A measure of what a configuration costs, and the cost that it is to have."""

    measure: Callable[[Mapping[str, Any]], int]
    target: int


def _resized(
    settings: Settings,
    words: list[str],
    config: Mapping[str, Any],
    budget: _Budget,
    depth: int | None = None,
) -> dict[str, Any]:
    """The configuration at that depth (None: its own), with the width at which its budget is nearest to the target.

    Raises ValueError where no width can be built.
    """
    widths = widths_of(config)
    depths = keys_of(config["model"]["backbone"], "depth") if depth is not None else []

    def at(width: int) -> dict[str, Any]:
        sizes = [*(f"--{key}={width}" for key in widths), *(f"--{key}={depth}" for key in depths)]
        return complete(settings.recipe, settings.preset, [*words, *sizes])

    def cost(width: int) -> int | None:
        try:
            return budget.measure(at(width))
        except ValueError:  # refused: heads do not divide this width, or the like
            return None

    return at(nearest(cost, budget.target, value_at(config, widths[0])))


def _other_depths(
    settings: Settings,
    fitted: _Fitted,
    words: list[str],
    config: Mapping[str, Any],
    budget: _Budget,
) -> Iterator[Size]:
    """Half and double the depth at an equal budget, where backbones are compared: not every one wants the recipe's.

    A depth at which no width comes nearly there is left out.
    """
    widths = widths_of(config)
    depths = keys_of(config["model"]["backbone"], "depth")
    if (
        not settings.tries_depths
        or not widths
        or not depths
        or config["model"].get("init") is not None
    ):
        return
    own = value_at(config, depths[0])
    for depth in sorted({max(1, own // 2), 2 * own} - {own}):
        try:
            found = _resized(settings, words, config, budget, depth)
        except ValueError:
            continue
        gap = budget.measure(found) / budget.target - 1
        if abs(gap) <= NEARLY:
            width = value_at(found, widths[0])
            values = {**dict.fromkeys(widths, width), **dict.fromkeys(depths, depth)}
            yield fitted.size(found, gap, values)


class _Fitted:
    """Cache of what candidates with the same data share, fitted tokenizer, objective and batches, and of costs."""

    def __init__(self, *, tunes: bool) -> None:
        self.tunes = tunes
        self._known: dict[str, _Shared] = {}
        self._measured: dict[tuple[str, str], int] = {}

    def parameters(self, config: Mapping[str, Any]) -> int:
        """Trainable parameters. Raises ValueError where the model is refused."""
        return self._once("parameters", lambda model, _: model.num_parameters, config)

    def flops(self, config: Mapping[str, Any]) -> int:
        """FLOPs of training on one batch. Raises ValueError where the model is refused."""
        return self._once(
            "flops", lambda model, one: training_flops(model, one.objective, one.first), config
        )

    def num_batches(self, config: Mapping[str, Any]) -> int:
        """Batches of an epoch."""
        return self._of(config).num_batches

    def size(
        self, config: Mapping[str, Any], gap: float | None, values: dict[str, Any] | None = None
    ) -> Size:
        """The size of a configuration, of which only the budget gap and the values are known."""
        one = self._of(config)
        width, depth = size_of(config)
        with torch.random.fork_rng(devices=[]):
            model = meta_model(config, one.tokenizer, one.objective, device="cpu")
            batch, _ = one.objective.first_call(model, one.longest)
            farthest = farthest_input(model, batch)
        if farthest is not None and farthest >= int(batch.valid.sum(dim=1).max()) - 1:
            farthest = None
        return Size(
            parameters=self.parameters(config),
            flops=self.flops(config),
            width=width,
            depth=depth,
            budget_gap=gap,
            farthest=farthest,
            values=values or {},
        )

    def _once(
        self, what: str, measure: Callable[[Model, _Shared], int], config: Mapping[str, Any]
    ) -> int:
        key = (
            what,
            json.dumps([config["data"], config["tokenizer"], config["model"]], sort_keys=True),
        )
        if key not in self._measured:
            one = self._of(config)
            # first: it refuses what cannot be prepared
            model = meta_model(config, one.tokenizer, one.objective)
            try:
                self._measured[key] = measure(model, one)
            except ValueError:
                raise
            except Exception:  # a component that looks at values: it is measured with weights
                with torch.random.fork_rng(devices=[]):
                    model = meta_model(config, one.tokenizer, one.objective, device="cpu")
                    self._measured[key] = measure(model, one)
        return self._measured[key]

    def _of(self, config: Mapping[str, Any]) -> _Shared:
        key = json.dumps(
            [config["data"], config["tokenizer"], config["model"]["objective"]], sort_keys=True
        )
        if key not in self._known:
            built = build(config)
            data = data_module(config, built.tokenizer, built.model["objective"])
            if self.tunes and not data.val_dataloader():
                raise UsageError(
                    "its data has no validation split to tune on, and none can be taken from its training split; "
                    "give --lr-trials 0 to compare without tuning"
                )
            loader = data.train_dataloader()
            lengths = loader.examples.lengths
            longest = loader.examples[0, [max(range(len(lengths)), key=lengths.__getitem__)]]
            self._known[key] = _Shared(
                data.tokenizer, data.objective, next(iter(loader)), longest, len(loader)
            )
        return self._known[key]


class _Shared(NamedTuple):
    """Parts that candidates with the same data share. first, longest: a batch, and the longest example as one."""

    tokenizer: Tokenizer
    objective: Objective
    first: Batch
    longest: Batch
    num_batches: int


def meta_model(
    config: Mapping[str, Any], tokenizer: Tokenizer, objective: Objective, *, device: str = "meta"
) -> Model:
    """The model of a configuration, by default without its weights. Raises ValueError where it is refused."""
    with torch.device(device):
        arguments = build(Config({"model": config["model"]})).model
        return Model(tokenizer.spec, **{**arguments, "objective": objective})


def _optimizers(settings: Settings, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The recipe's optimizer and, where backbones are compared and the command names none, AdamW beside it.

    A recipe's optimizer was chosen with the recipe's backbone; AdamW is what most others are trained with.
    """
    own = config["optimizer"]
    named = any(
        word.lstrip("-").split("=")[0].split(".")[0] == "optimizer" for word in settings.overrides
    )
    if not settings.backbones or named or "optimizer" in settings.vary or own["type"] == "AdamW":
        return [own]
    rate = (own.get("adamw") or {"lr": ADAMW_RATE})["lr"]
    kept = {key: own[key] for key in ("weight_decay",) if key in own}
    return [
        own,
        complete({**config, "optimizer": {"type": "AdamW", "lr": rate, **kept}})["optimizer"],
    ]


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
    objective: Objective = build(Config({"model": config["model"]})).model["objective"]
    return [f"--model.backbone.causal={str(bool(objective.causal)).lower()}"]


def widths_of(config: Mapping[str, Any]) -> list[str]:
    """Dotted keys of the backbone's width, and of the encoders of parts, which have the same; empty: it has none."""
    own = keys_of(config["model"]["backbone"], "dim")
    encoders = (config["model"].get("encoders") or {}).items() if own else ()
    return [
        *own,
        *(key for name, one in encoders for key in keys_of(one, "dim", f"model.encoders.{name}")),
    ]


def keys_of(backbone: Mapping[str, Any], name: str, path: str = "model.backbone") -> list[str]:
    """Dotted keys of that name in a backbone and, where it has none, in the backbones inside it."""
    if name in backbone:
        return [f"{path}.{name}"]
    inner = {
        key: backbone[key]
        for key in ("encoder", "decoder", "backbone")
        if isinstance(backbone.get(key), Mapping)
    }
    inner |= {f"parts.{part}": one for part, one in backbone.get("parts", {}).items()}
    return [found for key, one in inner.items() for found in keys_of(one, name, f"{path}.{key}")]


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
