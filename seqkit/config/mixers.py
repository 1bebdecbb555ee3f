"""Mixers of a backbone in a configuration, where each takes the place of its block's attention.

Naming another type keeps the arguments that were written and that the new type has too (`seqkit.config.merge`): a mixer
is another type of the attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seqkit.config.record import Written

if TYPE_CHECKING:
    from seqkit.config.merge import Node

MIXER = "mixer"


def with_mixers(node: Node, base: Written, over: Written) -> tuple[Written, Written]:
    """A backbone's mapping and the one with mixers that is merged on top of it.

    Each mixer takes over what was written for the attention that it replaces. The base loses attention and position
    where no layer has a use for them any more.
    """
    field = node.fields[MIXER]
    value = node.read(field, over[MIXER])
    blocks = _blocks(node, base)
    attention = blocks[0].get("attention") if len(blocks) == 1 else None
    mixers = [node.mapping(field.one, one) for one in _listed(value)]
    if attention is not None:
        block = node.below(node.fields["block"].one, blocks[0])
        own = block.fields["attention"]
        old = {"type": own.default_type, **(block.mapping(own, attention) or {})}
        mixers = [one and node.merge_component(field.one, old, one) for one in mixers]
    over = {**over, MIXER: mixers if isinstance(value, list) else mixers[0]}
    for block_of_base, is_replaced in zip(blocks, _are_replaced(len(blocks), mixers)):
        if is_replaced:
            block_of_base.pop("attention", None)
    if "block" in base:
        base = {**base, "block": blocks if len(blocks) > 1 else blocks[0]}
    types = [one and field.component(one.get("type"), node.at(MIXER)).load() for one in mixers]
    if all(getattr(one, "carries_state", False) for one in types):
        base = {name: item for name, item in base.items() if name != "position"}
    return base, over


def without_replaced(node: Node, written: Written, complete: dict[str, Any]) -> dict[str, Any]:
    """A complete backbone without attentions that nobody wrote and that mixers replace in all their layers."""
    mixers = _listed(complete[MIXER])
    blocks = _listed(complete["block"])
    replaced = _are_replaced(len(blocks), mixers)
    for block, own, is_replaced in zip(blocks, _blocks(node, written), replaced):
        if is_replaced and "attention" not in own:
            block.pop("attention", None)
    return complete


def _blocks(node: Node, value: Written) -> list[dict[str, Any]]:
    """The written part of each block."""
    field = node.fields["block"]
    given = node.read(field, value.get("block"))
    return [dict(node.mapping(field.one, one) or {}) for one in _listed(given)]


def _listed(value: Any) -> list[Any]:
    """The entries of a pattern, of which one alone may stand without a list."""
    return value if isinstance(value, list) else [value]


def _are_replaced(num_blocks: int, mixers: Sequence[object]) -> list[bool]:
    """Whether all layers of each block have a mixer, the two patterns being repeated."""
    layers = range(num_blocks * len(mixers))
    return [
        all(mixers[layer % len(mixers)] is not None for layer in layers[block::num_blocks])
        for block in range(num_blocks)
    ]
