"""Data sources by modality: samples with their splits, from packages, downloads and the user's own files."""
