"""Incremental loss equals parallel loss with the causal mask only."""

import torch
from torch.nn.functional import cross_entropy

from regard.config import DecoderOnlyConfig
from regard.labs.peeking import continuation_loss, generate, incremental_loss
from regard.models import build
from regard.models.network import Network

TEXT = torch.randint(4, 12, (3, 9), generator=torch.Generator().manual_seed(0))


def decoder(causal_mask: bool) -> Network:
    torch.manual_seed(0)
    config = DecoderOnlyConfig(vocab_size=12, width=16, layers=2, heads=2, feed_forward=32, causal_mask=causal_mask)
    return build(config).eval()


def parallel_loss(network: Network) -> float:
    with torch.no_grad():
        logits = network.logits(network.decode(TEXT[:, :-1]))
    return float(cross_entropy(logits.flatten(0, 1), TEXT[:, 1:].flatten()))


def test_incremental_loss_equals_parallel_loss_only_with_the_mask() -> None:
    causal, unmasked = decoder(True), decoder(False)
    assert abs(incremental_loss(causal, TEXT[:, :-1], TEXT[:, 1:]) - parallel_loss(causal)) < 1e-5
    assert abs(incremental_loss(unmasked, TEXT[:, :-1], TEXT[:, 1:]) - parallel_loss(unmasked)) > 1e-3


def test_continuation_loss_excludes_the_prompt() -> None:
    causal = decoder(True)
    assert abs(continuation_loss(causal, TEXT[:, :1], TEXT[:, 1:]) - parallel_loss(causal)) < 1e-5


def test_generated_text_has_the_requested_length() -> None:
    generated = generate(decoder(True), TEXT[:, :4], 5, seed=0)
    assert generated.shape == (3, 5)
    assert int(generated.min()) > 3  # no special token
