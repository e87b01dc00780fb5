"""Who is looked at: one network with its settings and tokenizers."""

from dataclasses import dataclass

from regard.config import Config
from regard.data.tokenizer import Tokenizer
from regard.models.network import Network


@dataclass(frozen=True)
class Subject:
    """A trained network, and the text that goes in and out of it."""

    network: Network
    config: Config
    source: Tokenizer
    target: Tokenizer  # of what is written; often the same
    name: str = ""
