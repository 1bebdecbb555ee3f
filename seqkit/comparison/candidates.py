"""Candidates of a comparison: one complete configuration each, with budgets made equal to the reference's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple

import torch

from seqkit.analysis.cost import training_flops
from seqkit.analysis.receptive_field import farthest_input
from seqkit.comparison.budget import nearest
from seqkit.comparison.patterns import backbone_or_mixers
from seqkit.comparison.settings import Settings, Variant
from seqkit.config import Config, build, complete, dotted
from seqkit.config.mixers import MIXER
from seqkit.config.overrides import Word
from seqkit.config.record import value_at, with_values
from seqkit.config.schema import Field, fits
from seqkit.data.batching import Batch, BatchDataset
from seqkit.errors import DataError, UsageError
from seqkit.interfaces import Objective, Tokenizer
from seqkit.model import Model
from seqkit.runs.examined.model import KEY, allowed, faults
from seqkit.runs.prepare import data_module, untrained
from seqkit.testing.process import seeded
from seqkit.training.trainer import count_steps

HALVINGS = 2
"""The depth is halved and doubled up to this often."""

EQUAL = 0.02
"""Two budgets are equal up to this share of the reference's."""

NEARLY = 0.05
"""Another depth is tried if its budget is equal up to this share; the page says by how much it is off."""

RATIO = "model.backbone.block.mlp.ratio"
"""Inner width of MLPs by width."""

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

    optimizers: complete configurations of those that are tried, the recipe's first. depths: sizes of other depths, of
    which those beside the best are tried.
    notes: what had to be changed beside what differs on purpose. broken: sentences on the laws that its model breaks.
    """

    name: str
    config: dict[str, Any]
    num_steps: int
    size: Size = field(default_factory=Size)
    depths: list[Size] = field(default_factory=list)
    optimizers: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def ladder(self) -> dict[int, Size]:
        """Sizes by step: 0 its own, 1 the next deeper one, -1 the next shallower one."""
        deeper = [size for size in self.depths if (size.depth or 0) > (self.size.depth or 0)]
        shallower = [size for size in self.depths if size not in deeper]
        below = {-i: size for i, size in enumerate(reversed(shallower), start=1)}
        return {0: self.size, **below, **dict(enumerate(deeper, start=1))}

    def configured(self, values: Mapping[str, object]) -> dict[str, Any]:
        """A copy of the configuration with these values by dotted key."""
        config = dict(self.config)
        for optimizer in self.optimizers:
            if optimizer["type"] == values.get("optimizer.type"):
                config["optimizer"] = optimizer
        return with_values(config, values)


class Sizes(NamedTuple):
    """Dotted keys of a backbone's width, which encoders of parts share, and of its depth; and the value of each."""

    widths: list[str]
    depths: list[str]
    width: int | None
    depth: int | None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Sizes:
        """The sizes of a complete configuration."""
        model = config["model"]
        widths = _keys_of("dim", model["backbone"], "model.backbone")
        depths = _keys_of("depth", model["backbone"], "model.backbone")
        width = value_at(config, widths[0]) if widths else None
        depth = value_at(config, depths[0]) if depths else None
        if widths:
            for name, encoder in (model.get("encoders") or {}).items():
                widths += _keys_of("dim", encoder, f"model.encoders.{name}")
        return cls(widths, depths, width, depth)


@dataclass(frozen=True)
class Draft:
    """The recipe with values of keys on top of it, by dotted key; those of the command line are `Word`s."""

    settings: Settings
    values: Mapping[str, object]

    @cached_property
    def config(self) -> dict[str, Any]:
        """The complete configuration. Raises UsageError where there is none."""
        return complete(self.settings.recipe, self.settings.preset, self.values)

    @cached_property
    def sizes(self) -> Sizes:
        """Width and depth, and their keys."""
        return Sizes.of(self.config)

    @property
    def has_weights(self) -> bool:
        """Whether it begins with the weights of a model, which have a width of their own."""
        return self.config["model"].get("init") is not None

    def over(self, values: Mapping[str, object]) -> Draft:
        """The draft with these values; they count more than those that it has."""
        kept = {key: value for key, value in self.values.items() if key not in values}
        return Draft(self.settings, {**kept, **values})

    def sized(self, width: int | str, depth: int | None = None) -> Draft:
        """The draft of that width and depth (None: its own)."""
        depths = [] if depth is None else self.sizes.depths
        return self.over(
            {**dict.fromkeys(self.sizes.widths, width), **dict.fromkeys(depths, depth)}
        )


