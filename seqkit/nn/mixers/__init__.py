"""Sequence mixers: what stands in a block where attention does, and carries a state from token to token."""
