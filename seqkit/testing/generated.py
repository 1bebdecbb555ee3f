"""Laws of `generate` of models of transformers: padding, cache, parts and beams change nothing.

b batch · n tokens
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor

from seqkit.testing.checks import Checked, Checks, NotCheckedError, Options
from seqkit.testing.embedded_backbone import InFloat64
from seqkit.testing.process import fixed_generator
from seqkit.testing.tolerance import assert_same

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def check_generate(model: PreTrainedModel, **options: Unpack[Options]) -> Checked:
    """Checks that padding, cache, parts and beams change nothing of what `generate` of a causal model gives.

    model: one of transformers, with its head; a copy is checked, in float64. What `generate` refuses is left out with
    its words. quick, only, ignore, expected_failures: as in `check_backbone`.
    Raises BrokenLawsError with the class, each law and its fault.
    """
    checks = Checks(**options)
    name = type(model).__name__
    model = copy.deepcopy(model).double()
    vocabulary = model.config.vocab_size
    ids = torch.randint(min(3, vocabulary - 1), vocabulary, (2, 31), generator=fixed_generator())
    for law in GENERATE_LAWS:
        checks.check(law, name, model, ids, again=InFloat64)
    return checks.finish(name)


def generate(model: PreTrainedModel, ids: Tensor, valid: Tensor, **settings: Any) -> Any:
    """Output of greedy `generate` for ids [b n] and their mask [b n]: five tokens with their logits.

    Raises NotCheckedError if it refuses the settings.
    """
    greedy = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}
    outputs = {"output_logits": True, "output_scores": True, "return_dict_in_generate": True}
    try:
        return model.generate(ids, attention_mask=valid, **(greedy | outputs | settings))  # type: ignore[operator]
    except (ValueError, NotImplementedError) as error:
        if not settings:
            raise
        raise NotCheckedError(f"generate refuses it: {error}") from error


def generate_takes_left_padding(model: PreTrainedModel, ids: Tensor) -> None:
    """A left-padded prompt beside a longer one is continued as it is alone."""
    valid = torch.ones_like(ids)
    valid[0, :9] = 0
    alone = generate(model, ids[:1, 9:], valid[:1, 9:]).logits
    beside = generate(model, ids, valid).logits
    fault = "generate gives other logits for a left-padded prompt beside a longer one than alone"
    assert_same(torch.stack(beside)[:, :1], torch.stack(alone), fault)


def generate_cached_as_uncached(model: PreTrainedModel, ids: Tensor) -> None:
    """A cache changes no logit."""
    _assert_alike(model, ids, use_cache=False)


def generate_in_parts_as_at_once(model: PreTrainedModel, ids: Tensor) -> None:
    """A prompt that is read in parts of `prefill_chunk_size` is continued as at once."""
    _assert_alike(model, ids, prefill_chunk_size=8)


def _assert_alike(model: PreTrainedModel, ids: Tensor, **settings: Any) -> None:
    valid = torch.ones_like(ids)
    got = torch.stack(generate(model, ids, valid, **settings).logits)
    expected = torch.stack(generate(model, ids, valid).logits)
    assert_same(got, expected, f"generate with {settings} gives other logits")


def generate_beams_as_uncached(model: PreTrainedModel, ids: Tensor) -> None:
    """Beams, whose states change places, have the scores that they have without a cache."""
    valid = torch.ones_like(ids)
    cached = generate(model, ids, valid, num_beams=3).sequences_scores
    expected = generate(model, ids, valid, num_beams=3, use_cache=False).sequences_scores
    assert_same(cached, expected, "beams have other scores with a cache than without")


GENERATE_LAWS = (
    generate_takes_left_padding,
    generate_cached_as_uncached,
    generate_in_parts_as_at_once,
    generate_beams_as_uncached,
)
"""Laws of `generate`."""
