"""Base classes of what the data flows through: tokenizer and objective without weights, the backbone with them.

b batch · n tokens · d width · a references
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seqkit.interfaces.batch import Embedded, TokenBatch
from seqkit.interfaces.spec import TokenSpec
from seqkit.interfaces.tokens import Tokens

IGNORE = -100
"""Target of a token that has none: the default `ignore_index` of `torch.nn.functional.cross_entropy`."""

LabeledBatch = tuple[TokenBatch, Tensor | None]
"""Tokens of a batch and their labels; None where the data has none."""

FittedState = dict[str, Any]
"""State that a tokenizer or an objective learned from the training data, as plain JSON."""


# ── tokenizer and objective: no weights ──────────────────────────────────────────────────────────────────────────────


class Stateful:
    """Base class of tokenizers and objectives, which may be fitted on the training data (vocabulary, class names).

    The state is plain JSON (`state`, `load_state`); it travels with the run and is data, never code.
    """

    def state(self) -> FittedState:
        """The fitted state as plain JSON; empty before fitting."""
        return {}

    def load_state(self, state: FittedState) -> None:
        """Restore from `state()`."""
        if state:
            raise ValueError(
                f"{type(self).__name__} has no fitted state, but was given {sorted(state)}"
            )


class Tokenizer(Stateful, ABC):
    """Turns one raw example into `Tokens`.

    It runs on the CPU in the data loader and owns no weights. `spec` describes its tokens. A sample is (raw, label);
    `encode` gets the raw part alone, so labels per token fix the tokens' number and order. Further methods, if they
    make sense: `fit(raws)` learns from the training split, once; it comes with `state` and `load_state`.
    `decode(tokens)` rebuilds the raw example. Generation calls it with ids [n], where these are all that a token has,
    at positions 0, 1, 2, …, and the tokenizer has no `continues` of its own. `read(path)` gives the raw example of a
    file of a format of its own.
    examples: two raw examples or more, by which `seqkit check` knows what to encode.
    is_slow: whether an example takes so long that a small data set is kept encoded on disk, too.

    >>> class Letters(Tokenizer):
    ...     spec = TokenSpec(vocab_size=26)
    ...
    ...     def encode(self, raw, /):
    ...         ids = torch.tensor([ord(letter) - ord("a") for letter in raw])
    ...         return Tokens(ids, torch.arange(float(len(ids)))[:, None])
    >>> Letters().encode("cab").content
    tensor([2, 0, 1])
    """

    examples: ClassVar[Sequence[Any]] = ()
    is_slow: bool = False

    _was_fitted: bool = False

    def __init_subclass__(cls, **settings: Any) -> None:
        """Note on the object that its `fit` or `load_state` has run: neither a spec nor a state tells."""
        super().__init_subclass__(**settings)
        for name in ("fit", "load_state"):
            if callable(own := vars(cls).get(name)):
                setattr(cls, name, _noting(own))

    @property
    def was_fitted(self) -> bool:
        """True: `fit` has run, or `load_state` with a state."""
        return self._was_fitted

    def __repr__(self) -> str:
        """Its constructor with the arguments that are other than their defaults, from the attributes x or _x."""
        parameters = signature(type(self)).parameters.values()
        known = {name.removeprefix("_"): value for name, value in vars(self).items()}
        given = [(x.name, repr(known[x.name])) for x in parameters if x.name in known]
        defaults = {x.name: repr(x.default) for x in parameters}
        shown = (
            f"{name}={' '.join(value.split())}" for name, value in given if value != defaults[name]
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    @abstractmethod
    def spec(self) -> TokenSpec:
        """Shape of its tokens. Raises ValueError if the tokenizer must be fitted first."""

    @abstractmethod
    def encode(self, raw: Any, /) -> Tokens:
        """One raw example as tokens. Raises DataError with the reason where it cannot be one."""

    def cut(self, tokens: Tokens, n: int) -> Tokens:
        """At most n tokens of an example (`data.max_tokens`); here: the first.

        Raises DataError where the others cannot be left out (`Tokens.first`).
        """
        return tokens.first(n, is_set=self.spec.is_set)

    def continues(self, tokens: Tokens, content: Tensor) -> Tokens:
        """The tokens and one more of that content, an id or [k] ids, with the position that it has. For generation.

        Here: positions that count from 0 go on counting. Override it (`Tokens.append`) where positions are measured, or
        tokens have numbers beside their ids, or edges. Raises ValueError for such tokens.
        """
        n = len(tokens)
        positions = tokens.positions
        counts = positions.shape[1] < 2 and positions.equal(
            torch.arange(float(n))[:, None][:, : positions.shape[1]]
        )
        if not counts or tokens.features is not None or tokens.adjacency is not None:
            name = type(self).__name__
            raise ValueError(
                f"{name} gives positions other than 0, 1, 2, …, or edges; give it the method continues"
            )
        return tokens.append(content, positions[-1] + 1)


def _noting(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method; afterwards `was_fitted` is True, unless the state was empty."""

    @wraps(method)
    def noting(self: Tokenizer, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        given = next(iter((*args, *kwargs.values())), None)
        # an empty state is that of one that was not fitted
        if not isinstance(given, dict) or given:
            object.__setattr__(self, "_was_fitted", True)
        return result

    return noting


@dataclass(frozen=True, slots=True)
class ModelInput:
    """One batch as a `PredictionObjective` prepares it: model input, masked tokens, target.

    batch: input of the model. masked: [b n] bool, True: the learned mask token replaces the content; None: none.
    target: the tensor that the objective's `loss` takes.
    """

    batch: TokenBatch
    masked: Tensor | None
    target: Tensor


@dataclass(frozen=True, slots=True)
class LossOutput:
    """Loss as a sum and a count, so that accumulation and several devices give the weights of one big batch.

    loss: scalar, summed over predictions. count: number of predictions; of a loss that is no such sum, the number by
    which it weighs beside other batches (such as of examples), and `loss` is the mean times it.
    preds, target: the predictions that count, flattened, and their targets, for torchmetrics; None in training.
    probabilities: [m k] of the classes that `preds` [m] were chosen from, for metrics of these; None: none needs them.
    inputs: what the model got; None: more or other than one prepared batch. prediction: the head's, in evaluation.

    >>> outputs = [LossOutput(torch.tensor(6.0), torch.tensor(2)), LossOutput(torch.tensor(3.0), torch.tensor(1))]
    >>> sum(output.loss for output in outputs) / sum(output.count for output in outputs)
    tensor(3.)
    """

    loss: Tensor
    count: Tensor
    preds: Tensor | None = None
    target: Tensor | None = None
    probabilities: Tensor | None = None
    inputs: ModelInput | None = None
    prediction: Tensor | None = None


class Objective(Stateful, ABC):
    """Training objective: `step` gives the loss of a batch. Most are a `PredictionObjective`.

    The methods that are not abstract are optional: `metrics` and `baseline_step` for tables, `decode` for `predict`.
    separable: True: the loss is a sum over predictions, each of one example, so an example alone has the loss that it
    adds to any batch. False: examples of a batch depend on each other (a contrastive loss), so models are compared on
    whole batches.
    causal: the causality that it needs of the backbone; None: either. needs_labels: True: samples must have labels.
    uses_mask_token: True: it masks tokens, so the Embedder gets a mask token.
    supports_segments: True: it predicts per token and keeps packed sequences apart; False: they are refused.
    encodes_parts_alone: True: it calls the model with one part of joined tokens at a time, and `predict` gives vectors
    [b k dim] of k parts, NaN where one is absent.
    primary_metric: the name of the metric by which models are compared: "loss", or one of its metrics.
    An objective holds what was fitted on the labels and nothing of a model, so one may serve several: parameters of
    the loss, such as a temperature, belong to the head (`model.head`).
    target_spec: spec of the tokens that a decoder generates, where those are not the tokenizer's (the batch that it
    prepares has the tokenizer's batch as `source`); None: there is one sequence. Raises ValueError before `fit`.
    """

    separable: bool = False
    causal: bool | None = None
    needs_labels: bool = False
    uses_mask_token: bool = False
    supports_segments: bool = False
    encodes_parts_alone: bool = False
    primary_metric: str = "loss"

    @property
    def target_spec(self) -> TokenSpec | None:
        return None

    def encode_target(self, label: Any) -> Any:
        """A label as `prepare` gets it, before collation: an int, floats, int64 [n] per token, or int64 [a t]:
        a reference sequences, any of which is right.

        Raises DataError where it cannot be one.
        """
        return label

    def check_target(self, target: Any, num_tokens: int) -> None:
        """Raise DataError if an encoded target cannot be predicted from so many tokens."""

    def fit(self, labels: Sequence[Any], names: Sequence[str] | None) -> None:
        """Learn from the training labels, and the class names if the data has them; called before the head is built."""

    def check_trainable(self) -> None:
        """Raise UsageError if there is nothing to train (called before data is read)."""

    @abstractmethod
    def head(self, embedder: nn.Module) -> nn.Module:
        """Module from (hidden [b n d], `Embedded`) to the prediction; sizes come from `embedder.spec` and `.dim`."""

    @property
    def follows_time(self) -> bool:
        """True: examples follow each other in time and overlap, so the last are held out for validation."""
        return False

    @abstractmethod
    def step(self, model: nn.Module, batch: LabeledBatch, *, training: bool = False) -> LossOutput:
        """Loss of a model on a batch: the one place that prepares it and calls the model, once or more often.

        training: True: with what is for training alone, such as label smoothing, and without `preds`, whose selection
        would make an accelerator wait.
        Raises DataError for a batch that does not fit the objective.
        """

    def first_call(self, model: nn.Module, batch: LabeledBatch) -> tuple[TokenBatch, Tensor | None]:
        """The batch and the masked tokens with which a training step calls the model first; the model does not run."""

        class Called(Exception):
            pass

        calls: list[tuple[TokenBatch, Tensor | None]] = []

        def note(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = dict(zip(("batch", "masked"), args)) | kwargs
            calls.append((given["batch"], given.get("masked")))
            raise Called

        hook = model.register_forward_pre_hook(note, with_kwargs=True, prepend=True)
        try:
            self.step(model, batch, training=True)
        except Called:
            return calls[0]
        finally:
            hook.remove()
        raise ValueError(
            f"a step of {type(self).__name__} does not call the model; Objective.step gets it"
        )

    def baseline_step(
        self, batches: Iterable[LabeledBatch], spec: TokenSpec
    ) -> Callable[[LabeledBatch], LossOutput] | None:
        """The step of the best constant prediction, fitted on training batches; None: none is known.

        spec: shape of the tokens that the model embeds (`Model.spec`).
        """
        return None

    def metrics(self, spec: TokenSpec) -> dict[str, Any]:
        """torchmetrics over (preds, target), by name; the loss is always reported. spec: as in `baseline_step`."""
        return {}

    def generation_metrics(self) -> dict[str, Any]:
        """torchmetrics over (generated ids, labels), by name; empty where nothing is generated."""
        return {}

    def references(self, batch: LabeledBatch) -> Tensor | None:
        """Targets of `generation_metrics`: by default the labels."""
        return batch[1]

    def read_from(self, tokenizer: Tokenizer) -> None:
        """Take from the fitted tokenizer what `decode` needs; called when data or a run is loaded."""

    def fit_inputs(self, examples: Iterable[tuple[Tokens, Any]]) -> None:
        """Learn from encoded training examples with labels, after `fit` and `read_from`."""

    def shortcut(self) -> Shortcut | None:
        """Path from the batch past the network; None: the head's outputs are the predictions."""
        return None

    def predict(self, model: nn.Module, batch: TokenBatch) -> Tensor:
        """Input of `decode`: the model's prediction, or the ids that it generates where the objective generates."""
        return model(batch)

    @property
    def classes(self) -> list[str]:
        """Names of the classes that `probabilities` are of; empty where it predicts none."""
        return []

    def probabilities(self, prediction: Tensor) -> Tensor:
        """Probabilities of the classes, [b k], or [b n k] for each token. Raises ValueError without classes."""
        raise ValueError(f"{type(self).__name__} predicts no classes")

    def decode(self, prediction: Tensor) -> list[Any]:
        """A prediction in the user's terms, one entry per example (class names, numbers in the target's unit).

        Raises ValueError where the objective has none.
        """
        raise ValueError(
            f"{type(self).__name__} predicts nothing for a raw example: it has no method decode"
        )


class Shortcut(nn.Module):
    """Path from a batch past the network: `forward(outputs, batch)` makes predictions of the head's outputs."""

    def differences(self, batch: TokenBatch) -> TokenBatch:
        """The batch that the network embeds: by default as it is."""
        return batch


class PredictionObjective(Objective):
    """Objective of predictions, one for each example or token, from one pass of the model."""

    separable = True

    @abstractmethod
    def prepare(self, batch: TokenBatch, label: Tensor | None) -> ModelInput:
        """Model input, masked tokens and target of a batch."""

    @abstractmethod
    def loss(self, prediction: Tensor, target: Tensor, *, training: bool = False) -> LossOutput:
        """Loss of a prediction; training: as in `step`."""

    def baseline(
        self, targets: Sequence[Tensor], spec: TokenSpec
    ) -> Callable[[Tensor], Tensor] | None:
        """The best constant prediction, fitted on training targets; a function from a target to its prediction.

        None: none is known. spec: as in `baseline_step`.
        """
        return None

    def step(self, model: nn.Module, batch: LabeledBatch, *, training: bool = False) -> LossOutput:
        """Loss of the model's prediction."""
        return self._output(*self.predicted(model, batch), training=training)

    def predicted(self, model: nn.Module, batch: LabeledBatch) -> tuple[ModelInput, Tensor]:
        """Inputs of a batch, and the model's prediction of them: what `loss` compares with their target."""
        inputs = self.prepare(*batch)
        return inputs, model(inputs.batch, inputs.masked)

    def baseline_step(
        self, batches: Iterable[LabeledBatch], spec: TokenSpec
    ) -> Callable[[LabeledBatch], LossOutput] | None:
        """Loss of the best constant prediction."""
        constant = self.baseline([self.prepare(*batch).target for batch in batches], spec)
        if constant is None:
            return None

        def step(batch: LabeledBatch) -> LossOutput:
            inputs = self.prepare(*batch)
            return self._output(inputs, constant(inputs.target), training=False)

        return step

    def _output(self, inputs: ModelInput, prediction: Tensor, *, training: bool) -> LossOutput:
        output = self.loss(prediction, inputs.target, training=training)
        return replace(output, inputs=inputs, prediction=None if training else prediction)


# ── the backbone: weights, no modality ───────────────────────────────────────────────────────────────────────────────


class Cache(ABC):
    """State of a causal backbone between decoding steps: keys and values, or a hidden state.

    owner: class of the backbone that made it, where another one could take it for its own; None: not known.
    """

    owner: type | None = None
    num_tokens: int
    """Columns so far, padding included (so not a count of real tokens)."""

    @abstractmethod
    def reorder(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order (beam search takes some twice and drops others)."""


class Backbone(nn.Module, ABC):
    """Contextual hidden states [b n d] from embeddings [b n d].

    A backbone declares what it supports. The model and the data module refuse the rest when they are built, and
    `forward` raises ValueError for an adjacency or segments that it would ignore.
    dim: width d. num_heads: attention heads, 0: it has none.
    causal: True: token i attends to tokens <= i only. False: to all. None: as each batch says (`Embedded.causal`,
    `Embedded.reach`), so that one set of weights may both predict the next token and classify. takes_causality: True:
    it may be built so.
    supports_adjacency: False: `forward` refuses an adjacency. joins_graphs: True: an adjacency masks pairs of
    one graph alone (`Embedded.graphs`), so graphs may be joined with other parts. supports_segments: False: it refuses
    segments, which keep packed sequences apart.
    uses_positions: True: it uses `positions` itself (rotary attention). is_recurrent: True: it runs over the columns in
    order (an RNN, a convolution over time), so it knows their order but not `positions`: those of several axes are
    added to the embeddings, those of one axis only by an encoding that the model is given. knows_columns: True: it uses
    which column a token is in (a window of columns, a projection of them), so a set is refused; what is recurrent does
    so anyway. ignores_order: True: it is meant to know no order (a bag of tokens), so no positions are added unless the
    model is given some.
    is_encoder_decoder: True: it generates one sequence from another (`Embedded.source`) and cannot do without.
    needs_unit_inputs: True: it takes its inputs as they are, so embeddings begin with about unit variance. False: small
    ones serve as well, mostly as it normalises them; tables then begin with the spread of the positions.

    >>> class Twice(Backbone):
    ...     dim = 8
    ...
    ...     def forward(self, embedded, cache=None):
    ...         if embedded.adjacency is not None or embedded.segments is not None:
    ...             raise ValueError("Twice does not support adjacency or segments")
    ...         return 2 * embedded.hidden
    >>> Twice()(Embedded(torch.ones(2, 3, 8), torch.zeros(2, 3, 1), torch.ones(2, 3, dtype=torch.bool))).shape
    torch.Size([2, 3, 8])
    """

    dim: int
    causal: bool | None = None
    num_heads: int = 0
    takes_causality: bool = False
    supports_adjacency: bool = False
    joins_graphs: bool = False
    supports_segments: bool = False
    uses_positions: bool = False
    is_recurrent: bool = False
    knows_columns: bool = False
    ignores_order: bool = False
    is_encoder_decoder: bool = False
    needs_unit_inputs: bool = True

    def part(self, name: str) -> Backbone:
        """Backbone of a part of joined tokens: this one, unless each part has one of its own."""
        return self

    def get_encoder(self) -> Backbone | None:
        """The encoder, which gets `Embedded.source`; None: there is none, and the decoder attends to the embeddings."""
        return None

    @abstractmethod
    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded.

        With a cache, `embedded` continues the columns that the cache has, and needs `source` only the first time.
        Raises ValueError for an adjacency or segments that it does not support.
        """

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache for `max_tokens` columns. Raises ValueError if the backbone is not causal."""
        raise ValueError(f"{type(self).__name__} has no cache; generate with use_cache=False")

    def check_supported(self, spec: TokenSpec) -> None:
        """Raise ValueError if this backbone does not support tokens of that spec (called once, by the model)."""

    def add_edge_bias(self, num_edge_types: int) -> None:
        """Learn what each edge type adds to attention scores, or to messages along it (called by the model)."""
