"""Greedy decoding: the most probable token at each step, whatever shares the batch."""

import pytest
import torch
from hypothesis import given

from family import DECODERS, Batch, batches, make
from regard.config import SpecialTokens
from regard.decoding import greedy, sample
from regard.decoding.greedy import EXTRA

TOKENS = SpecialTokens()
TRANSLATORS = [name for name in DECODERS if name.startswith("encoder-decoder")]


def by_hand(name: str, source: torch.Tensor) -> list[int]:
    """One sentence, the whole target decoded anew at each step."""
    network = make(DECODERS[name])
    written = [TOKENS.start]
    for _ in range(source.size(1) + EXTRA):
        logits = network(source, torch.tensor([written]))[0, -1]
        logits[[TOKENS.pad, TOKENS.start]] = -torch.inf
        written.append(int(logits.argmax()))
        if written[-1] == TOKENS.end:
            return written[1:-1]
    return written[1:]


@pytest.mark.parametrize("name", TRANSLATORS)
@given(batch=batches(rows=4, longest=4))
def test_a_batch_gives_what_each_sentence_gives_by_hand(name: str, batch: Batch) -> None:
    found = greedy(make(DECODERS[name]), batch.source, batch.source_real, TOKENS)
    for row, output in enumerate(found):
        assert output == by_hand(name, batch.row(row).source)


def test_an_output_has_at_most_fifty_tokens_more_than_its_source() -> None:
    network = make(DECODERS["encoder-decoder, narrow keys, biases, untied"])
    with torch.no_grad():
        dict(network.named_parameters())["output.bias"][TOKENS.end] = -1e9
    source = torch.randint(4, 20, (2, 6))
    real = torch.tensor([[True] * 6, [True] * 2 + [False] * 4])
    assert [len(output) for output in greedy(network, source, real, TOKENS)] == [56, 52]


def test_samples_follow_the_networks_distribution() -> None:
    network = make(DECODERS["decoder-only"])
    prompt = torch.tensor([5, 6, 7])
    wanted = network(prompt[None])[0, -1].detach().softmax(-1)
    drawn = torch.Generator().manual_seed(0)
    counts = torch.zeros(len(wanted), dtype=torch.float64)
    for _ in range(2000):
        counts[sample(network, prompt, 1, generator=drawn)[0]] += 1
    assert (counts / 2000 - wanted).abs().max() < 0.04


def test_a_low_temperature_is_greedy_and_a_seed_repeats() -> None:
    network = make(DECODERS["decoder-only"])
    prompt = torch.tensor([5, 6])
    cold = sample(network, prompt, 5, temperature=1e-6)
    written = prompt
    for token in cold:
        assert token == int(network(written[None])[0, -1].argmax())
        written = torch.cat([written, torch.tensor([token])])
    draws = [sample(network, prompt, 8, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
