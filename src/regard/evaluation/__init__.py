"""Evaluation: translation metrics, label metrics, and log-probabilities of given texts."""
