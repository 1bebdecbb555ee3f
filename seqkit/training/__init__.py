"""Training a run and taking it back: Lightning module, optimizers, checkpoints.

`RandomState`, `ResumePoints` and `ResumableLoader` make the training of any LightningModule resume bit for bit.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={"loader": ["ResumableLoader"], "resume": ["RandomState", "ResumePoints"]},
)
