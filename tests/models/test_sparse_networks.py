"""Networks with sparse attention: parameters, saved folders, rolling KV cache, learning."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from family import TOLERANCE, make
from regard.config import (
    BigBirdAttentionConfig,
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    LinformerAttentionConfig,
    WindowAttentionConfig,
)
from regard.models import build, load_network, save
from regard.nn import DecoderCache, FullAttention, KeyValueCache

SMALL: dict[str, Any] = {"vocab_size": 16, "width": 32, "heads": 4, "layers": 2, "feed_forward": 64, "dropout": 0.0}
LINFORMER = LinformerAttentionConfig(projected_length=8, max_length=24)
BIGBIRD = BigBirdAttentionConfig(block_size=2, window_blocks=1, global_blocks=1, random_blocks=2)


def test_decoders_have_full_attention_if_the_kernel_is_for_encoders() -> None:
    for attention in (LINFORMER, BIGBIRD):
        network = build(EncoderDecoderConfig(**SMALL, attention=attention))
        kernels = {name: type(part) for name, part in network.named_modules() if name.endswith(".kernel")}
        assert {kind for name, kind in kernels.items() if name.startswith("decoder")} == {FullAttention}
        assert {kind for name, kind in kernels.items() if name.startswith("encoder")} != {FullAttention}


def test_shared_linformer_projections_are_saved_once(tmp_path: Path) -> None:
    plain = sum(parameter.numel() for parameter in build(EncoderOnlyConfig(**SMALL)).parameters())
    matrices = {"none": 2 * 2 * 4, "headwise": 2 * 2, "key-value": 2, "layerwise": 1}
    for sharing, count in matrices.items():
        attention = LINFORMER.model_copy(update={"sharing": sharing})
        config = Config(model=EncoderOnlyConfig(**SMALL, attention=attention))
        network = build(config.model).eval()
        assert sum(parameter.numel() for parameter in network.parameters()) == plain + count * 8 * 24
        save(tmp_path / sharing, network, config)
        loaded = load_network(tmp_path / sharing).network
        assert sum(parameter.numel() for parameter in loaded.parameters()) == plain + count * 8 * 24
        ids = torch.randint(0, 16, (2, 9))
        assert torch.equal(loaded(ids), network(ids))


def test_a_loaded_bigbird_has_the_same_random_blocks(tmp_path: Path) -> None:
    config = Config(model=EncoderOnlyConfig(**SMALL, attention=BIGBIRD.model_copy(update={"seed": 5})))
    network = build(config.model).eval()
    save(tmp_path / "bigbird", network, config)
    ids = torch.randint(0, 16, (2, 40))
    assert torch.equal(load_network(tmp_path / "bigbird").network(ids), network(ids))


def test_the_maximum_length_is_the_smaller_of_positions_and_projections() -> None:
    assert EncoderOnlyConfig(attention=LINFORMER).max_length == 24
    assert EncoderOnlyConfig(attention=LINFORMER, positions=LearnedPositionsConfig(max_length=20)).max_length == 20
    assert EncoderOnlyConfig(attention=BIGBIRD).max_length is None


@pytest.mark.parametrize("attention", [WindowAttentionConfig(window=2), BIGBIRD])
def test_a_long_batch_equals_its_rows_for_any_padding(
    attention: WindowAttentionConfig | BigBirdAttentionConfig,
) -> None:
    network = make(EncoderOnlyConfig(**SMALL, attention=attention))
    ids = torch.randint(0, 16, (4, 150))
    mask = torch.rand(4, 150) < torch.tensor([[0.2], [0.6], [0.9], [1.1]])
    states = network.encode(ids, mask).states
    for row in range(4):
        alone = network.encode(ids[row][mask[row]][None]).states[0]
        torch.testing.assert_close(states[row][mask[row]], alone, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("step", [1, 7])
@pytest.mark.parametrize("padded", [False, True])
def test_a_rolling_cache_equals_uncached_decoding_and_stays_small(step: int, padded: bool) -> None:
    network = make(DecoderOnlyConfig(**SMALL, attention=WindowAttentionConfig(window=3)))
    ids = torch.randint(0, 16, (2, 105))
    mask = torch.rand(2, 105) < 0.7 if padded else torch.ones(2, 105).bool()
    mask[:, :50] = True  # keys that were dropped before the first padding are not needed
    cache = network.new_cache()
    parts = [
        network.decode(ids[:, at : at + step], cache=cache, mask=mask[:, at : at + step]) for at in range(0, 105, step)
    ]
    whole = network.decode(ids, mask=mask)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=TOLERANCE, rtol=0)
    assert isinstance(cache, DecoderCache)
    kept = cache.layers[0].own
    assert cache.length == 105
    assert padded or kept.length < 50


def test_a_cache_keeps_at_least_max_past_tokens() -> None:
    cache, tokens = KeyValueCache(), torch.arange(200.0).view(1, 1, 200, 1)
    for at in range(200):
        keys, values = cache.append(tokens[:, :, at : at + 1], -tokens[:, :, at : at + 1], max_past=20)
        assert torch.equal(keys[:, :, -21:], tokens[:, :, max(0, at - 20) : at + 1])
        assert torch.equal(keys, -values)
        assert keys.size(2) <= 55  # half as many again as the 36 that are needed to drop 16 tokens


def test_no_gradient_from_later_tokens_or_from_outside_the_window() -> None:
    config = DecoderOnlyConfig(**{**SMALL, "layers": 1}, attention=WindowAttentionConfig(window=3))
    network = make(config)
    table = network.get_parameter("decoder.embedding.weight")
    ids = torch.arange(16).repeat(6)[:80][None]
    ids = torch.cat([ids[:, :40].clamp(max=7), ids[:, 40:] % 8 + 8], dim=1)  # ids 8 to 15 occur in the second half only
    for at, outside in ((39, slice(8, 16)), (60, slice(0, 8))):
        (gradient,) = torch.autograd.grad(network.decode(ids)[0, at].sin().sum(), table)
        assert (gradient[outside] == 0).all()
        assert (gradient != 0).any()


def repeating(rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sixty tokens, and for each one the token two before it."""
    source = torch.randint(3, 13, (rows, 60), generator=generator)
    return source, F.pad(source, (2, 0), value=0)[:, :60]


@pytest.mark.slow
def test_a_decoder_learns_from_texts_that_are_longer_than_its_window() -> None:
    """Short tasks are in test_family_learns.py, for every kind of sparse attention."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    network = build(DecoderOnlyConfig(**SMALL, norm_order="pre", attention=WindowAttentionConfig(window=4))).train()
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3, betas=(0.9, 0.98))
    for _ in range(150):
        source, target = repeating(8, generator)
        optimizer.zero_grad()
        F.cross_entropy(network(source).flatten(0, 1), target.flatten()).backward()
        optimizer.step()
    with torch.no_grad():
        source, target = repeating(50, generator)
        assert (network(source).argmax(-1) == target).float().mean() > 0.9
