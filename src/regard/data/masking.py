"""Hiding tokens of a text, for an encoder to guess (Devlin et al. 2019, §3.1).

Of the tokens that may be hidden, each is chosen with the same probability; with whole words, each word is. Of those
chosen, most are read as the mask token, some as a token drawn at random, and some as they are, so that the encoder must
have something to say about every token that it reads. Where chance would choose nothing in a text, it chooses one.

B rows · T their length · V vocabulary
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import SpecialTokensConfig
from regard.config.training import MaskingConfig
from regard.data.tokenizer import Tokenizer
from regard.data.word_boundaries import WordBoundaries, word_boundaries

Ids = NDArray[np.int64]
Bools = NDArray[np.bool_]
Uniform = NDArray[np.float64]


@dataclass(frozen=True)
class MaskedTokens:
    """Texts some of whose tokens are hidden."""

    input_ids: Ids  # (B, T) what the encoder reads
    selected: Bools  # (B, T) where it must tell what stood there


@dataclass(frozen=True)
class MaskingDraws:
    """Everything that chance decides: a number from 0 to 1 for each token, for three questions."""

    selection: Uniform  # (B, T) is it hidden; of a word, its first token's counts
    replacement: Uniform  # (B, T) what is read in its place
    random_token: Uniform  # (B, T) if that is drawn at random, which one

    @classmethod
    def sample(cls, shape: tuple[int, ...], random: np.random.Generator) -> "MaskingDraws":
        """Fresh ones."""
        return cls(*random.random((3, *shape)))


class TokenMasker:
    """Hides tokens as the settings say."""

    def __init__(self, config: MaskingConfig, tokenizer: Tokenizer, special: SpecialTokensConfig) -> None:
        assert special.mask is not None  # whoever trains has made sure of it
        self.config = config
        self.mask_id = special.mask
        not_text = {number for _, number in special if number is not None}
        self._is_text = np.ones(len(tokenizer), np.bool_)
        self._is_text[list(not_text)] = False
        self.replacement_ids = np.flatnonzero(self._is_text)  # the tokens that may be drawn at random
        self._edges: WordBoundaries | None = word_boundaries(tokenizer, not_text) if config.whole_words else None

    def maskable(self, ids: NDArray[np.integer[Any]]) -> Bools:
        """True at the tokens that are text."""
        found: Bools = self._is_text[ids]
        return found

    def unit_starts(self, ids: Ids) -> Bools:
        """True at the tokens (B, T) that begin what is hidden as a whole: a word, or each a token by itself."""
        return np.ones(ids.shape, np.bool_) if self._edges is None else self._edges.word_starts(ids)

    def apply(self, ids: Ids, draws: MaskingDraws) -> MaskedTokens:
        """Hide tokens (B, T) as the draws decide."""
        candidates = self.maskable(ids)
        first = np.where(self.unit_starts(ids), np.arange(ids.shape[1]), 0)
        first = np.maximum.accumulate(first, axis=1)  # the first token of each token's word
        choice = np.where(candidates, np.take_along_axis(draws.selection, first, axis=1), 1.0)
        lowest = choice.min(axis=1, keepdims=True)
        chosen = candidates & ((choice < self.config.probability) | (choice == lowest))
        masked = chosen & (draws.replacement < self.config.mask_fraction)
        drawn = chosen & ~masked & (draws.replacement < self.config.mask_fraction + self.config.random_fraction)
        read = np.where(masked, self.mask_id, ids)
        if drawn.any():
            read[drawn] = self.replacement_ids[(draws.random_token[drawn] * len(self.replacement_ids)).astype(np.int64)]
        return MaskedTokens(read, chosen)
