"""Laws of any module that maps vectors [b n d] and a mask [b n] to vectors [b n d]: those of backbones, and others of
padding, states and packed rows.

b batch · n tokens · d width
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor, nn

from seqkit.errors import described
from seqkit.interfaces import Backbone, Cache, Embedded, TokenBatch
from seqkit.testing.called import (
    Call,
    Called,
    Init,
    Reorder,
    Segments,
    Step,
    calls_of,
    copied,
    default_call,
    gradients,
    projected,
)
from seqkit.testing.checks import Checked, Checks, Options, takes_device
from seqkit.testing.embedded_backbone import EmbeddedBackbone, Examples, InFloat64, leave_zero
from seqkit.testing.in_training import training_mixes_no_rows, training_sees_no_future
from seqkit.testing.laws import Law, batch_mates_change_nothing, padding_changes_nothing
from seqkit.testing.laws import gradients_reach_every_parameter as gradients_reach_all
from seqkit.testing.long_laws import (
    any_batch_gives_the_same,
    long_texts,
    no_column_attends_to_the_future,
)
from seqkit.testing.module_laws import (
    gives_hidden_states_of_its_width,
    gradients_are_right,
    is_deterministic,
    leaves_input_and_process_alone,
    training_mates_change_nothing,
)
from seqkit.testing.padding import (
    columns_read_the_past_alike,
    gradients_add_up_under_padding,
    leaves_its_input_alone,
    left_padding_changes_nothing,
    padding_may_hold_nan,
    rounds_no_more_than_float32,
    takes_examples_of_one_token,
    what_padding_holds_changes_nothing,
)
from seqkit.testing.process import seeded
from seqkit.testing.states import OF_SEGMENTS, OF_STATES, parts_equal_at_once_far_along
from seqkit.testing.tolerance import TOLERANCE_32, assert_same, is_same

SHORT = (7, 5, 8)
LONG = (131, 66, 1)
"""Lengths across two borders of chunks of 64, and of one token."""
PROMPTS = (11, 8, 9)


class Doors(TypedDict, total=False):
    """How a module is called beside `call`.

    step: `(module, x [b n d], valid [b n], state) -> (y [b n d], state)`: the columns after those that `state` has
    seen; `state` begins as None, or as `init(module, batch_size)`. reorder: `(state, rows) -> state`: the state of
    those rows of the batch, as beams choose them. segments: `(module, x [1 n d], segment [1 n]) -> [1 n d]`: a row of
    several examples, each with a whole number of its own.
    """

    step: Step
    init: Init
    reorder: Reorder
    segments: Segments


class DoorsAndOptions(Doors, Options, total=False):
    """`Doors` and `Options`."""


class AsBackbone(Backbone):
    """A copy of a module as a backbone, which gets numbers in padding, too."""

    knows_columns = uses_positions = True

    def __init__(self, module: nn.Module, call: Call, dim: int, *, causal: bool):
        super().__init__()
        self.module = copied(module)
        self.call = call
        self.repeats = 1
        self.dim = dim
        self.causal = causal

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        padding = ~embedded.valid[..., None]
        other = 0.1 * torch.arange(1.0, 1.0 + padding[..., 0].numel()).reshape(padding.shape)
        called = Called(self.module, self.call, bool(self.causal), self.dim, repeats=self.repeats)
        given = torch.where(padding, other.to(embedded.hidden), embedded.hidden)
        hidden = called(given, embedded.valid)
        if isinstance(hidden, Tensor):
            return hidden.masked_fill(padding, 0.0)
        return hidden

    def __deepcopy__(self, memo: dict[int, Any]) -> AsBackbone:
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        copied(self.module, memo)
        new.__dict__ = copy.deepcopy(self.__dict__, memo)
        return new


@takes_device
def check_module(
    module: nn.Module,
    *,
    dim: int | None = None,
    causal: bool = False,
    call: Call | None = None,
    **settings: Unpack[DoorsAndOptions],
) -> Checked:
    """Checks laws of a module that maps vectors [b n d] and a mask [b n] to vectors [b n d]; returns those laws.

    dim: the width d; None: `module.dim`. causal: True: no token depends on a later one. call: calls the module with
    vectors and the mask, True for tokens that are no padding, where it is not `module(x, valid)`; torch's recurrent
    modules need none. step, init, reorder, segments: `Doors`. All others: `Options`. The module itself stays as it is:
    copies are checked. What the module refuses with ValueError or NotImplementedError is left out with that reason.
    Raises BrokenLawsError with the class, the laws and the faults; ValueError without a dim, for a device that is not
    here, or for an ignored law that there is not.

    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, dropout=0.0, batch_first=True)
    >>> checked = check_module(layer, dim=8, call=lambda layer, x, valid: layer(x, src_key_padding_mask=~valid))
    >>> len(checked)
    19
    """
    width = dim if dim is not None else getattr(module, "dim", None)
    if not isinstance(width, int):
        raise ValueError(
            f"{type(module).__name__} says no width; give dim=, the d of its vectors [b n d]"
        )
    doors: Doors = {name: settings.pop(name) for name in Doors.__annotations__ if name in settings}  # type: ignore[assignment, misc]
    checks = Checks(**settings)  # type: ignore[misc]
    checks.prefix = "backbone.module."
    name = type(module).__name__
    backbone = AsBackbone(module, call or default_call(module), width, causal=causal)
    backbone.to(torch.zeros(()).device)
    before = list(backbone.module.state_dict())
    leave_zero(backbone)
    with seeded(0):
        spec, examples = long_texts(SHORT)
        model = EmbeddedBackbone(spec, backbone, causal=causal)
    called = Called(backbone.module, backbone.call, causal, width, **doors)
    checks.left_out |= _adapted(called, model, backbone)
    leave_out_what_is_not_returned(called)
    again = InFloat64 if called.dtype == torch.float64 else None
    vectors = called.vectors(*SHORT)
    checks.check(brings_no_weight_late, name, called, before)
    checks.check(leaves_its_input_alone, name, called, vectors)
    for own in (*LAWS, no_column_attends_to_the_future) if causal else LAWS:
        checks.check(own, name, model, examples, again=again)
    for law in OF_PADDING:
        checks.check(law, name, called, vectors, again=again)
    if causal:
        checks.check(training_sees_no_future, name, called, vectors, again=again)
    checks.check(rounds_no_more_than_float32, name, called, vectors)
    if called.segments is not None:
        for law in OF_SEGMENTS:
            checks.check(law, name, called, vectors, again=again)
    if called.step is not None:
        for law in OF_STATES:
            checks.check(law, name, called, called.vectors(*PROMPTS), again=again)
    with torch.no_grad():
        _check_long_examples(checks, name, called, model)
    return checks.finish(name)


def _adapted(called: Called, model: EmbeddedBackbone, backbone: AsBackbone) -> dict[str, str]:
    """Sets the dtype and the smallest batch with which a module runs; what it does not run with, and the reason."""
    left_out = {}
    in_float64 = _error(called, 2)
    if in_float64:
        called.dtype = model.dtype = torch.float32
        model.float()
        if _error(called, 2):
            called.dtype = model.dtype = torch.float64
            model.double()
        else:
            left_out["float64"] = (
                f"{in_float64}; laws are checked in float32, within {TOLERANCE_32}"
            )
    if (alone := _error(called, 1)) and not _error(called, 2):
        called.repeats = 2
        backbone.repeats = 2
        left_out["batch_of_one"] = f"{alone}; an example alone is two copies of it"
    return left_out


def _error(called: Called, batch_size: int) -> str:
    """How a module fails on a batch in its dtype; empty if it does not."""
    x = torch.stack(called.vectors(*[5] * batch_size))
    try:
        with torch.no_grad():
            hidden = called(x)
    except Exception as error:  # the user's own code: whatever it raises
        return f"it raises {described(error)}"
    if isinstance(hidden, Tensor) and hidden.dtype != called.dtype:
        return f"it gives {hidden.dtype} for {called.dtype}"
    return ""


def leave_out_what_is_not_returned(called: Called) -> None:
    """Freeze tables of ids and modules whose output is not returned, as that of a pooler: this call has no use for
    them. A layer that is never called stays."""
    (x,) = called.vectors(5)
    try:
        ran = {name for name, _, _ in calls_of(called, 5)}
        right = called(x[None])
        _, found = gradients(called, projected(right[0], torch.ones(5, dtype=torch.bool)), [])
    except Exception:  # the user's own code: a law says what it raises
        return
    for path, module in called.module.named_modules():
        if not (path in ran or isinstance(module, nn.Embedding)):
            continue
        for name, parameter in module.named_parameters(path, recurse=False):
            if name in found and not bool(found[name].any()):
                before = parameter.detach().clone()
                with torch.no_grad():
                    parameter.add_(1.0)
                    is_unused = torch.equal(called(x[None]), right)
                    parameter.copy_(before)
                parameter.requires_grad_(not is_unused)


def gives_finite_vectors_at_any_length(called: Called, examples: Sequence[Tensor]) -> None:
    """Long examples, and one of one token, give finite vectors."""
    for x in examples:
        if not bool(torch.isfinite(called(x[None])).all()):
            raise AssertionError(f"an example of {len(x)} tokens gives NaN or infinity")


def _check_long_examples(
    checks: Checks, name: str, called: Called, model: EmbeddedBackbone
) -> None:
    """Laws over several chunks, and over one token; a length that the module refuses is left out."""
    ran = {}
    for x in called.vectors(*LONG):
        try:
            ran[x] = bool(torch.isfinite(called(x[None])).all())
        except Exception as error:  # the user's own code: a table that is too short, often
            if len(x) > 1 or isinstance(error, ValueError | NotImplementedError):
                checks.left_out[f"examples_of_{len(x)}_tokens"] = f"it raises {described(error)}"
    again = InFloat64 if called.dtype == torch.float64 else None
    checks.check(gives_finite_vectors_at_any_length, name, called, list(ran))
    checks.check(takes_examples_of_one_token, name, called, called.vectors(1, 1, 1), again=again)
    vectors = [x for x, is_finite in ran.items() if is_finite]
    lengths = [len(x) for x in vectors]
    if not lengths:
        return
    if called.step is not None:
        checks.check(parts_equal_at_once_far_along, name, called, vectors[:1], again=again)
    laws: list[Law] = [batch_mates_change_nothing, padding_changes_nothing]
    if called.causal:
        checks.check(columns_read_the_past_alike, name, called, vectors)
        laws.insert(0, no_column_attends_to_the_future)
    for law in laws:
        checks.check(law, name, model, long_texts(lengths)[1], again=again)
    checks.check(left_padding_changes_nothing, name, called, vectors, again=again)
    with torch.enable_grad():
        checks.check(gradients_are_right, name, model, long_texts(lengths[:1])[1], again=again)


def brings_no_weight_late(called: Called, before: Sequence[str]) -> None:
    """No weight or saved buffer comes or goes in a call. before: their names before the first one."""
    for name in sorted(called.module.state_dict().keys() ^ before):
        raise AssertionError(
            f"{name} comes or goes in a call, where no optimizer knows it; build it first"
        )


def gradients_reach_every_parameter(model: EmbeddedBackbone, examples: Examples) -> None:
    """Like that of a backbone; a parameter that changes nothing is said to be unused."""
    try:
        gradients_reach_all(model, examples)
    except AssertionError:
        batch = TokenBatch.collate(examples)
        hidden = model(batch)
        for name, parameter in model.backbone.named_parameters("backbone"):
            if parameter.requires_grad and not _matters(model, batch, hidden, parameter, set()):
                raise AssertionError(
                    f"{name} is never used: remove it, or ignore gradients_reach_every_parameter"
                ) from None
        raise


def saves_all_weights(model: EmbeddedBackbone, examples: Examples) -> None:
    """Weights that are saved and loaded give the same vectors, and no weight is hidden from `state_dict`."""
    batch = TokenBatch.collate(examples)
    expected = model(batch)
    saved = {
        x.untyped_storage().data_ptr()
        for x in (*model.parameters(), *model.buffers())
        if isinstance(x, Tensor)
    }
    for path, module in model.backbone.named_modules():
        for name, value in vars(module).items():
            inside = [value]
            if isinstance(value, dict) and not name.startswith("_"):
                inside = list(value.values())
            elif isinstance(value, list | tuple):
                inside = list(value)
            for one in inside:
                if _matters(model, batch, expected, one, saved):
                    where = f"{path}.{name}".removeprefix("module.")
                    raise AssertionError(
                        f"weights in {where} are outside of state_dict; register them"
                    )
    loaded = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in loaded.parameters():
            parameter.add_(1)
    loaded.load_state_dict(model.state_dict())
    assert_same(loaded(batch), expected, "a copy that loaded its state_dict gives other vectors")
    if (built := _built_anew(model, batch)) is not None:
        fault = "two of its class that loaded its state_dict differ: something drawn is not saved; register it"
        assert_same(*built, fault)
    trained = copy.deepcopy(model).train()
    kept = set(trained.state_dict())
    before = {name: x.clone() for name, x in trained.named_buffers() if name not in kept}
    trained(batch)
    for name, buffer in trained.named_buffers():
        if name in before and buffer.shape == before[name].shape:
            fault = f"buffer {name.removeprefix('backbone.module.')} changes in training and is not in state_dict"
            assert_same(buffer, before[name], fault)


def _built_anew(model: EmbeddedBackbone, batch: TokenBatch) -> tuple[Tensor, Tensor] | None:
    """Vectors of two new ones of the class, from two seeds, that loaded the state. None: it takes arguments, or has
    other sizes without them: on `meta`, that takes no memory."""
    module = model.backbone.get_submodule("module")
    saved = module.state_dict()
    hidden = []
    try:
        with torch.device("meta"):
            sizes = {name: x.shape for name, x in type(module)().state_dict().items()}
        if sizes != {name: x.shape for name, x in saved.items()}:
            return None
        for seed in (3, 4):
            with seeded(seed):
                new = type(module)().to(next(model.parameters())).eval()
            new.load_state_dict(saved)
            other = copy.deepcopy(model)
            other.backbone.module = new
            hidden.append(other(batch))
    except Exception:  # the user's own code: it takes other arguments
        return None
    return hidden[0], hidden[1]


def _matters(
    model: EmbeddedBackbone, batch: TokenBatch, expected: Tensor, value: Any, saved: set[int]
) -> bool:
    """Whether a tensor or module that is not registered decides the output; one that shares the storage of a
    registered one, as a flat copy does, is that one."""
    if isinstance(value, nn.Module):
        return any(_matters(model, batch, expected, x, saved) for x in value.parameters())
    if not isinstance(value, Tensor) or not value.numel():
        return False
    if value.untyped_storage().data_ptr() in saved or not value.is_floating_point():
        return False
    before = value.detach().clone()
    with torch.no_grad():
        value.detach().mul_(1.5).add_(0.1)
        got = model(batch)
        value.detach().copy_(before)
    return not is_same(got, expected)


LAWS: tuple[Law, ...] = (
    gives_hidden_states_of_its_width,
    is_deterministic,
    leaves_input_and_process_alone,
    padding_changes_nothing,
    batch_mates_change_nothing,
    any_batch_gives_the_same,
    training_mates_change_nothing,
    gradients_reach_every_parameter,
    gradients_are_right,
    saves_all_weights,
)
"""Laws of any module; one that is causal keeps another."""

OF_PADDING = (
    what_padding_holds_changes_nothing,
    left_padding_changes_nothing,
    padding_may_hold_nan,
    gradients_add_up_under_padding,
    training_mixes_no_rows,
)
"""Laws of any module, over vectors."""
