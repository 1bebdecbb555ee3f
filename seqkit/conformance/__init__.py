"""Laws that every tokenizer and every backbone keeps. Run them over your own; they need no test framework.

check_tokenizer(Morse(), ["... --- ...", "- . ... -"])
check_backbone(partial(MyBackbone, depth=2))
"""

from seqkit.conformance.check import check_backbone, check_reader, laws_for, made_up
from seqkit.conformance.laws import Reader
from seqkit.conformance.tokenizer import check_tokenizer

__all__ = ["Reader", "check_backbone", "check_reader", "check_tokenizer", "laws_for", "made_up"]
