"""One check for every component, and its laws as tests of pytest."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from seqkit.interfaces import Backbone, Objective, Tokenizer
from seqkit.nn.attention.mechanism import AttentionMechanism
from seqkit.nn.mixers.base import Mixer
from seqkit.nn.position.base import PositionalEncoding, RelativePosition
from seqkit.testing.backbones import check_backbone
from seqkit.testing.checks import Checked
from seqkit.testing.inside import (
    check_mechanism,
    check_mixer,
    check_position,
    check_relative_position,
)
from seqkit.testing.modules import check_module
from seqkit.testing.objectives import check_objective
from seqkit.testing.tokenizers import check_tokenizer


def check(subject: Any, **settings: Any) -> Checked:
    """Checks every law that applies; returns the laws that were checked.

    subject: a tokenizer; an objective; a backbone, or its class; the class of a mixer, an attention mechanism
    or a position; or any module that maps vectors [b n d] and a mask [b n] to vectors [b n d].
    settings: those of `check_tokenizer` (its `raws` may be left out if the class has `examples`), `check_objective`,
    `check_backbone`, `check_mixer`, `check_mechanism`, `check_position`, `check_relative_position` or `check_module`.
    Raises BrokenLawsError with the class and every broken law; TypeError for anything else.

    >>> import torch
    >>> class Smooth(torch.nn.Module):
    ...     def forward(self, x, valid):
    ...         return (x * valid[..., None]).cumsum(dim=1)
    >>> check(Smooth(), dim=8, causal=True)
    22 laws are kept: ...
    """
    if isinstance(subject, Tokenizer):
        return check_tokenizer(
            subject, settings.pop("raws", None) or list(subject.examples), **settings
        )
    if isinstance(subject, Objective):
        return check_objective(subject, **settings)
    if isinstance(subject, Backbone):
        given = {"dim": subject.dim, "causal": [subject.causal], **settings}
        return check_backbone(lambda *_, **__: copy.deepcopy(subject), **given)
    if isinstance(subject, nn.Module):
        return check_module(subject, **settings)
    for base, check_class in (
        (Mixer, check_mixer),
        (AttentionMechanism, check_mechanism),
        (PositionalEncoding, check_position),
        (RelativePosition, check_relative_position),
    ):
        if isinstance(subject, type) and issubclass(subject, base):
            return check_class(subject, **settings)  # type: ignore[operator, arg-type]
    if isinstance(subject, type) and issubclass(subject, Backbone):
        if "causal" in inspect.signature(subject).parameters:
            return check_backbone(subject, **settings)
        given = {"causal": [bool(subject(settings.get("dim", 24)).causal)], **settings}  # type: ignore[call-arg]
        return check_backbone(lambda dim, **_: subject(dim), **given)  # type: ignore[call-arg]
    raise TypeError(
        f"{subject!r} is no tokenizer, objective, backbone, mixer, mechanism, position or module of torch; give one"
    )


def laws(
    *, expected_failures: Mapping[str, str] | None = None, **settings: Any
) -> Callable[[type], type]:
    """Decorates a pytest class, in which each law becomes a test, as scikit-learn's `parametrize_with_checks` does.

    The class has a method `subject`, which makes what `check` takes. expected_failures: name of each law that is known
    to be broken, and the reason: its test is an expected failure, and fails if the law is kept. settings: of `check`.
    Raises ValueError for an expected failure of a law that there is not.

    >>> from seqkit.tokenizers import Bytes
    >>> @laws(raws=["to be", "or not"], expected_failures={"can_be_batched": "of one length alone"})
    ... class TestBytes:
    ...     def subject(self):
    ...         return Bytes()
    >>> TestBytes.test_law.pytestmark[0].args[0]
    'law'
    """
    import pytest

    expected = dict(expected_failures or {})

    def decorate(cls: type) -> type:
        names = list(check(cls().subject(), only=(), **settings).left_out)
        if unknown := [name for name in expected if name not in names]:
            raise ValueError(
                f"{cls.__name__} expects {unknown[0]} to fail, which is no law here; laws are {names}"
            )
        marks = {
            x: pytest.mark.xfail(reason=why, strict=True, raises=AssertionError)
            for x, why in expected.items()
        }

        def test_law(self: Any, law: str) -> None:
            checked = check(self.subject(), only=[law], **settings)
            if not checked:
                pytest.skip(checked.left_out[law])

        given = [pytest.param(name, marks=marks.get(name, ())) for name in names]
        cls.test_law = pytest.mark.parametrize("law", given)(test_law)  # type: ignore[attr-defined]
        return cls

    return decorate
