"""Texts with holes: `The man [MASK] a small dinosaur.` as ids, and ids with holes as such a text."""

from collections.abc import Collection, Sequence

from regard.text.tokenizer import MASK, WORD_START, Tokenizer
from regard.text.word_edges import SPACE


def encode_holes(tokenizer: Tokenizer, text: str, mask: int) -> list[int]:
    """The ids of a text, with the mask token wherever it says `[MASK]`, or what the tokenizer calls that token.

    >>> from regard.config.tokenizer import TokenizerConfig
    >>> from regard.text.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["ti amo molto."], TokenizerConfig(kind="word"), masked=True)
    >>> tokenizer.pieces(encode_holes(tokenizer, "ti [MASK] molto.", mask=4))
    ['▁ti', '[MASK]', '▁molto', '.']
    """
    first, *others = text.replace(tokenizer.pieces([mask])[0], MASK).split(MASK)
    ids = tokenizer.encode(_before_hole(tokenizer, first) if others else first)
    for number, part in enumerate(others, start=1):
        last = number == len(others)
        ids += [mask, *tokenizer.encode_on(part if last else _before_hole(tokenizer, part))]
    return ids


def _before_hole(tokenizer: Tokenizer, text: str) -> str:
    """In byte-level tokenizers, the space before a word is the word's: what fills the hole brings it along."""
    return text.removesuffix(" ") if tokenizer.is_byte_level else text


def show_holes(tokenizer: Tokenizer, ids: Sequence[int], holes: Collection[int]) -> str:
    """The text of ids, with `[MASK]` at these places of them."""
    pieces = tokenizer.pieces(ids)
    for place in holes:
        mark = next((mark for mark in (WORD_START, SPACE) if pieces[place].startswith(mark)), "")
        pieces[place] = mark + MASK
    return tokenizer.decode_pieces(pieces)
