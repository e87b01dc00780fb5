"""Masked token prediction: candidates for each `[MASK]` of a text.

    filled = regard.load("runs/encoder").fill_detailed(["The man [MASK] a small dinosaur."], top_k=5)[0]
    [(candidate.text, candidate.probability) for candidate in filled.masks[0]]

Each mask is one token, and is predicted independently of the other masks.

B texts · S tokens · N masks · V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.config import SpecialTokensConfig
from regard.data.encoder_batches import NUM_SPECIAL_TOKENS
from regard.data.masking import encode_masked
from regard.data.store import chunked
from regard.data.tokenizer import MASK_TOKEN, Tokenizer
from regard.decoding.results import FillCandidate, FilledText
from regard.errors import InputError
from regard.models import Network

FILL_BATCH = 64  # texts


@dataclass(frozen=True)
class MaskFiller:
    """Masked language models with their tokenizer; the probabilities of several networks are averaged."""

    networks: Sequence[Network]
    tokenizer: Tokenizer
    tokens: SpecialTokensConfig
    max_length: int | None = None
    """Maximum number of tokens, start and end token included; None: no limit."""

    @property
    def mask_id(self) -> int:
        """The id of the mask token."""
        assert self.tokens.mask is not None  # checked by `Model.mask_filler`
        return self.tokens.mask

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text with masks, without start and end token."""
        return encode_masked(self.tokenizer, text, self.mask_id)

    def fill(self, texts: Sequence[str], top_k: int = 5) -> list[FilledText]:
        """Return the `top_k` most probable tokens for each mask of each text."""
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; it should be 1 or more.")
        for number, text in enumerate(texts, start=1):
            if (problem := self.problem_with(text)) is not None:
                raise InputError(f"text {number}: {problem}.")
        rows = [self.encode(text) for text in texts]
        predictions = predict_masks(self.networks, rows, self.tokens, top_k)
        return [self._filled(*row) for row in zip(texts, rows, predictions, strict=True)]

    def problem_with(self, text: str) -> str | None:
        """Return why a text cannot be filled, and what to do; None if it can."""
        ids = self.encode(text)
        if self.mask_id not in ids:
            return f"has no {MASK_TOKEN}; write {MASK_TOKEN} where a word is missing"
        size = len(ids) + NUM_SPECIAL_TOKENS
        if self.max_length is not None and size > self.max_length:
            return (
                f"has {size:,} tokens with start and end token, but this network has {self.max_length:,} learned "
                "positions; shorten it"
            )
        return None

    def _filled(self, source: str, ids: list[int], predictions: list[list[tuple[int, float]]]) -> FilledText:
        best = iter([ranked[0][0] for ranked in predictions])
        filled_ids = [next(best) if token == self.mask_id else token for token in ids]
        return FilledText(source, self.tokenizer.decode(filled_ids), [self._candidates(row) for row in predictions])

    def _candidates(self, ranked: list[tuple[int, float]]) -> list[FillCandidate]:
        tokens = self.tokenizer.ids_to_tokens([token_id for token_id, _ in ranked])
        return [
            FillCandidate(token, self.tokenizer.decode([token_id]).strip(), probability)
            for token, (token_id, probability) in zip(tokens, ranked, strict=True)
        ]


@torch.no_grad()
def predict_masks(
    networks: Sequence[Network], rows: Sequence[Sequence[int]], tokens: SpecialTokensConfig, top_k: int
) -> list[list[list[tuple[int, float]]]]:
    """Return, for each mask of each row of ids, the `top_k` most probable tokens and their probabilities."""
    assert tokens.mask is not None
    results: list[list[list[tuple[int, float]]]] = [[] for _ in rows]
    for indices in chunked(sorted(range(len(rows)), key=lambda n: len(rows[n])), FILL_BATCH):
        ids, mask = _pad([rows[n] for n in indices], tokens, next(networks[0].parameters()).device)
        positions = torch.eq(ids, tokens.mask).nonzero()  # (N, 2) row by row
        probabilities = _mask_probabilities(networks, ids, mask, positions, tokens)
        top = probabilities.topk(min(top_k, probabilities.size(1)))
        batch_rows = zip(positions[:, 0].tolist(), top.indices.tolist(), top.values.tolist(), strict=True)
        for row, token_ids, values in batch_rows:
            ranked = [(token, value) for token, value in zip(token_ids, values, strict=True) if value > 0]
            results[indices[row]].append(ranked)
    return results


def _mask_probabilities(
    networks: Sequence[Network], ids: Tensor, mask: Tensor, positions: Tensor, tokens: SpecialTokensConfig
) -> Tensor:
    """Return the mean probabilities over the networks (N, V); special tokens have none."""
    special = sorted({token for _, token in tokens if token is not None})
    probabilities = []
    for network in networks:
        states = network.encode(ids, mask).states[positions[:, 0], positions[:, 1]]  # (N, C)
        logits = network.logits(states).float()
        logits[:, special] = -torch.inf
        probabilities.append(logits.softmax(-1))
    return torch.stack(probabilities).mean(0)


def _pad(rows: Sequence[Sequence[int]], tokens: SpecialTokensConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return rows between start and end token as a batch (B, S), and its token mask."""
    width = max(map(len, rows)) + NUM_SPECIAL_TOKENS
    wrapped = [[tokens.start, *row, tokens.end] for row in rows]
    ids = torch.tensor([[*row, *[tokens.pad] * (width - len(row))] for row in wrapped], device=device)
    lengths = torch.tensor([[len(row)] for row in wrapped], device=device)
    return ids, torch.arange(width, device=device) < lengths
