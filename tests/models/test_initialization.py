"""Initialization: new networks have sound scales and learn. test_family_learns.py has further networks that learn."""

from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from family import DECODERS, features_of
from regard.config import (
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    ModelConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLanguageModelConfig,
    load_config,
)
from regard.models import build
from regard.nn import FeedForward, open_taps
from regard.nn.recurrent import RecurrentLayer

START = 2


def reversal(rows: int, generator: torch.Generator, length: int) -> tuple[Tensor, Tensor]:
    """Return random sequences of this length, and the same reversed."""
    source = torch.randint(3, 13, (rows, length), generator=generator)
    return source, source.flip(1)


def train(config: ModelConfig, steps: int, length: int = 6) -> float:
    """Train briefly on reversing sequences; return the accuracy per token on new ones."""
    generator = torch.Generator().manual_seed(0)
    network = build(config).train()
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3, betas=(0.9, 0.98))
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 50))

    def predict(rows: int) -> tuple[Tensor, Tensor]:
        source, target = reversal(rows, generator, length)
        start = torch.full((rows, 1), START)
        if config.translates:
            return network(source, torch.cat([start, target[:, :-1]], dim=1)), target
        whole = torch.cat([source, start, target[:, :-1]], dim=1)
        return network(whole)[:, source.size(1) :], target

    for _ in range(steps):
        logits, target = predict(32)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm_up.step()
    network.eval()
    with torch.no_grad():
        logits, target = predict(200)
    return (logits.argmax(-1) == target).float().mean().item()


RECURRENT: dict[str, Any] = {"vocab_size": 16, "width": 64, "layers": 1, "dropout": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "attention", "place"),
    [
        ("lstm", "additive", "before"),
        ("gru", "additive", "after"),
        ("lstm", "general", "after"),
    ],
)
def test_recurrent_networks_with_attention_learn_to_reverse(cell: Any, attention: Any, place: Any) -> None:
    torch.manual_seed(0)
    config = RecurrentEncoderDecoderConfig(**RECURRENT, cell=cell, attention=attention, attention_order=place)
    assert train(config, steps=250) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_one_state_holds_three_tokens(cell: Any) -> None:
    torch.manual_seed(0)
    config = RecurrentEncoderDecoderConfig(**RECURRENT, cell=cell, attention="none", bidirectional=False)
    assert train(config, steps=200, length=3) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_recurrent_language_models_learn_to_reverse(cell: Any) -> None:
    torch.manual_seed(0)
    assert train(RecurrentLanguageModelConfig(**RECURRENT, cell=cell), steps=300, length=3) > 0.9


def test_state_matrices_are_orthogonal_and_forget_gates_are_open() -> None:
    network = build(RecurrentLanguageModelConfig(vocab_size=16, width=8, layers=1, cell="lstm"))
    layer = network.get_submodule("decoder.layers.0")
    assert isinstance(layer, RecurrentLayer)
    _, h_weight, x_bias, h_bias = layer.weights()
    for gate in h_weight.split(8):
        torch.testing.assert_close(gate @ gate.T, torch.eye(8))
    assert (x_bias + h_bias).view(4, 8)[:, 0].tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("preset", ["tiny", "small", "gpt-char"])
def test_initial_logits_have_about_unit_variance(preset: str) -> None:
    config = load_config(preset, ["model.vocab_size=1000"]).model
    network = build(config).eval()
    ids = torch.randint(0, 1000, (4, 20))
    logits = network(ids, ids) if config.translates else network(ids)
    assert 0.5 < logits.std() < 2
    assert F.cross_entropy(logits.flatten(0, 1), torch.randint(0, 1000, (80,))) < 9  # ln 1000 = 6.9


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("order", ["post", "pre"])
def test_a_new_decoder_does_not_predict_the_current_token(
    order: Literal["post", "pre"], norm: Literal["layer", "rms"]
) -> None:
    sizes: dict[str, Any] = {"vocab_size": 1000, "width": 256, "layers": 2, "heads": 4, "feed_forward": 256}
    ids = torch.randint(0, 1000, (8, 20))
    config = EncoderDecoderConfig(**sizes, norm_order=order, norm=norm)
    logits = build(config).eval()(ids, ids)
    assert logits.gather(-1, ids[..., None]).mean().abs() < 4  # with plain gains it would be near √256


def test_the_residual_stream_does_not_grow_with_depth() -> None:
    ids = torch.randint(0, 50, (2, 16))
    for layers in (2, 32):
        config = DecoderOnlyConfig(vocab_size=50, width=64, heads=4, layers=layers, feed_forward=256, norm_order="pre")
        network = build(config).eval()
        last = f"decoder.layers.{layers - 1}.feed_forward_residual.sum"
        with open_taps(network, last) as values:
            network(ids)
        assert values[last].std() < 2.5


@pytest.mark.parametrize("order", ["post", "pre"])
def test_output_matrices_are_scaled_by_the_number_of_sublayers(order: Literal["post", "pre"]) -> None:
    network = build(
        EncoderDecoderConfig(vocab_size=50, width=64, layers=3, heads=4, feed_forward=256, norm_order=order)
    )
    for stack, number in (("encoder", 2 * 3), ("decoder", 3 * 3)):
        block = network.get_submodule(f"{stack}.layers.1.feed_forward")
        assert isinstance(block, FeedForward)
        ratio = block.output.weight.std() / block.inner.weight.std()  # both Xavier, with the same sizes
        torch.testing.assert_close(ratio, torch.tensor(number**-0.5), rtol=0.05, atol=0)


@pytest.mark.parametrize("name", DECODERS)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    config = DECODERS[name]
    network = build(config)
    ids = torch.randint(0, config.vocab_size, (3, 7))
    features = features_of(torch.ones_like(ids).bool())
    logits = network(ids, ids, source_features=features) if config.translates else network(ids)
    logits.square().sum().backward()
    for parameter_name, parameter in network.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name
