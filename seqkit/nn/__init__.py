"""Layers: attention, positions, blocks, MLPs, heads. They know no modality and no registry."""
