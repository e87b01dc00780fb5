"""Compiled blocks and gradient checkpointing: the same losses and gradients, and one graph per block."""

import shutil
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from device_checks import objective_and_batch
from family import DECODERS, ENCODERS, FAMILY, RECURRENT
from regard.config import ATTENTION, POSITIONS, TrainingConfig, TransformerConfig
from regard.errors import ConfigError
from regard.models import build
from regard.nn import cpu
from regard.nn.transformer import Stack
from regard.training.environment import configure_layers

COMPILED = ["encoder-decoder", "decoder-only, rotary in halves"]
OTHERS = [  # with the two above: every attention kernel and every position scheme
    "encoder-decoder, BigBird",
    "encoder-decoder, Linformer",
    "encoder-decoder, window",
    "decoder-only, grouped-query, ALiBi, window",
    "decoder-only, learned positions",
    "decoder-only, no feed-forward",
    "decoder-only, relative per head",
    "encoder-decoder, syntax per head, window",
    "decoder-only, normalized queries and keys, squared ReLU, capped logits",
    "decoder-only, wide heads, YaRN, window in some layers",
    "encoder-decoder, bucket positions, gates of GELU",
    "decoder-only, norms on both sides, capped scores, window in some layers",
]


def stacks(network: nn.Module) -> list[Stack]:
    return [module for module in network.modules() if isinstance(module, Stack)]


def gradients(
    name: str, *, checkpointing: bool = False, compile_options: Mapping[str, Any] | None = None
) -> list[Tensor]:
    """The loss and the gradients of a batch, with dropout."""
    torch.manual_seed(0)
    objective, batch = objective_and_batch(FAMILY[name], meta=False)
    for stack in stacks(objective):
        stack.gradient_checkpointing, stack.compile_options = checkpointing, compile_options
    torch.manual_seed(1)
    loss = objective(batch).loss
    loss.backward()
    return [loss.detach(), *(p.grad for p in objective.parameters() if p.grad is not None)]


@pytest.mark.parametrize("fast_paths", [True, False])
@pytest.mark.parametrize("name", [*COMPILED, "encoder-decoder, relative", "encoder-decoder, BigBird"])
def test_checkpointing_changes_no_gradient(name: str, fast_paths: bool) -> None:
    if fast_paths:
        plain, recomputed = gradients(name), gradients(name, checkpointing=True)
    else:
        with cpu.disabled():
            plain, recomputed = gradients(name), gradients(name, checkpointing=True)
    assert len(plain) == len(recomputed)
    for a, b in zip(plain, recomputed, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_checkpointing_keeps_fewer_activations() -> None:
    def saved(checkpointing: bool) -> int:
        total = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.numel()
            return tensor

        objective, batch = objective_and_batch(DECODERS["decoder-only"], meta=False)
        configure_layers(objective, TrainingConfig(gradient_checkpointing=checkpointing))
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            objective(batch)
        return total

    assert saved(True) < saved(False) / 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch.compile
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_block_is_one_graph_with_the_same_gradients(name: str) -> None:
    torch._dynamo.reset()
    with cpu.disabled():  # compiled blocks use the plain formulas
        plain = gradients(name)
        compiled = gradients(name, compile_options={"backend": "eager", "fullgraph": True})  # a graph break is an error
        both = gradients(name, checkpointing=True, compile_options={"backend": "aot_eager", "fullgraph": True})
    for a, b, c in zip(plain, compiled, both, strict=True):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(a, c)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch.compile
@pytest.mark.parametrize("name", OTHERS)
def test_a_compiled_block_with_any_attention_and_positions_is_one_graph(name: str) -> None:
    torch._dynamo.reset()
    with cpu.disabled():
        plain, compiled = gradients(name), gradients(name, compile_options={"backend": "eager", "fullgraph": True})
    for a, b in zip(plain, compiled, strict=True):
        torch.testing.assert_close(a, b)


def test_all_kernels_and_position_schemes_are_compiled() -> None:
    models = [FAMILY[name] for name in (*COMPILED, *OTHERS)]
    compiled = [model for model in models if isinstance(model, TransformerConfig)]
    for name, registry in (("attention", ATTENTION), ("positions", POSITIONS)):
        own = {kind for kind, config in registry.items() if config.__module__.startswith("regard.")}  # no plugins
        assert {getattr(model, name).kind for model in compiled} == own


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch.compile
def test_batches_of_any_size_share_a_graph() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    network = build(DECODERS["decoder-only"]).train()
    stacks(network)[0].compile_options = {"backend": "eager", "fullgraph": True}
    for rows, length in ((2, 5), (3, 7), (5, 11), (4, 9), (6, 3), (2, 12)):
        network(torch.ones(rows, length, dtype=torch.long), torch.arange(length) < torch.arange(rows)[:, None] + 1)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3


def test_blocks_are_not_compiled_outside_of_training() -> None:
    network = build(ENCODERS["encoder-only"]).eval()
    stacks(network)[0].compile_options = {"backend": "none of these"}
    assert network(torch.ones(1, 3, dtype=torch.long)).shape == (1, 16)
    with pytest.raises(Exception, match="none of these"):
        network.train()(torch.ones(1, 3, dtype=torch.long))


def test_settings_reach_the_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    network = build(DECODERS["encoder-decoder"])
    configure_layers(network, TrainingConfig(compile=True, gradient_checkpointing=True))
    assert [(stack.gradient_checkpointing, stack.compile_options) for stack in stacks(network)] == [(True, {})] * 2
    configure_layers(network, TrainingConfig())
    assert [(stack.gradient_checkpointing, stack.compile_options) for stack in stacks(network)] == [(False, None)] * 2


@pytest.mark.parametrize("setting", ["compile", "gradient_checkpointing"])
def test_recurrent_networks_have_no_blocks(setting: str) -> None:
    network = build(RECURRENT["recurrent language model, GRU"])
    with pytest.raises(ConfigError, match=rf"training\.{setting} = true is for Transformers"):
        configure_layers(network, TrainingConfig(**{setting: True}))  # type: ignore[arg-type]


def test_compiling_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"training\.compile = true needs a C\+\+ compiler.*install g\+\+"):
        configure_layers(build(DECODERS["decoder-only"]), TrainingConfig(compile=True))
