"""Replace attention weights by fixed ones: uniform, one-hot, or a weight for each key.

The override holds for every query, restricted to the keys that the mask allows: a decoder never attends to tokens that
it has not generated yet.

B rows · H heads · T queries · S keys
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from regard.errors import InputError

OverrideSpec = Literal["even"] | int | tuple[float, ...]
"""`even`: uniform over the allowed keys; an integer: all weight on this key; a tuple: a weight for each key."""

TOLERANCE = 1e-3  # allowed deviation of the sum of weights from 1, since users type few digits


def parse_override(text: str) -> OverrideSpec | None:
    """Parse an override; None if the text is none.

    >>> parse_override("even"), parse_override("2"), parse_override("0.5,0.25,0.25"), parse_override("1,")
    ('even', 2, (0.5, 0.25, 0.25), (1.0,))
    """
    if text == "even":
        return "even"
    try:
        return tuple(map(float, text.removesuffix(",").split(","))) if "," in text else int(text)
    except ValueError:
        return None


def format_override(spec: OverrideSpec) -> str:
    """Format an override as `parse_override` reads it; a single weight has a trailing comma.

    >>> format_override((0.5, 0.25, 0.25)), format_override((1.0,)), format_override(1)
    ('0.5,0.25,0.25', '1,', '1')
    """
    if not isinstance(spec, tuple):
        return str(spec)
    return ",".join(f"{weight:g}" for weight in spec) + ("," if len(spec) == 1 else "")


def check_override(name: str, spec: OverrideSpec, keys: int) -> None:
    """Raise InputError if the override does not fit this number of keys; `name` begins the message."""
    if isinstance(spec, int) and not 0 <= spec < keys:
        raise InputError(f"{name}: there is no key {spec}; the keys are 0 to {keys - 1}, {keys} in all.")
    if not isinstance(spec, tuple):
        return
    if len(spec) != keys:
        raise InputError(f"{name}: has {len(spec)} weights for {keys} keys; give one weight for each key.")
    if not all(math.isfinite(weight) and weight >= 0 for weight in spec) or abs(sum(spec) - 1) > TOLERANCE:
        raise InputError(
            f"{name}: attention weights must be 0 or more and sum to 1; these sum to {sum(spec):g}. Change them."
        )


class AttentionOverride:
    """Hooks that replace the weights of one head, or of all heads, of one attention module.

    `note_mask` records which keys each query may attend to; without a mask, all of them.
    """

    def __init__(self, spec: OverrideSpec, head: int | None) -> None:
        self.spec = spec
        self.heads = slice(None) if head is None else slice(head, head + 1)
        self.allowed: Tensor | None = None  # (B, H, T, S), for the weights that come next

    def note_mask(self, _input: Tensor, masked_scores: Tensor) -> None:
        """Record where masked scores (B, H, T, S) are above −∞; a weight of 0 may also be an unmasked small one."""
        self.allowed = masked_scores > -math.inf

    def replace_weights(self, _input: Tensor, weights: Tensor) -> Tensor:
        """Return the replaced weights (B, H, T, S); a query that may attend to none of the keys keeps its own."""
        original = weights[:, self.heads]
        target = _key_weights(self.spec, original).expand_as(original)
        if self.allowed is not None:
            target = target * self.allowed[:, self.heads]
        total = target.sum(-1, keepdim=True)
        replaced = weights.clone()
        replaced[:, self.heads] = torch.where(total > 0, target / total, original)
        return replaced


def _key_weights(spec: OverrideSpec, weights: Tensor) -> Tensor:
    """The weight of each key (S,), before masking."""
    keys = weights.size(-1)
    if isinstance(spec, str):
        return weights.new_ones(keys)
    values: Sequence[float] = spec if isinstance(spec, tuple) else [0.0] * spec + [1.0]
    padded = weights.new_zeros(max(keys, len(values)))
    padded[: len(values)] = weights.new_tensor(values)
    return padded[:keys]
