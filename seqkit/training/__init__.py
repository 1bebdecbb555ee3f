"""Training a run and taking it back: Lightning module, optimizers, checkpoints."""
