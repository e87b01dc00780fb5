"""CTranslate2 knows tokens by their names: the names of all ids, each its own."""

from collections.abc import Mapping
from typing import NamedTuple

from tokenizers import Tokenizer

from regard.config import Config, EncoderDecoderConfig


class Vocabularies(NamedTuple):
    """The names of the source's tokens and of the target's, in the order of their ids."""

    source: list[str]
    target: list[str]


def vocabularies(config: Config, source: Tokenizer | None, target: Tokenizer | None) -> Vocabularies:
    """The names of a network's tokens; one side's tokenizer serves both where the other has none.

    CTranslate2 looks up the special tokens by the same names on both sides, so the source's take the target's names.
    """
    size = config.model.vocab_size
    written = config.model.target_vocab_size if isinstance(config.model, EncoderDecoderConfig) else None
    targets = names(target or source, written or size)
    numbers = [number for _, number in config.tokens if number is not None]
    special = {number: targets[number] for number in numbers if number < min(size, len(targets))}
    return Vocabularies(names(source or target, size, special), targets)


def names(tokenizer: Tokenizer | None, size: int, given: Mapping[int, str] | None = None) -> list[str]:
    """A name for each id: `given`, or the tokenizer's; a made-up one where it has none, or one that is taken.

    >>> names(None, 2)
    ['<unnamed 0>', '<unnamed 1>']
    """
    given = given or {}
    found, taken = list[str](), set(given.values())
    for number in range(size):
        name = given.get(number)
        if name is None:
            name = tokenizer.id_to_token(number) if tokenizer is not None else None
            if name is None or name in taken:
                name = f"<unnamed {number}>"
            while name in taken:
                name += "'"
            taken.add(name)
        found.append(name)
    return found
