"""Decoding: from a network's predictions to tokens, and to text."""

from regard.decoding.greedy import greedy
from regard.decoding.sampling import sample
from regard.decoding.translate import translate

__all__ = ["greedy", "sample", "translate"]
