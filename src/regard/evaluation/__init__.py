"""Evaluation: how good translations are, and how probable a model finds given texts."""
