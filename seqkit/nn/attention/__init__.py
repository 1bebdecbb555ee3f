"""Attention: one file per mechanism, the mask that all share, and the caches."""
