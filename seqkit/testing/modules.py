"""Laws of any module that maps vectors [b n d] and a mask [b n] to vectors [b n d]: those of backbones.

b batch · n tokens · d width
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from seqkit.interfaces import Backbone, Cache, Embedded, TokenBatch
from seqkit.testing.checks import Checked, Checks, Options, takes_device
from seqkit.testing.laws import (
    EmbeddedBackbone,
    Examples,
    InFloat64,
    Law,
    assert_same,
    batch_mates_change_nothing,
    gradients_reach_every_parameter,
    leave_zero,
    padding_changes_nothing,
)
from seqkit.testing.long_laws import long_texts, no_column_attends_to_the_future
from seqkit.testing.module_laws import (
    gives_hidden_states_of_its_width,
    gradients_are_right,
    is_deterministic,
    leaves_input_and_process_alone,
    training_mates_change_nothing,
)
from seqkit.testing.process import seeded

Call = Callable[[nn.Module, Tensor, Tensor], Tensor]


class AsBackbone(Backbone):
    """A copy of a module as a backbone, which gets numbers in padding, too."""

    knows_columns = uses_positions = True

    def __init__(self, module: nn.Module, call: Call, dim: int, *, causal: bool):
        super().__init__()
        self.module = copy.deepcopy(module)
        self.call = call
        self.dim = dim
        self.causal = causal

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        padding = ~embedded.valid[..., None]
        other = 0.1 * torch.arange(1.0, 1.0 + padding[..., 0].numel()).reshape(padding.shape)
        hidden = self.call(
            self.module,
            torch.where(padding, other.to(embedded.hidden), embedded.hidden),
            embedded.valid,
        )
        if isinstance(hidden, Tensor):
            return hidden.masked_fill(padding, 0.0)
        return hidden


@takes_device
def check_module(
    module: nn.Module,
    *,
    dim: int | None = None,
    causal: bool = False,
    call: Call = lambda module, x, valid: module(x, valid),  # type: ignore[no-any-return]
    **options: Unpack[Options],
) -> Checked:
    """Checks laws of a module that maps vectors [b n d] and a mask [b n] to vectors [b n d]; returns those laws.

    dim: the width d; None: `module.dim`. causal: True: no token depends on a later one. call: calls the module with
    vectors and the mask, True for tokens that are no padding, where it is not `module(x, valid)`. quick, only,
    expected_failures, device: as in `check_backbone`. The module itself stays as it is: copies are checked.
    Raises AssertionError with the class, the law and the fault; ValueError without a dim, or for a device that is not
    here.

    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, dropout=0.0, batch_first=True)
    >>> checked = check_module(layer, dim=8, call=lambda layer, x, valid: layer(x, src_key_padding_mask=~valid))
    >>> len(checked)
    9
    """
    width = dim if dim is not None else getattr(module, "dim", None)
    if not isinstance(width, int):
        raise ValueError(
            f"{type(module).__name__} says no width; give dim=, the d of its vectors [b n d]"
        )
    checks = Checks(**options)
    name = type(module).__name__
    backbone = AsBackbone(module, call, width, causal=causal).to(torch.zeros(()).device)
    leave_zero(backbone)
    with seeded(0):
        spec, examples = long_texts((7, 5, 8))
        model = EmbeddedBackbone(spec, backbone, causal=causal)
    for law in (*LAWS, no_column_attends_to_the_future) if causal else LAWS:
        checks.check(law, name, model, examples, again=InFloat64)
    return checks.finish(name)


def saves_all_weights(model: EmbeddedBackbone, examples: Examples) -> None:
    """Weights that are saved and loaded give the same vectors, and no weight is hidden from `state_dict`."""
    for path, module in model.backbone.named_modules():
        for name, value in vars(module).items():
            inside = value if isinstance(value, list | tuple) else [value]
            if any(isinstance(one, Tensor | nn.Module) for one in inside):
                where = f"{path}.{name}".removeprefix("module.")
                raise AssertionError(f"weights in {where} are outside of state_dict; register them")
    loaded = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in loaded.parameters():
            parameter.add_(1)
    loaded.load_state_dict(model.state_dict())
    batch = TokenBatch.collate(examples)
    assert_same(
        loaded(batch), model(batch), "a copy that loaded its state_dict gives other vectors"
    )


LAWS: tuple[Law, ...] = (
    gives_hidden_states_of_its_width,
    is_deterministic,
    leaves_input_and_process_alone,
    padding_changes_nothing,
    batch_mates_change_nothing,
    training_mates_change_nothing,
    gradients_reach_every_parameter,
    gradients_are_right,
    saves_all_weights,
)
"""Laws of any module; one that is causal keeps another."""
