"""Networks learn to predict the previous token from position schemes inside attention."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from family import ENCODERS, make
from regard.config import DecoderOnlyConfig, EncoderOnlyConfig
from regard.models import build

SIZES: dict[str, Any] = {"vocab_size": 12, "width": 32, "heads": 4, "layers": 1, "feed_forward": 64, "dropout": 0.0}
LENGTH = 10
ROWS = 32  # of a batch


def trained_accuracy(
    kind: type[DecoderOnlyConfig | EncoderOnlyConfig], positions: str, steps: int = 100, **sizes: int
) -> float:
    """Train briefly to predict the previous token; return the accuracy on new sequences."""
    torch.manual_seed(0)
    network = build(kind(**SIZES | {"positions": positions} | sizes)).train()
    head = torch.nn.Linear(SIZES["width"], SIZES["vocab_size"])
    optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], lr=8e-3)

    def predict(rows: int) -> tuple[Tensor, Tensor]:
        ids = torch.randint(0, SIZES["vocab_size"], (rows, LENGTH))
        states = network.decode(ids) if network.decodes else network.encode(ids).states
        return head(states)[:, 1:], ids[:, :-1]

    for _ in range(steps):
        logits, before = predict(ROWS)
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), before.flatten()).backward()
        optimizer.step()
    with torch.no_grad():
        logits, before = predict(200)
    return (logits.argmax(-1) == before).float().mean().item()


@pytest.mark.parametrize("positions", ["rotary", "relative"])
def test_decoders_learn_the_previous_token(positions: str) -> None:
    assert trained_accuracy(DecoderOnlyConfig, positions) > 0.95


@pytest.mark.slow
def test_a_decoder_with_alibi_learns_the_previous_token() -> None:
    assert trained_accuracy(DecoderOnlyConfig, "alibi", steps=250, layers=2) > 0.95


@pytest.mark.parametrize("positions", ["rotary", "relative"])
def test_encoders_learn_the_previous_token(positions: str) -> None:
    assert trained_accuracy(EncoderOnlyConfig, positions) > 0.95


def test_without_positions_an_encoder_cannot_learn_it() -> None:
    assert trained_accuracy(EncoderOnlyConfig, "none", layers=2) < 0.5


def test_an_encoder_with_alibi_cannot_distinguish_a_text_from_its_reversal() -> None:
    network = make(ENCODERS["encoder-only, ALiBi"])
    ids = torch.tensor([[4, 7, 1, 9, 2]])
    torch.testing.assert_close(network.encode(ids).states, network.encode(ids.flip(1)).states.flip(1))
    rotary = make(ENCODERS["encoder-only, rotary"])
    assert (rotary.encode(ids).states - rotary.encode(ids.flip(1)).states.flip(1)).abs().max() > 1e-2
