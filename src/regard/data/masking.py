"""Masking of tokens for masked language modeling (Devlin et al. 2019, §3.1), and texts with `[MASK]` as ids.

Each token of the text is selected with the same probability; with whole words, each word is. Most of the selected
tokens are replaced by the mask token, some by a random token, and some are kept, so that the encoder must represent
every token it reads. If no token of a text would be selected, one is.

B rows · T their length · V vocabulary
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import MaskingConfig, SpecialTokensConfig
from regard.data.batching import Ids
from regard.data.tokenizer import MASK_TOKEN, WORD_START, Tokenizer
from regard.data.word_tokens import BYTE_LEVEL_SPACE, Bools, word_boundaries

Uniform = NDArray[np.float64]


@dataclass(frozen=True)
class MaskedTokens:
    """Token ids with masks."""

    input_ids: Ids  # (B, T) for the encoder
    selected: Bools  # (B, T) True where the original token is predicted


@dataclass(frozen=True)
class MaskingDraws:
    """Uniform random numbers that decide the masking of each token."""

    selection: Uniform  # (B, T) whether it is selected; of a word, that of its first token
    replacement: Uniform  # (B, T) what replaces it
    random_token: Uniform  # (B, T) which token, if it is replaced by a random one

    @classmethod
    def sample(cls, shape: tuple[int, ...], random: np.random.Generator) -> "MaskingDraws":
        """Return new random numbers."""
        return cls(*random.random((3, *shape)))

    def rows(self, start: int, step: int) -> "MaskingDraws":
        """Return the random numbers of every `step`-th row from `start` on."""
        draws = (self.selection, self.replacement, self.random_token)
        return MaskingDraws(*(numbers[start::step] for numbers in draws))


class TokenMasker:
    """Masks tokens with the probabilities of the config."""

    def __init__(self, config: MaskingConfig, tokenizer: Tokenizer, special: SpecialTokensConfig) -> None:
        assert special.mask is not None, "checked by the task"
        self.config = config
        self.mask_id = special.mask
        self._is_text = np.ones(len(tokenizer), np.bool_)
        self._is_text[list(special.ids)] = False
        self.replacement_ids = np.flatnonzero(self._is_text)
        self._boundaries = word_boundaries(tokenizer, special.ids) if config.whole_words else None

    def maskable(self, ids: NDArray[np.integer[Any]]) -> Bools:
        """Return True at tokens that are text."""
        is_text: Bools = self._is_text[ids]
        return is_text

    def unit_starts(self, ids: Ids) -> Bools:
        """Return True at tokens (B, T) that begin a unit of masking: a word, or each a token."""
        return np.ones(ids.shape, np.bool_) if self._boundaries is None else self._boundaries.word_starts(ids)

    def apply(self, ids: Ids, draws: MaskingDraws) -> MaskedTokens:
        """Mask tokens (B, T) with these random numbers."""
        maskable = self.maskable(ids)
        first = np.where(self.unit_starts(ids), np.arange(ids.shape[1]), 0)
        first = np.maximum.accumulate(first, axis=1)  # first token of the word of each token
        selection = np.where(maskable, np.take_along_axis(draws.selection, first, axis=1), 1.0)
        lowest = selection.min(axis=1, keepdims=True)
        selected = maskable & ((selection < self.config.probability) | (selection == lowest))
        masked = selected & (draws.replacement < self.config.mask_fraction)
        threshold = self.config.mask_fraction + self.config.random_fraction
        randomized = selected & ~masked & (draws.replacement < threshold)
        input_ids = np.where(masked, self.mask_id, ids)
        if randomized.any():
            choices = (draws.random_token[randomized] * len(self.replacement_ids)).astype(np.int64)
            input_ids[randomized] = self.replacement_ids[choices]
        return MaskedTokens(input_ids, selected)


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
