"""Decoding: from a network's predictions to tokens."""

from regard.decoding.greedy import greedy
from regard.decoding.sampling import sample

__all__ = ["greedy", "sample"]
