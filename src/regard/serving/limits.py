"""How much one request, and all of them together, may ask for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What keeps one client from taking everything."""

    body: int = 1_000_000
    """Bytes of a request."""
    characters: int = 20_000
    """Characters of all the texts of a request."""
    texts: int = 256
    """Texts, or prompts times samples, of a request."""
    beam: int = 16
    """Hypotheses that are followed at a time."""
    tokens: int = 1_000
    """Tokens that are written for a text."""
    queue: int = 256
    """Requests that wait for each model; the next is told to come back later."""
    deadline: float = 30.0
    """Seconds after which a request is given up."""
    budget: int = 1_024
    """Tokens of all hypotheses in a batch, by a rough count."""
    look: int = 600
    """Characters of a text that is looked into: a trace has numbers for every pair of its tokens."""
    traces: int = 8
    """Traces that are kept; the one that was asked least recently makes room for the next."""
