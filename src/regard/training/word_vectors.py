"""Embeddings that begin as word vectors, rather than at random: `training.pretrained_embeddings = "vectors.txt"`.

Only first values come from there. Training changes them as it changes everything, and the model folder knows nothing
of the file.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn

from regard.config import Config
from regard.data.tokenizer import Tokenizer
from regard.data.word_boundaries import whole_words
from regard.data.word_vectors import Vector, WordVectors, read_word_vectors, vector_size
from regard.errors import ConfigError, DataError
from regard.models.assembly import sketch
from regard.models.network import Network
from regard.nn import Embedding


def check_word_vectors(config: Config) -> None:
    """Complain about a file that cannot be read, or does not fit the network, before anything long begins."""
    if config.training.pretrained_embeddings is None:
        return
    found, width = vector_size(Path(config.training.pretrained_embeddings)), _tables(sketch(config.model))[0].size(1)
    if found != width:
        remedy = found * config.model.width // width  # a network may give embeddings only a part of its width
        raise ConfigError(
            f"{config.training.pretrained_embeddings}: vectors of {found} numbers, but the embeddings have "
            f"{width}; set model.width = {remedy}, or give other vectors."
        )


def start_from_word_vectors(network: Network, tokenizer: Tokenizer, path: Path) -> str:
    """Set the embeddings of tokens that are words of the file; returns how many there are, as a sentence.

    The vectors keep their directions, and are scaled together to the spread that embeddings have at first, N(0, 1/C).
    Tokens that are no words of the file keep the values they have.
    """
    words = {number: word for number, word in enumerate(whole_words(tokenizer)) if word is not None}
    wanted = {form for word in words.values() for form in (word, word.lower())}
    rows = _rows(words, read_word_vectors(path, wanted))
    if not rows:
        raise DataError(
            f"{path}: has a vector for none of the {len(tokenizer):,} tokens, of which {len(words):,} are whole words; "
            "check its language, or set tokenizer.kind = 'word'."
        )
    numbers, vectors = list(rows), torch.from_numpy(np.stack(list(rows.values())))  # (found, C)
    spread = vectors.square().mean().sqrt()
    if spread > 0:
        vectors = vectors * (vectors.size(1) ** -0.5 / spread)
    with torch.no_grad():
        for table in _tables(network):
            table[numbers] = vectors.to(table)
    return f"{path}: {len(rows):,} of {len(tokenizer):,} tokens found; the others begin at random."


def _rows(words: Mapping[int, str], found: WordVectors) -> dict[int, Vector]:
    """The vectors of tokens; where the file has no capitals, a word with some is taken for the one without."""
    rows: dict[int, Vector] = {}
    for number, word in words.items():
        vector = found.vectors.get(word)
        if vector is None and found.lowercase:
            vector = found.vectors.get(word.lower())
        if vector is not None:
            rows[number] = vector
    return rows


def _tables(network: nn.Module) -> list[nn.Parameter]:
    """The embedding matrices (V, C), each once."""
    tables = {id(part.weight): part.weight for part in network.modules() if isinstance(part, Embedding)}
    return list(tables.values())
