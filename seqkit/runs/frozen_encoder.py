"""Vectors of a trained model, which is not trained any further, as tokens.

n tokens · d width of the trained model · p axes
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

import torch

from seqkit.errors import DataError, UsageError
from seqkit.interfaces import FittedState, TokenBatch, Tokenizer, Tokens, TokenSpec
from seqkit.nn.pooling import pooled
from seqkit.runs.answers import hidden_states
from seqkit.runs.mixture import load
from seqkit.runs.trained_model import TrainedModel

Pooling = Literal["mean", "max", "first", "last"]


class FrozenEncoder(Tokenizer):
    """Hidden states of a trained model, a token for each of its own: BERT's words, ViT's patches, an own run's tokens.

    model: folder of a run, of a model of transformers, or `hf:OWNER/NAME` of the hub; of an encoder–decoder the
    encoder is used. It gets the raw examples that it was trained on.
    pool: how the hidden states of an example become one token, as in `predict --embed`; None: each stays a token.
    The model is no part of the run that uses it: a run needs it again to read raw examples, and refuses another one by
    the SHA-256 of its weights. Each example goes through it once a run: the data keeps the vectors, on disk where that
    takes long (`SEQKIT_CACHE`).
    When: few labelled examples, or a part of joined tokens that a published model knows better.
    Raises DataError, once it is used, if the model cannot be read, or has joined tokens; as the model's tokenizer.
    """

    is_slow = True

    def __init__(self, model: str, *, pool: Pooling | None = None) -> None:
        self.model = model
        self.pool = pool
        self._sha256: str | None = None
        self._trained: TrainedModel | None = None

    def __repr__(self) -> str:
        return f"FrozenEncoder({self.model!r}, pool={self.pool!r})"

    def __getstate__(self) -> dict[str, Any]:
        """The digest in place of the weights: a copy reads them again."""
        with suppress(DataError):  # whoever uses the copy gets it
            self._ready()
        return {**vars(self), "_trained": None}

    @property
    def spec(self) -> TokenSpec:
        """Vectors [d]; axes and edges of the model's own tokens, of texts the first axis alone. Pooled: one axis."""
        model = self._ready().model
        own = self._ready().tokenizer.spec
        width = model.backbone.dim
        if self.pool is not None:
            return TokenSpec(num_features=width)
        axes = min(own.num_axes, 1) if own.is_categorical else own.num_axes
        return TokenSpec(num_features=width, num_axes=axes, num_edge_types=own.num_edge_types)

    def state(self) -> FittedState:
        """SHA-256 of the model's weights. Raises DataError if it cannot be read."""
        self._ready()
        return {"sha256": self._sha256}

    def load_state(self, state: FittedState) -> None:
        """Restore the digest: from then on no other model is used. Raises ValueError for anything else."""
        if not state:
            return
        if set(state) != {"sha256"} or not isinstance(state["sha256"], str):
            raise ValueError(
                f"state holds {sorted(state)}; the state of FrozenEncoder is the key sha256"
            )
        self._sha256 = state["sha256"]
        self._trained = None

    def encode(self, raw: Any, /) -> Tokens:
        """A raw example of the model as its hidden states [n d], at the positions [n p] of its own tokens."""
        trained = self._ready()
        tokens = trained.encode(raw)
        batch = TokenBatch.collate([tokens])
        with torch.inference_mode():
            hidden = hidden_states(trained.model, batch)
            if self.pool is not None:
                return Tokens(pooled(hidden, batch.valid, self.pool).clone(), torch.zeros(1, 1))
        positions = tokens.positions[:, : self.spec.num_axes]
        return Tokens(hidden[0].clone(), positions, adjacency=tokens.adjacency)

    def _ready(self) -> TrainedModel:
        if self._trained is None:
            try:
                with torch.random.fork_rng(devices=[]):  # building a model draws weights
                    trained = load(self.model)
            except UsageError as error:
                raise DataError(f"FrozenEncoder: {error}") from error
            if not isinstance(trained, TrainedModel) or trained.model.spec.is_joined:
                raise DataError(
                    f"FrozenEncoder: {self.model} has several parts or tasks; give a model of one"
                )
            digest = trained.summary.sha256
            if self._sha256 not in (None, digest):
                raise DataError(
                    f"FrozenEncoder: {self.model} holds other weights than the model that this run was trained with "
                    f"(SHA-256 {digest[:8]}… in place of {str(self._sha256)[:8]}…); put that one there"
                )
            self._trained = trained
            self._sha256 = digest
        return self._trained
