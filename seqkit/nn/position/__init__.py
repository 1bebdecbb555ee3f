"""Positions: added to the embeddings (absolute), or inside attention (rotary, bias, relative)."""
