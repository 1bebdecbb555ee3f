"""Sections of a run's report about its predictions: a file for each kind, and `samples`, which picks by objective."""
