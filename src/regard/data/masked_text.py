"""Texts with holes: `The man [MASK] a small dinosaur.` as ids, and ids with holes as such a text."""

from collections.abc import Collection, Sequence

from regard.data.tokenizer import MASK_TOKEN, WORD_START, Tokenizer
from regard.data.word_boundaries import SPACE


def encode_masked(tokenizer: Tokenizer, text: str, mask: int) -> list[int]:
    """The ids of a text, with the mask token wherever it says `[MASK]`, or what the tokenizer calls that token.

    >>> from regard.config.data import TokenizerConfig
    >>> from regard.data.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["ti amo molto."], TokenizerConfig(kind="word"), masked=True)
    >>> tokenizer.ids_to_tokens(encode_masked(tokenizer, "ti [MASK] molto.", mask=4))
    ['▁ti', '[MASK]', '▁molto', '.']
    """
    first, *others = _around_holes(tokenizer, text, mask)
    ids = tokenizer.encode(_before_hole(tokenizer, first) if others else first)
    for number, part in enumerate(others, start=1):
        last = number == len(others)
        ids += [mask, *tokenizer.encode_continuation(part if last else _before_hole(tokenizer, part))]
    return ids


def encode_fillers(tokenizer: Tokenizer, text: str, fillers: str, mask: int) -> list[int]:
    """The ids of what fills the holes of a text, as they would be there: after a space, or right after what is before.

    Where there are as many words as holes, each is for one of them; else all of it is for the first and what follows.

    >>> from regard.config.data import TokenizerConfig
    >>> from regard.data.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["a man's dog"] * 2, TokenizerConfig(kind="byte-level"), masked=True)
    >>> tokenizer.ids_to_tokens(encode_fillers(tokenizer, "[MASK] man's [MASK]", "a dog", mask=4))
    ['a', 'Ġdog']
    """
    before, words = _around_holes(tokenizer, text, mask)[:-1], fillers.split()
    if len(words) != len(before):
        return _encode_filler(tokenizer, before[0], fillers.strip(), first=True)
    pairs = enumerate(zip(before, words, strict=True))
    return [id_ for n, (part, word) in pairs for id_ in _encode_filler(tokenizer, part, word, first=n == 0)]


def _encode_filler(tokenizer: Tokenizer, before: str, filler: str, *, first: bool) -> list[int]:
    """`before` is what stands between its hole and the one before it; before the first, all of the text."""
    if tokenizer.is_byte_level:
        return tokenizer.encode(before[len(_before_hole(tokenizer, before)) :] + filler)
    starts_word = before[-1].isspace() if before else first
    return tokenizer.encode(filler) if starts_word else tokenizer.encode_continuation(filler)


def _around_holes(tokenizer: Tokenizer, text: str, mask: int) -> list[str]:
    return text.replace(tokenizer.ids_to_tokens([mask])[0], MASK_TOKEN).split(MASK_TOKEN)


def _before_hole(tokenizer: Tokenizer, text: str) -> str:
    """In byte-level tokenizers, the space before a word is the word's: what fills the hole brings it along."""
    return text.removesuffix(" ") if tokenizer.is_byte_level else text


def format_masked(tokenizer: Tokenizer, ids: Sequence[int], holes: Collection[int]) -> str:
    """The text of ids, with `[MASK]` at these places of them."""
    pieces = tokenizer.ids_to_tokens(ids)
    for place in holes:
        mark = next((mark for mark in (WORD_START, SPACE) if pieces[place].startswith(mark)), "")
        pieces[place] = mark + MASK_TOKEN
    return tokenizer.decode_tokens(pieces)
