"""Laws that every tokenizer and every backbone keeps, to be run over your own without a test framework.

check_tokenizer(Morse(), ["... --- ...", "- . ... -"])
check_backbone(partial(MyBackbone, depth=2))
"""

from seqkit.testing.backbones import check_backbone, check_embedded_backbone, laws_for, synthetic
from seqkit.testing.checks import Checked
from seqkit.testing.laws import EmbeddedBackbone
from seqkit.testing.tokenizers import check_tokenizer

__all__ = [
    "Checked",
    "EmbeddedBackbone",
    "check_backbone",
    "check_embedded_backbone",
    "check_tokenizer",
    "laws_for",
    "synthetic",
]