def candidates(settings: Settings) -> list[Candidate]:
    """Every candidate, the reference first. Raises UsageError or DataError where one cannot be built."""
    fitted = _Fitted(tunes=bool(settings.lr_trials))
    found: list[Candidate] = []
    # a fault of the recipe's is no candidate's
    complete(settings.recipe, settings.preset, settings.overrides)
    for variant in settings.variants():
        with naming(variant.name):
            draft = draft_of(settings, variant)
            found.append(_candidate(fitted, variant.name, draft, found[0] if found else None))
            _check_one_device(draft)
    configs = [{**candidate.config, "seed": None} for candidate in found]
    for i, candidate in enumerate(found):
        if configs[i] in configs[:i]:
            same = found[configs.index(configs[i])].name
            raise UsageError(
                f"{candidate.name} and {same} are the same configuration; leave one out"
            )
    return found


def draft_of(settings: Settings, variant: Variant) -> Draft:
    """A candidate before its budget is made equal to the reference's."""
    draft = Draft(settings, dict(dotted(settings.overrides))).over(variant.values)
    if variant.backbone is not None:
        draft = draft.over(backbone_values(draft.config, variant.backbone))
    if variant.width is not None:
        draft = draft.sized(Word(variant.width))
    if "classical" in draft.values:
        raise UsageError("a comparison is of networks alone; leave out --classical")
    draft = draft.over({"classical": "off"})
    if draft.config["data"]["valid_fraction"] == 0:
        draft = draft.over({"data.valid_fraction": VALID_FRACTION})
    return draft


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


def _check_one_device(draft: Draft) -> None:
    """Raise UsageError for several devices, or all: no command that ranks could repeat starts a run of a comparison."""
    settings = draft.config["trainer"]
    devices = settings["devices"]
    is_one = len(devices) == 1 if isinstance(devices, list) else str(devices) == "1"
    if not is_one or settings["num_nodes"] != 1:
        raise UsageError(
            f"trainer.devices is {devices} and trainer.num_nodes {settings['num_nodes']}; "
            "a run of a comparison takes one device: give --trainer.devices 1, and use --jobs"
        )


def _candidate(fitted: _Fitted, name: str, draft: Draft, reference: Candidate | None) -> Candidate:
    """The candidate of a draft, with the width at which its budget is the reference's."""
    match = draft.settings.match
    draft, notes = _that_is_taken(fitted, draft)
    measure = fitted.flops if match == "flops" else fitted.parameters
    target = measure(draft)
    if reference is not None and match != "none":
        target = reference.size.flops if match == "flops" else reference.size.parameters
        if abs(measure(draft) - target) > 0.001 * target and draft.sizes.widths:
            init = draft.config["model"].get("init")
            if draft.has_weights and init != reference.config["model"].get("init"):
                raise ValueError(
                    f"the weights of model.init have a width of their own, so {measure(draft):,} {match} "
                    f"cannot be made the {target:,} of {reference.name}; give --match none"
                )
            draft = _resized(draft, _Budget(measure, target))
    gap = None if match == "none" else measure(draft) / target - 1
    return Candidate(
        name=name,
        config=draft.config,
        num_steps=count_steps(draft.config["trainer"], fitted.num_batches(draft)),
        size=fitted.size(draft, gap),
        depths=list(_other_depths(fitted, draft, _Budget(measure, target))),
        optimizers=_optimizers(draft),
        notes=notes,
        broken=allowed(fitted.faults(draft), is_allowed=draft.config["trainer"][KEY]),
    )


def _that_is_taken(fitted: _Fitted, draft: Draft) -> tuple[Draft, list[str]]:
    """The draft, which ignores the edges where its model is refused with them and taken without; and a note on that."""
    fitted.num_batches(draft)  # a fault of the data is none of the model
    try:
        fitted.parameters(draft)
        return draft, []
    except ValueError as refusal:
        ignoring = draft.over({"model.adjacency": "ignore"})
        try:
            fitted.parameters(ignoring)
        except ValueError:
            raise refusal from None
        return ignoring, ["It does not support adjacency, so it ignores the edges."]


class _Budget(NamedTuple):
    """A measure of what a draft costs, and the cost that it is to have."""

    measure: Callable[[Draft], int]
    target: int


def _resized(draft: Draft, budget: _Budget, depth: int | None = None) -> Draft:
    """The draft at that depth (None: its own), with the width at which its budget is nearest to the target.

    Raises ValueError where no width can be built.
    """

    def cost(width: int) -> int | None:
        try:
            return budget.measure(draft.sized(width, depth))
        except ValueError:  # refused: heads do not divide this width, or the like
            return None

    assert draft.sizes.width is not None
    return _trimmed(draft.sized(nearest(cost, budget.target, draft.sizes.width), depth), budget)


