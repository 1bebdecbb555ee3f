"""Laws that every tokenizer, objective, backbone, mechanism and position keeps, to be run over your own.

check(Morse(), raws=["... --- ...", "- . ... -"])
check(MyObjective())
check(MyBackbone)
check(MyLayer(32), dim=32, causal=True)
"""

from seqkit.testing.backbones import check_backbone, check_embedded_backbone, laws_for, synthetic
from seqkit.testing.checks import BrokenLawsError, Checked, Fault
from seqkit.testing.embedded_backbone import EmbeddedBackbone
from seqkit.testing.entry import check, laws
from seqkit.testing.inside import (
    check_mechanism,
    check_mixer,
    check_position,
    check_relative_position,
)
from seqkit.testing.modules import check_module
from seqkit.testing.objectives import check_objective
from seqkit.testing.tokenizers import check_tokenizer

__all__ = [
    "BrokenLawsError",
    "Checked",
    "EmbeddedBackbone",
    "Fault",
    "check",
    "check_backbone",
    "check_embedded_backbone",
    "check_mechanism",
    "check_mixer",
    "check_module",
    "check_objective",
    "check_position",
    "check_relative_position",
    "check_tokenizer",
    "laws",
    "laws_for",
    "synthetic",
]
