"""Filling holes: what an encoder that has learned to guess hidden tokens puts in the place of `[MASK]`.

    filled = regard.load("runs/encoder").fill("The man [MASK] a small dinosaur.", best=5)
    [(guess.text, guess.probability) for guess in filled.holes[0]]

Each hole is one token, and is filled as if the others stayed empty.

B texts · S their length · N holes · V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.config import SpecialTokensConfig
from regard.data.masked_text import encode_masked
from regard.data.passages import NUM_SPECIAL_TOKENS
from regard.data.store import chunked
from regard.data.tokenizer import MASK_TOKEN, Tokenizer
from regard.errors import InputError
from regard.models import Network

FILL_BATCH = 64  # texts that are read at once


@dataclass(frozen=True)
class FillCandidate:
    """A token that may fill a hole."""

    token: str  # as the vocabulary has it
    text: str  # without the mark or the space before it
    probability: float


@dataclass(frozen=True)
class FilledText:
    """A text with holes, and what may fill them."""

    source: str
    text: str  # with the most probable token in each
    holes: list[list[FillCandidate]]  # for each hole, the most probable first


@dataclass(frozen=True)
class MaskFiller:
    """One network, or several whose probabilities are averaged, with their tokenizer."""

    networks: Sequence[Network]
    tokenizer: Tokenizer
    tokens: SpecialTokensConfig
    longest: int | None = None  # tokens of a text, its start and end included; None: any number

    @property
    def mask(self) -> int:
        """The token that stands for a hole."""
        assert self.tokens.mask is not None  # `Model.filler` has looked
        return self.tokens.mask

    def ids(self, text: str) -> list[int]:
        """A text with its holes, without its start and end."""
        return encode_masked(self.tokenizer, text, self.mask)

    def fill(self, texts: Sequence[str], best: int = 5) -> list[FilledText]:
        """The so many most probable tokens for each hole of each text."""
        if best < 1:
            raise InputError(f"best = {best}: should be 1 or more.")
        for number, text in enumerate(texts, start=1):
            if (why := self.why_not(text)) is not None:
                raise InputError(f"text {number}: {why}.")
        rows = [self.ids(text) for text in texts]
        found = predict_masks(self.networks, rows, self.tokens, best)
        return [self._filled(*each) for each in zip(texts, rows, found, strict=True)]

    def why_not(self, text: str) -> str | None:
        """Why a text cannot be filled, and what to do; None if it can."""
        ids = self.ids(text)
        if self.mask not in ids:
            return f"has no {MASK_TOKEN} to fill; write {MASK_TOKEN} where a word is missing"
        size = len(ids) + NUM_SPECIAL_TOKENS
        if self.longest is not None and size > self.longest:
            return (
                f"has {size:,} tokens with its start and end, but this network learned {self.longest:,} positions; "
                "shorten it"
            )
        return None

    def _filled(self, source: str, ids: list[int], guesses: list[list[tuple[int, float]]]) -> FilledText:
        best = iter([ranked[0][0] for ranked in guesses])
        whole = [next(best) if number == self.mask else number for number in ids]
        return FilledText(source, self.tokenizer.decode(whole), [self._guesses(ranked) for ranked in guesses])

    def _guesses(self, ranked: list[tuple[int, float]]) -> list[FillCandidate]:
        numbers = [number for number, _ in ranked]
        return [
            FillCandidate(piece, self.tokenizer.decode([number]).strip(), probability)
            for piece, (number, probability) in zip(self.tokenizer.ids_to_tokens(numbers), ranked, strict=True)
        ]


@torch.no_grad()
def predict_masks(
    networks: Sequence[Network], rows: Sequence[Sequence[int]], tokens: SpecialTokensConfig, best: int
) -> list[list[list[tuple[int, float]]]]:
    """For each mask of each row of ids: the tokens that are text by falling probability, at most so many."""
    assert tokens.mask is not None
    found: list[list[list[tuple[int, float]]]] = [[] for _ in rows]
    for several in chunked(sorted(range(len(rows)), key=lambda n: len(rows[n])), FILL_BATCH):
        ids, real = _padded([rows[n] for n in several], tokens, next(networks[0].parameters()).device)
        places = torch.eq(ids, tokens.mask).nonzero()  # (N, 2) row by row
        probabilities = _probabilities(networks, ids, real, places, tokens)
        top = probabilities.topk(min(best, probabilities.size(1)))
        for row, numbers, values in zip(places[:, 0].tolist(), top.indices.tolist(), top.values.tolist(), strict=True):
            ranked = [(number, value) for number, value in zip(numbers, values, strict=True) if value > 0]
            found[several[row]].append(ranked)
    return found


def _probabilities(
    networks: Sequence[Network], ids: Tensor, real: Tensor, places: Tensor, tokens: SpecialTokensConfig
) -> Tensor:
    """Of each token (N, V), the mean over the networks; tokens that are not text have none."""
    never = sorted({number for _, number in tokens if number is not None})
    several = []
    for network in networks:
        states = network.encode(ids, real).states[places[:, 0], places[:, 1]]  # (N, C)
        logits = network.logits(states).float()
        logits[:, never] = -torch.inf
        several.append(logits.softmax(-1))
    return torch.stack(several).mean(0)


def _padded(rows: Sequence[Sequence[int]], tokens: SpecialTokensConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows between start and end as a batch (B, S), and True where they are real."""
    longest = max(map(len, rows)) + NUM_SPECIAL_TOKENS
    whole = [[tokens.start, *row, tokens.end] for row in rows]
    ids = torch.tensor([[*row, *[tokens.pad] * (longest - len(row))] for row in whole], device=device)
    lengths = torch.tensor([[len(row)] for row in whole], device=device)
    return ids, torch.arange(longest, device=device) < lengths
