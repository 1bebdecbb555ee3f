"""Laws that every tokenizer, backbone, mechanism and position keeps, to be run over your own without a test framework.

check_tokenizer(Morse(), ["... --- ...", "- . ... -"])
check_backbone(partial(MyBackbone, depth=2))
check_mechanism(MyAttention)
check_relative_position(MyBias)
"""

from seqkit.testing.backbones import check_backbone, check_embedded_backbone, laws_for, synthetic
from seqkit.testing.checks import Checked
from seqkit.testing.laws import EmbeddedBackbone
from seqkit.testing.mechanisms import check_mechanism
from seqkit.testing.positions import check_position, check_relative_position
from seqkit.testing.tokenizers import check_tokenizer

__all__ = [
    "Checked",
    "EmbeddedBackbone",
    "check_backbone",
    "check_embedded_backbone",
    "check_mechanism",
    "check_position",
    "check_relative_position",
    "check_tokenizer",
    "laws_for",
    "synthetic",
]
