"""Trained models for others: graphs that run without seqkit, model cards, and a hub."""
