"""Training objectives: masking, targets, loss and metrics, without weights."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "classify": ["Classify"],
        "contrastive": ["Contrastive"],
        "ctc": ["CTC"],
        "features": ["Features"],
        "masked": ["Masked"],
        "next_token": ["NextToken"],
        "multi_label": ["MultiLabel"],
        "regress": ["Regress"],
        "seq2seq": ["Seq2Seq"],
    },
)
