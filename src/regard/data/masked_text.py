"""Texts with `[MASK]`: `The man [MASK] a small dinosaur.` as ids, and ids with masks as text."""

from collections.abc import Collection, Sequence

from regard.data.tokenizer import MASK_TOKEN, WORD_START, Tokenizer
from regard.data.word_boundaries import BYTE_LEVEL_SPACE


def encode_masked(tokenizer: Tokenizer, text: str, mask_id: int) -> list[int]:
    """Return the ids of a text, with the mask token wherever it has `[MASK]` or the tokenizer's own name for it.

    >>> from regard.config import TokenizerConfig
    >>> from regard.data.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["ti amo molto."], TokenizerConfig(kind="word"), mask_token=True)
    >>> tokenizer.ids_to_tokens(encode_masked(tokenizer, "ti [MASK] molto.", mask_id=4))
    ['▁ti', '[MASK]', '▁molto', '.']
    """
    first, *others = _split_at_masks(tokenizer, text, mask_id)
    ids = tokenizer.encode(_before_mask(tokenizer, first) if others else first)
    for number, part in enumerate(others, start=1):
        last = number == len(others)
        ids += [mask_id, *tokenizer.encode_continuation(part if last else _before_mask(tokenizer, part))]
    return ids


def encode_fillers(tokenizer: Tokenizer, text: str, fillers: str, mask_id: int) -> list[int]:
    """Return the ids of words in the place of masks: after a space, or directly after the text before.

    If there are as many words as masks, each fills one of them; otherwise all fill the first and those after it.

    >>> from regard.config import TokenizerConfig
    >>> from regard.data.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["a man's dog"] * 2, TokenizerConfig(kind="byte-level"), mask_token=True)
    >>> tokenizer.ids_to_tokens(encode_fillers(tokenizer, "[MASK] man's [MASK]", "a dog", mask_id=4))
    ['a', 'Ġdog']
    """
    before, words = _split_at_masks(tokenizer, text, mask_id)[:-1], fillers.split()
    if len(words) != len(before):
        return _encode_filler(tokenizer, before[0], fillers.strip(), first=True)
    pairs = enumerate(zip(before, words, strict=True))
    return [id_ for n, (part, word) in pairs for id_ in _encode_filler(tokenizer, part, word, first=n == 0)]


def format_masked(tokenizer: Tokenizer, ids: Sequence[int], positions: Collection[int]) -> str:
    """Return the text of ids, with `[MASK]` at these positions."""
    tokens = tokenizer.ids_to_tokens(ids)
    for position in positions:
        marks = (mark for mark in (WORD_START, BYTE_LEVEL_SPACE) if tokens[position].startswith(mark))
        tokens[position] = next(marks, "") + MASK_TOKEN
    return tokenizer.decode_tokens(tokens)


def _encode_filler(tokenizer: Tokenizer, before: str, filler: str, *, first: bool) -> list[int]:
    """Return the ids of a filler; `before` is the text between its mask and the one before it."""
    if tokenizer.is_byte_level:
        return tokenizer.encode(before[len(_before_mask(tokenizer, before)) :] + filler)
    starts_word = before[-1].isspace() if before else first
    return tokenizer.encode(filler) if starts_word else tokenizer.encode_continuation(filler)


def _split_at_masks(tokenizer: Tokenizer, text: str, mask_id: int) -> list[str]:
    return text.replace(tokenizer.ids_to_tokens([mask_id])[0], MASK_TOKEN).split(MASK_TOKEN)


def _before_mask(tokenizer: Tokenizer, text: str) -> str:
    """Return the text before a mask. In byte-level tokenizers, the space before a word is part of the word."""
    return text.removesuffix(" ") if tokenizer.is_byte_level else text
