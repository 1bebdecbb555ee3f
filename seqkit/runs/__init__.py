"""Runs: from a configuration to a complete folder, and from a folder back to a trained model."""
