"""How the lab of peeking predicts: step by step equals all at once where nothing ahead can be seen."""

import torch
from torch.nn.functional import cross_entropy

from regard.config import DecoderOnlyConfig
from regard.labs.peeking import step_by_step, surprise, write
from regard.models import build
from regard.models.network import Network

TEXT = torch.randint(4, 12, (3, 9), generator=torch.Generator().manual_seed(0))


def network(mask: bool) -> Network:
    torch.manual_seed(0)
    config = DecoderOnlyConfig(vocab_size=12, width=16, layers=2, heads=2, feed_forward=32, causal_mask=mask)
    return build(config).eval()


def at_once(network: Network) -> float:
    with torch.no_grad():
        logits = network.logits(network.decode(TEXT[:, :-1]))
    return float(cross_entropy(logits.flatten(0, 1), TEXT[:, 1:].flatten()))


def test_step_by_step_is_as_good_as_all_at_once_only_with_the_mask() -> None:
    honest, peeking = network(True), network(False)
    assert abs(step_by_step(honest, TEXT[:, :-1], TEXT[:, 1:]) - at_once(honest)) < 1e-5
    assert abs(step_by_step(peeking, TEXT[:, :-1], TEXT[:, 1:]) - at_once(peeking)) > 1e-3


def test_surprise_counts_only_what_was_written() -> None:
    honest = network(True)
    assert abs(surprise(honest, TEXT[:, :1], TEXT[:, 1:]) - at_once(honest)) < 1e-5


def test_what_is_written_has_the_length_that_is_asked_for() -> None:
    written = write(network(True), TEXT[:, :4], 5, seed=0)
    assert written.shape == (3, 5)
    assert int(written.min()) > 3  # no special token
