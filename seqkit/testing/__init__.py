"""Laws that every tokenizer, backbone and attention mechanism keeps, to be run over your own without a test framework.

check_tokenizer(Morse(), ["... --- ...", "- . ... -"])
check_backbone(partial(MyBackbone, depth=2))
check_mechanism(MyAttention)
"""

from seqkit.testing.backbones import check_backbone, check_embedded_backbone, laws_for, synthetic
from seqkit.testing.checks import Checked
from seqkit.testing.laws import EmbeddedBackbone
from seqkit.testing.mechanisms import check_mechanism
from seqkit.testing.tokenizers import check_tokenizer

__all__ = [
    "Checked",
    "EmbeddedBackbone",
    "check_backbone",
    "check_embedded_backbone",
    "check_mechanism",
    "check_tokenizer",
    "laws_for",
    "synthetic",
]