def _trimmed(draft: Draft, budget: _Budget) -> Draft:
    """The draft with the inner width of its MLPs that makes up for what its width misses, as where heads divide it."""
    if any(RATIO.startswith(key) for key in draft.settings.vary):
        return draft
    try:
        ratio = value_at(draft.config, RATIO)
    except (KeyError, TypeError):  # it has none, or a block for each layer
        return draft
    cost = budget.measure(draft)
    if ratio is None or abs(cost / budget.target - 1) <= EQUAL / 2:
        return draft
    of_ratio = budget.measure(draft.over({RATIO: 2 * ratio})) - cost
    wanted = round(ratio * (1 + (budget.target - cost) / of_ratio), 3)
    return draft.over({RATIO: wanted}) if ratio / 2 <= wanted <= 2 * ratio else draft


def _other_depths(fitted: _Fitted, draft: Draft, budget: _Budget) -> Iterator[Size]:
    """Other depths at an equal budget, the shallowest first: not every backbone wants the recipe's.

    A direction ends at the first depth at which no width comes nearly there.
    """
    widths, depths, width, own = draft.sizes
    if not draft.settings.tries_depths or width is None or own is None or draft.has_weights:
        return
    keys = (*widths, *depths, RATIO)

    def sized(depth: int) -> Size | None:
        try:
            found = _resized(draft, budget, depth)
        except ValueError:
            return None
        gap = budget.measure(found) / budget.target - 1
        if abs(gap) > NEARLY:
            return None
        return replace(
            fitted.size(found, gap),
            values={key: found.values[key] for key in keys if key in found.values},
        )

    halves = [own // 2**i for i in range(1, HALVINGS + 1) if own >= 2**i]
    doubles = [own * 2**i for i in range(1, HALVINGS + 1)]
    shallower = list(takewhile(bool, map(sized, halves)))
    yield from (size for size in reversed(shallower) if size)
    yield from (size for size in takewhile(bool, map(sized, doubles)) if size)


class _Fitted:
    """Cache of what candidates with the same data share, fitted tokenizer, objective and batches, and of costs."""

    def __init__(self, *, tunes: bool) -> None:
        self.tunes = tunes
        self._known: dict[str, _Shared] = {}
        self._measured: dict[tuple[str, str], int] = {}

    def parameters(self, draft: Draft) -> int:
        """Trainable parameters. Raises ValueError where the model is refused."""
        return self._once("parameters", lambda model, _: model.num_parameters, draft)

    def flops(self, draft: Draft) -> int:
        """FLOPs of training on one batch. Raises ValueError where the model is refused."""
        return self._once(
            "flops", lambda model, one: training_flops(model, one.objective, one.first), draft
        )

    def num_batches(self, draft: Draft) -> int:
        """Batches of an epoch."""
        return self._of(draft).num_batches

    def size(self, draft: Draft, gap: float | None) -> Size:
        """The size of a draft, of which only the budget gap is known."""
        one = self._of(draft)
        with torch.random.fork_rng(devices=[]):
            model = one.model(draft, "cpu")
            batch, _ = one.objective.first_call(model, one.longest)
            farthest = farthest_input(model, batch)
        if farthest is not None and farthest >= int(batch.valid.sum(dim=1).max()) - 1:
            farthest = None
        return Size(
            parameters=self.parameters(draft),
            flops=self.flops(draft),
            width=draft.sizes.width,
            depth=draft.sizes.depth,
            budget_gap=gap,
            farthest=farthest,
        )

    def faults(self, draft: Draft) -> list[str]:
        """Sentences on the laws that the draft's model breaks. Raises UsageError for weights of another backbone."""
        one = self._of(draft)
        with seeded(int(draft.config["seed"])):
            model = untrained(draft.config)[0] if draft.has_weights else one.model(draft, "cpu")
        return faults(model, one.objective, one.examples)

    def _once(self, what: str, measure: Callable[[Model, _Shared], int], draft: Draft) -> int:
        key = (what, _digest(draft, draft.config["model"]))
        if key not in self._measured:
            one = self._of(draft)
            # first: it refuses what cannot be prepared
            model = one.model(draft, "meta")
            try:
                self._measured[key] = measure(model, one)
            except ValueError:
                raise
            except Exception:  # a component that looks at values: it is measured with weights
                with torch.random.fork_rng(devices=[]):
                    self._measured[key] = measure(one.model(draft, "cpu"), one)
        return self._measured[key]

    def _of(self, draft: Draft) -> _Shared:
        key = _digest(draft, draft.config["model"]["objective"])
        if key not in self._known:
            built = build(draft.config)
            data = data_module(draft.config, built.tokenizer, built.model["objective"])
            if self.tunes and not data.val_dataloader():
                raise UsageError(
                    "its data has no validation split to tune on, and none can be taken from its training split; "
                    "give --lr-trials 0 to compare without tuning"
                )
            loader = data.train_dataloader()
            tested = data.test_dataloader().examples
            lengths = tested.lengths
            longest = tested[0, [max(range(len(lengths)), key=lengths.__getitem__)]]
            self._known[key] = _Shared(
                data.tokenizer,
                data.objective,
                loader.examples,
                next(iter(loader)),
                longest,
                len(loader),
            )
        return self._known[key]


def _digest(draft: Draft, section: object) -> str:
    """Equal for drafts with the same data, tokenizer, and section of the model."""
    return json.dumps([draft.config["data"], draft.config["tokenizer"], section], sort_keys=True)


class _Shared(NamedTuple):
    """Parts that candidates with the same data share. examples: of training. first: a batch of them. longest: the
    longest test example, as a batch."""

    tokenizer: Tokenizer
    objective: Objective
    examples: BatchDataset
    first: Batch
    longest: Batch
    num_batches: int

    def model(self, draft: Draft, device: str) -> Model:
        """The untrained model of a draft; on device meta without weights. Raises ValueError where it is refused."""
        with torch.device(device):
            arguments = build(Config({"model": draft.config["model"]})).model
            return Model(self.tokenizer.spec, **{**arguments, "objective": self.objective})


def _optimizers(draft: Draft) -> list[dict[str, Any]]:
    """The recipe's optimizer and, where backbones are compared and the command names none, AdamW beside it.

    A recipe's optimizer was chosen with the recipe's backbone; AdamW is what most others are trained with.
    """
    settings = draft.settings
    own = draft.config["optimizer"]
    named = any(key.partition(".")[0] == "optimizer" for key, _ in dotted(settings.overrides))
    if not settings.backbones or named or "optimizer" in settings.vary or own["type"] == "AdamW":
        return [own]
    adamw = {"type": "AdamW", "lr": (own.get("adamw") or {"lr": ADAMW_RATE})["lr"]}
    if "weight_decay" in own:
        adamw["weight_decay"] = own["weight_decay"]
    return [own, complete({**draft.config, "optimizer": adamw})["optimizer"]]


def backbone_values(config: Mapping[str, Any], name: str) -> dict[str, object]:
    """Values that put a backbone, or a Transformer with mixers, in a recipe's place; in an encoder–decoder, of both."""
    backbone = config["model"]["backbone"]
    other = backbone_or_mixers(name)
    if "parts" in backbone:  # Towers
        return {f"model.backbone.parts.{part}": other for part in backbone["parts"]}
    if "encoder" in backbone:
        encoder = backbone["encoder"]
        if other == {"type": encoder["type"]}:
            return {}
        if MIXER in other and backbone["decoder"]["type"] == other["type"]:
            return {"model.backbone.encoder": other, "model.backbone.decoder": other}
        sizes = {key: encoder[key] for key in ("dim", "depth") if key in encoder}
        inner = {**other, **sizes, "causal": True}
        decoder = {"type": "AttentionDecoder", "backbone": inner}
        return {"model.backbone.encoder": other, "model.backbone.decoder": decoder}
    if isinstance(mixers := other.get(MIXER), list) and "depth" in backbone:
        other["depth"] = -(-backbone["depth"] // len(mixers)) * len(mixers)
    values: dict[str, object] = {"model.backbone": other}
    if other["type"] == backbone["type"]:  # it stays as the recipe or the command has it
        values = {f"model.backbone.{key}": one for key, one in other.items() if key != "type"}
    # the recipe's is as causal as the objective needs (null), which the other may not be able to be
    if backbone.get("causal", False) is None:
        keys = Field("backbone", kind="backbone").keys_below(other["type"], "model.backbone")
        key = keys.get("causal")
        if key is not None and (MIXER in other or not fits(None, key.hint)):
            objective: Objective = build({"model": config["model"]}).model["objective"]
            values["model.backbone.causal"] = bool(objective.causal)
    return values


def _keys_of(name: str, backbone: Mapping[str, Any], path: str) -> list[str]:
    """Dotted keys of that name in a backbone and, where it has none, in the backbones inside it."""
    if name in backbone:
        return [f"{path}.{name}"]
    inner = {key: backbone.get(key) for key in ("encoder", "decoder", "backbone")}
    inner |= {f"parts.{part}": one for part, one in backbone.get("parts", {}).items()}
    found = []
    for key, one in inner.items():
        if isinstance(one, Mapping):
            found += _keys_of(name, one, f"{path}.{key}")
    return found
