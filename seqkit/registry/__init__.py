"""Names of components: one table of the built-in ones, lookup, plug-ins."""

from seqkit.errors import suggest
from seqkit.registry.builtin import BUILT_IN, Component
from seqkit.registry.lookup import KINDS, components, find, register

__all__ = ["BUILT_IN", "KINDS", "Component", "components", "find", "register", "suggest"]
