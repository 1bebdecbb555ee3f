"""Comparison: the same recipe with other components, at equal budgets, with equal tuning, over several seeds."""
