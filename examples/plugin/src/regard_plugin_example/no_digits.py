"""A logits processor that suppresses every token with a digit."""

import torch
from torch import Tensor

from regard.decoding.logits_processors import DecodingContext, LogitsProcessor


class NoDigits:
    """Set the logits of tokens with digits to −∞."""

    def __init__(self, token_texts: tuple[str, ...]) -> None:
        digits = [any(map(str.isdigit, text)) for text in token_texts]
        self._has_digit = torch.tensor(digits, dtype=torch.bool)

    def __call__(self, logits: Tensor, generated: Tensor, sentences: Tensor) -> None:
        """Change logits (R, V) in place."""
        logits[:, self._has_digit.to(logits.device)] = -torch.inf


def no_digits_processor(context: DecodingContext) -> LogitsProcessor:
    """Return the processor for a decoding context."""
    return NoDigits(tuple(context.token_texts))
