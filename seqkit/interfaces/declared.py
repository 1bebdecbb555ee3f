"""Attributes that a base class declares without a value, which each class of one's own must have."""

from __future__ import annotations

import inspect

EXAMPLES = {
    "causal": "self.causal = causal",
    "dim": "self.dim = dim",
    "head_dim": "self.head_dim = dim // num_heads",
    "num_heads": "self.num_heads = num_heads",
    "num_outputs": "self.num_outputs = num_outputs",
    "requires": "requires = AttentionFeature.BIAS",
    "supports": "supports = AttentionFeature.BIDIRECTIONAL | AttentionFeature.CAUSAL",
}
"""The line to write for an attribute."""


def check_declared(component: object) -> None:
    """Raise ValueError where a component lacks an attribute that a base class of seqkit declares without a value."""
    for base in type(component).__mro__:
        names = inspect.get_annotations(base) if base.__module__.startswith("seqkit.") else ()
        for name in names:
            if not hasattr(component, name):
                write = f"`{EXAMPLES[name]}`" if name in EXAMPLES else f"a value for {name}"
                where = "its __init__" if write.startswith("`self.") else "the class"
                raise ValueError(
                    f"{type(component).__name__} has no attribute `{name}`, which {base.__name__} asks for; "
                    f"write {write} in {where}"
                )
