"""Data sources of the user's own files: samples with their splits."""
