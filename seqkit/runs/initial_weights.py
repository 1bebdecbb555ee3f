"""Weights of another model with which a training begins (`model.init`): which are taken, and which are new."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqkit.config import Config, complete
from seqkit.config.merge import MODEL_KEYS
from seqkit.errors import UsageError
from seqkit.interfaces import Objective, Tokenizer
from seqkit.model import Model
from seqkit.pretrained.family import task_of
from seqkit.pretrained.folder import (
    check_vocabulary,
    is_foreign,
    located,
    objective_state,
    settings,
)
from seqkit.pretrained.folder import weights as weights_of
from seqkit.runs.folder import CONFIG
from seqkit.runs.joined import network_alone
from seqkit.runs.summary import Initial
from seqkit.runs.trained_model import load_one
from seqkit.tokenizers.join import Join
from seqkit.training.weights import component_of

log = logging.getLogger("seqkit")


@dataclass(frozen=True)
class Source:
    """Another model: its settings, weights by our names, and what tells whether ids mean the same.

    settings: the sections `tokenizer` and `model` of its configuration, complete. tokenizer: fitted; None: it reads its
    file. objective: state of the objective. sha256: of the weights. left_out: what of the model is of no use here.
    """

    settings: Config
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer | None
    objective: Mapping[str, Any]
    sha256: str
    left_out: Sequence[str] = ()


class InitialWeights:
    """Weights and vocabulary of a run, or of a foreign model, for a model of another configuration.

    The backbone is taken whole. An embedder is taken where its tokenizer, or that of its part, has the same settings:
    the fitted state, such as a vocabulary, is then taken too, so ids mean the same. The head is taken where tokenizer,
    objective and classes are the same: it may predict ids. All else is new.
    source: folder of a trained run, or of a model as transformers saves it, or `hf:NAME`. config: complete
    configuration of the model that begins with it.
    Raises UsageError for a folder that is neither, or a mixture; DataError if a file of it is damaged.
    """

    def __init__(self, source: str | Path, config: Config):
        self.name = str(source)
        place = located(source)
        objective = config["model"]["objective"]
        self.source = _foreign(place, objective) if is_foreign(place) else _trained(place)
        theirs = self.source.settings
        # which keys of raw examples the parts of joined tokens read is for the data to say
        own, other = ({**each["tokenizer"], "reads": 0} for each in (config, theirs))
        self._is_same_tokenizer = own == other
        self._is_same_objective = objective == theirs["model"]["objective"]
        parts = other.get("parts") or {}
        self._parts = [
            name for name, part in (own.get("parts") or {}).items() if parts.get(name) == part
        ]

    def give_vocabulary(self, tokenizer: Tokenizer) -> None:
        """Load the fitted state of the other tokenizer, or of those of the parts that it has, too."""
        theirs = self.source.tokenizer
        if theirs is None:
            check_vocabulary(tokenizer)
            return
        pairs = [(tokenizer, theirs)] if self._is_same_tokenizer else []
        if not pairs and isinstance(tokenizer, Join) and isinstance(theirs, Join):
            pairs = [(tokenizer.parts[name], theirs.parts[name]) for name in self._parts]
        for own, other in pairs:
            if state := other.state():
                own.load_state(copy.deepcopy(state))

    def load_into(self, model: Model, objective: Objective) -> Initial:
        """Copy what is taken into the model; gives run, SHA-256 of its weights, and names of what is taken and new.

        objective: the model's own, fitted.

        Raises UsageError if backbone or embedder are otherwise built.
        """
        own = model.state_dict()
        theirs = self.source.weights
        if model.source_embedder is None:
            embedder, target = ("embedder", None)
        else:
            embedder, target = ("source_embedder", "embedder")
        taken = ["backbone"]
        if self._is_same_tokenizer:
            taken.append(embedder)
        else:
            taken += [
                f"{embedder}.{kind}.{name}"
                for name in self._parts
                for kind in ("parts", "encoders")
            ]
        # vectors of parts mean the same whether examples have classes or not
        is_same_state = objective.encodes_parts_alone or _outputs(objective.state()) == _outputs(
            self.source.objective
        )
        is_same_head = self._is_same_tokenizer and self._is_same_objective and is_same_state
        optional = {name for name in own if name.endswith(".mask_token")}
        names = [name for name in _below(theirs, taken) if not name.endswith(".mask_token")]
        names += [
            name
            for name in _below(theirs, taken)
            if name in optional and own[name].shape == theirs[name].shape
        ]
        needed = {
            name: own[name] for name in _below(own, taken) if name not in optional or name in names
        }
        if wrong := copied(theirs, names, needed):
            raise UsageError(
                f"model.init {self.name}: {wrong}; give model.backbone and what the embedder has (model.position, "
                "model.encoders) as that model has them, or leave them out for a model of transformers"
            )
        head = [name for name in ("head", target) if name is not None]
        of_head = _below(theirs, head) if is_same_head else []
        if is_same_head and not copied(
            theirs, of_head, {n: own[n] for n in _untied(_below(own, head), names, own)}
        ):
            names += of_head
        new = sorted(
            {component_of(name) for name in _untied(own, names, own) if name not in optional}
        )
        left_out = sorted({name.partition(".")[0] for name in self.source.left_out})
        found = Initial(
            run=self.name,
            sha256=self.source.sha256,
            taken=sorted({component_of(name) for name in own} - set(new)),
            new=new,
        )
        if left_out:
            return found.changed(left_out=left_out)
        return found


def _trained(run: Path) -> Source:
    """The source that a trained run is."""
    if not (run / CONFIG).is_file():
        raise UsageError(
            f"model.init: {run} is no run, for it has no {CONFIG}, and no model that transformers saved, for it has no "
            "config.json; give a folder of either kind"
        )
    with torch.random.fork_rng(devices=[]):  # what is new is as without these weights
        trained = load_one(run)
    if said := network_alone(trained.summary, f"model.init {run}"):
        log.warning("%s", said)
    return Source(
        complete({key: trained.config[key] for key in MODEL_KEYS}, only=MODEL_KEYS),
        trained.model.state_dict(),
        trained.tokenizer,
        trained.objective.state(),
        trained.summary.sha256,
    )


def _foreign(folder: Path, objective: Mapping[str, Any]) -> Source:
    """The source that a foreign model is. objective: of the model that begins with it."""
    task = task_of(objective)
    found = settings(folder, task)
    found["model"]["objective"] = {**objective, **found["model"].get("objective", {})}
    theirs, left_out, digest = weights_of(folder, task)
    return Source(
        complete(found, only=MODEL_KEYS),
        theirs,
        None,
        objective_state(folder, task),
        digest,
        left_out,
    )


def _outputs(state: Mapping[str, Any]) -> dict[str, Any]:
    """An objective's state without its longest label's length and its positive class, which change no output."""
    return {key: value for key, value in state.items() if key not in ("longest", "positive")}


def told(initial: Initial) -> str:
    """A line that says what was taken, and what is new."""
    new = ", ".join(initial.new) or "nothing"
    line = f"weights of {initial.run}: {', '.join(initial.taken)}; new: {new}"
    if initial.left_out:
        return f"{line}; left out: {', '.join(initial.left_out)}"
    return line


def copied(theirs: Mapping[str, Tensor], names: Sequence[str], own: Mapping[str, Tensor]) -> str:
    """Copy weights of these names into ours, one at a time; gives the first fault, empty if they fit.

    own: those that have to be set; one that is tied to a given one need not be given. Nothing is copied where a name
    is missing or unknown; a weight of another shape ends the copying.
    """
    tied = {own[name].data_ptr() for name in names if name in own}
    missing = next(
        (name for name, x in own.items() if name not in names and x.data_ptr() not in tied), None
    )
    if missing is not None:
        return f"{missing} is missing"
    for name in sorted(names, key=lambda name: name in own):  # an unknown one comes first
        if name not in own or own[name].shape != (x := theirs[name]).shape:
            return f"{name} is unknown or of another shape"
        with torch.no_grad():
            own[name].copy_(x)
    return ""


def _below(weights: Mapping[str, Tensor], prefixes: list[str]) -> list[str]:
    """Names of weights below these prefixes."""
    return [name for name in weights if name.startswith(tuple(f"{prefix}." for prefix in prefixes))]


def _untied(some: Iterable[str], given: Iterable[str], own: Mapping[str, Tensor]) -> list[str]:
    """Names of ours that the given ones do not set, also under another name. own: all of ours."""
    places = {own[name].data_ptr() for name in given}
    return [name for name in some if own[name].data_ptr() not in places]
