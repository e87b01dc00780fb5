"""Mixture of experts: the sparse path equals the dense formula, with gradients, and padding is not counted."""

import copy
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from device_checks import objective_and_batch
from family import FAMILY, MIXTURES, TOLERANCE, make
from regard.config import AdamConfig, DecoderOnlyConfig, load_config
from regard.errors import ConfigError
from regard.models import build
from regard.models.summary import FlopCounter, summarize
from regard.nn import MixtureOfExperts, cpu, open_taps
from regard.nn.experts import load_balancing_loss
from regard.nn.functional import Dropout, autocast
from regard.nn.transformer import Stack
from regard.training.batches import TokenBatch
from regard.training.distributed import SINGLE_PROCESS, ProcessGroup
from regard.training.load_balancing import LoadBalancing
from regard.training.losses import CausalLMObjective
from regard.training.optimizers import build_optimizer, update

ACTIVATIONS = get_args(DecoderOnlyConfig.model_fields["activation"].annotation)
CPU = torch.device("cpu")


def mixture(activation: str = "relu", experts: int = 4, per_token: int = 2, **changes: Any) -> MixtureOfExperts:
    """The experts of a small network in double precision; their choices differ among tokens."""
    sizes: dict[str, Any] = {"vocab_size": 11, "width": 8, "layers": 1, "heads": 2, "feed_forward": 6}
    numbers: dict[str, Any] = {"experts": experts, "experts_per_token": per_token, "activation": activation}
    config = DecoderOnlyConfig(**sizes, **numbers, **changes)
    layer = build(config).double().get_submodule("decoder.layers.0.feed_forward")
    assert isinstance(layer, MixtureOfExperts)
    nn.init.normal_(layer.router.weight)
    return layer


def formula(layer: MixtureOfExperts, x: Tensor) -> Tensor:
    """Σ_e g_e(x) FFN_e(x), one token x (C) at a time."""
    probabilities = (layer.router.weight @ x).softmax(0)
    chosen = sorted(range(len(layer.experts)), key=lambda n: -probabilities[n].item())[: layer.per_token]
    total = sum(probabilities[n] for n in chosen)
    return sum((probabilities[n] / total * layer.experts[n](x) for n in chosen), torch.zeros_like(x))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**31), data=st.data())
def test_all_paths_equal_the_formula_with_their_gradients(activation: str, seed: int, data: st.DataObject) -> None:
    torch.manual_seed(seed)
    experts = data.draw(st.integers(2, 5))
    layer = mixture(activation, experts, data.draw(st.integers(2, experts)))
    x = torch.randn(*data.draw(st.sampled_from([(1, 1), (7,), (2, 3)])), 8, dtype=torch.double, requires_grad=True)
    direction = torch.randn_like(x)

    def gradients(y: Tensor) -> list[Tensor]:
        used = [x, *layer.parameters()]
        return [y, *torch.autograd.grad((y * direction).sum(), used, allow_unused=True, materialize_grads=True)]

    sparse = gradients(layer(x))
    with open_taps(layer):
        dense = gradients(layer(x))
    plain = gradients(torch.stack([formula(layer, token) for token in x.flatten(0, -2)]).view_as(x))
    for a, b, c in zip(sparse, dense, plain, strict=True):
        torch.testing.assert_close(a, c, atol=TOLERANCE, rtol=0)
        torch.testing.assert_close(b, c, atol=TOLERANCE, rtol=0)
    with torch.no_grad():  # without empty products
        torch.testing.assert_close(layer(x), plain[0], atol=TOLERANCE, rtol=0)


def test_dropout_applies_to_the_hidden_units_of_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer, x = mixture("swiglu", activation_dropout=0.5).train(), torch.randn(3, 4, 8).double()
    assert not torch.equal(layer(x), layer(x))
    undropped = layer.eval()(x)
    torch.testing.assert_close(undropped, layer(x))
    monkeypatch.setattr(Dropout, "forward", lambda self, x: x * (x > 0) * 2)  # the same units in both paths
    sparse = layer(x)
    with open_taps(layer):
        torch.testing.assert_close(layer(x), sparse, atol=TOLERANCE, rtol=0)
    assert not torch.allclose(sparse, undropped)


def test_routers_compute_in_float32() -> None:
    torch.manual_seed(0)
    layer, x = mixture("swiglu").float(), torch.randn(5, 9, 8)
    exact = (x @ layer.router.weight.T).softmax(-1)
    with autocast(torch.bfloat16, CPU):
        torch.testing.assert_close(layer.route(x), exact, atol=1e-6, rtol=0)
        sparse = layer(x)
        with open_taps(layer) as values:
            dense = layer(x)
    assert sparse.dtype == torch.bfloat16
    assert values["gates"].dtype == torch.float32
    torch.testing.assert_close(sparse, dense, atol=0.02, rtol=0.02)
    torch.testing.assert_close(sparse.float(), layer(x), atol=0.05, rtol=0.05)


def test_an_expert_without_tokens_has_a_gradient() -> None:
    layer = mixture(experts=3)
    nn.init.ones_(layer.router.weight)
    with torch.no_grad():
        layer.router.weight[1] = -1.0
    layer(torch.ones(4, 8).double()).sum().backward()
    for n, expert in enumerate(layer.experts):
        assert [bool(p.grad is not None and p.grad.any()) for p in expert.parameters()] == [n != 1] * 4


def test_gates_are_shown_and_can_be_replaced() -> None:
    torch.manual_seed(0)
    layer, x = mixture(experts=3, per_token=2), torch.randn(1, 5, 8).double()
    with open_taps(layer) as values:
        layer(x)
    gates, outputs = values["gates"], values["expert_outputs"]
    assert outputs.shape == (1, 3, 5, 8)
    torch.testing.assert_close(gates.sum(-1), torch.ones(1, 5).double())
    assert ((gates > 0).sum(-1) == 2).all()
    torch.testing.assert_close(torch.einsum("bte,betc->btc", gates, outputs), layer(x))
    hook = layer.gates.register_forward_hook(lambda _module, _arguments, x: torch.ones_like(x))
    torch.testing.assert_close(layer(x), outputs.sum(1))
    hook.remove()
    points = {point.name: point for point in layer.points()}
    transform = points["chosen"].transform
    assert transform is not None
    chosen = transform(gates[0])
    for token, numbers in enumerate(chosen.long().tolist()):
        assert set(numbers) == set(gates[0, token].nonzero().flatten().tolist())
        assert gates[0, token, numbers[0]] >= gates[0, token, numbers[1]]


# --- load balancing ---------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), experts=st.integers(2, 6), per_token=st.integers(1, 2))
def test_the_loss_is_that_of_transformers_divided_by_the_experts_per_token(
    seed: int, experts: int, per_token: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(12, experts, generator=generator, dtype=torch.double)
    mask = torch.rand(2, 6, generator=generator) < 0.7
    mask[0, 0] = True
    expected = load_balancing_loss_func((logits,), experts, per_token, attention_mask=mask.long()) / per_token
    probabilities = logits.softmax(-1)[mask.flatten()]
    choices = torch.bincount(probabilities.topk(per_token).indices.flatten(), minlength=experts)
    loss = load_balancing_loss(probabilities.sum(0), choices, mask.sum()[None])
    torch.testing.assert_close(loss, expected.double(), atol=1e-6, rtol=0)


def test_the_loss_is_between_one_and_the_number_of_experts() -> None:
    tokens = torch.tensor([6.0])
    assert load_balancing_loss(torch.tensor([6.0, 0.0, 0.0]), torch.tensor([6.0, 0, 0]), tokens) == 3.0
    assert load_balancing_loss(torch.tensor([2.0, 2.0, 2.0]), torch.tensor([4, 4, 4]), tokens) == pytest.approx(1.0)


def balance_of(name: str, batch: Any, group: ProcessGroup = SINGLE_PROCESS) -> tuple[Tensor, list[Tensor]]:
    """The load-balancing loss of a batch with 10 targets, and its gradients at the routers."""
    torch.manual_seed(0)
    network = make(FAMILY[name]).train()
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(module, MixtureOfExperts):
            nn.init.normal_(module.router.weight)
    balancing = LoadBalancing(network, 0.5)
    objective = CausalLMObjective(network, 0.0)
    with balancing.recording():
        objective(batch)
    loss = balancing.loss(10, group)
    assert loss.weighted.item() == pytest.approx(0.5 * loss.value.item())
    routers = [p for name, p in network.named_parameters() if "router" in name]
    return loss.value, list(torch.autograd.grad(loss.weighted, routers))


@pytest.mark.parametrize("fast_paths", [True, False])
def test_padding_and_its_ids_do_not_count(fast_paths: bool) -> None:
    torch.manual_seed(0)
    name = "decoder-only, experts of SwiGLU, rotary"
    ids, mask = torch.randint(0, 23, (2, 6)), torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]).bool()
    documents = torch.tensor([[1] * 6 + [2] * 3])  # the same texts, packed in one row
    packed = torch.cat([ids[0], ids[1, :3]])[None]
    batches = [
        TokenBatch(ids, ids, mask),
        TokenBatch(torch.where(mask, ids, 7), ids, mask),
        TokenBatch(packed, packed, features={"document_ids": documents}),
        TokenBatch(
            torch.cat([packed, packed[:, :2]], 1),
            torch.cat([packed, packed[:, :2]], 1),
            torch.arange(11)[None] < 9,
            features={"document_ids": torch.cat([documents, documents[:, :2] * 0], 1)},
        ),
    ]
    if fast_paths:
        results = [balance_of(name, batch) for batch in batches]
    else:
        with cpu.disabled():
            results = [balance_of(name, batch) for batch in batches]
    assert 10.01 < float(results[0][0]) < 40
    for value, gradients in results[1:]:
        torch.testing.assert_close(value, results[0][0], atol=TOLERANCE, rtol=0)
        for gradient, expected in zip(gradients, results[0][1], strict=True):
            assert gradient.any()
            torch.testing.assert_close(gradient, expected, atol=TOLERANCE, rtol=0)


def test_the_parts_of_several_processes_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    name = "encoder-decoder, three of five experts"
    ids, source = torch.randint(0, 23, (3, 4)), torch.randint(0, 23, (3, 5))
    batch = TokenBatch(ids, ids, source=source)
    whole, whole_gradients = balance_of(name, batch)
    counts: list[Tensor] = []

    def note(_group: ProcessGroup, values: Tensor) -> Tensor:
        counts.append(values)
        return values

    monkeypatch.setattr(ProcessGroup, "sum", note)
    for rank in range(2):
        balance_of(name, batch.shard(rank, 2))
    monkeypatch.setattr(ProcessGroup, "sum", lambda self, x: counts[0] + counts[1])
    parts = [balance_of(name, batch.shard(rank, 2)) for rank in range(2)]
    torch.testing.assert_close(parts[0][0] + parts[1][0], whole, atol=TOLERANCE, rtol=0)
    for a, b, expected in zip(parts[0][1], parts[1][1], whole_gradients, strict=True):
        torch.testing.assert_close(a + b, expected, atol=TOLERANCE, rtol=0)


def steps(name: str, *, checkpointing: bool = False, compiled: bool = False, weight: float = 0.5) -> list[float]:
    """Numbers of two updates with dropout."""
    torch.manual_seed(0)
    objective, batch = objective_and_batch(FAMILY[name], meta=False)
    for stack in (module for module in objective.modules() if isinstance(module, Stack)):
        stack.gradient_checkpointing = checkpointing
        stack.compile_options = {"backend": "eager"} if compiled else None
    balancing = LoadBalancing.of(objective.network, weight)
    optimizer = build_optimizer(objective.network, AdamConfig())
    numbers = []
    for step in range(2):
        torch.manual_seed(step)
        result = update(objective, optimizer, [batch, batch], 1e-2, balancing=balancing)
        numbers += [result.loss, result.balance, result.grad_norm]
    logs = [module.log for module in objective.modules() if isinstance(module, MixtureOfExperts)]
    assert logs
    assert all(log is not None and not log.is_open and not log.entries for log in logs)
    return numbers


@pytest.mark.parametrize("name", MIXTURES)
def test_checkpointing_changes_no_number(name: str) -> None:
    assert steps(name, checkpointing=True) == steps(name)


def test_the_weight_scales_what_is_added_to_the_loss() -> None:
    without, once, twice = (steps(MIXTURES[0], weight=weight) for weight in (0.0, 1.0, 2.0))
    assert once[1] == without[1] > 0
    assert once[0] - without[0] == pytest.approx(once[1], rel=1e-5)
    assert twice[0] - without[0] == pytest.approx(2 * once[1], rel=1e-5)
    assert once[2] != without[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch.compile
def test_experts_stay_outside_of_compiled_graphs() -> None:
    torch._dynamo.reset()
    name = MIXTURES[0]
    with cpu.disabled():
        assert steps(name, compiled=True) == pytest.approx(steps(name), rel=1e-5)
        assert steps(name, compiled=True, checkpointing=True) == pytest.approx(steps(name), rel=1e-5)


def test_networks_without_experts_are_not_balanced_and_copies_have_no_log() -> None:
    assert LoadBalancing.of(build(FAMILY["decoder-only"]), 1.0) is None
    network = build(FAMILY[MIXTURES[0]])
    LoadBalancing(network, 1.0)
    copied = [module for module in copy.deepcopy(network).modules() if isinstance(module, MixtureOfExperts)]
    assert [module.log for module in copied] == [None, None]


# --- settings and counts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("experts", [0, 1])
def test_one_expert_is_a_feed_forward_layer(experts: int) -> None:
    config = FAMILY["decoder-only"].model_copy(update={"experts": experts, "experts_per_token": 5})
    assert {name for name, _ in build(config).named_parameters()} == {
        name for name, _ in build(FAMILY["decoder-only"]).named_parameters()
    }


@pytest.mark.parametrize(
    ("experts", "message"),
    [
        (
            ["experts=3", "experts_per_token=4"],
            r"experts_per_token = 4.* is more than model.experts = 3: use at most 3",
        ),
        (["experts=3", "experts_per_token=1"], r"experts_per_token = 1.* leaves one gate.* never learns: use 2"),
        (["experts=4", "feed_forward=0"], r"model.experts = 4.* but model.feed_forward = 0 removes these: set"),
    ],
)
def test_impossible_numbers_of_experts_are_errors(experts: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config("tiny", [f"model.{setting}" for setting in experts])


@pytest.mark.parametrize("name", MIXTURES)
def test_a_token_uses_some_of_the_parameters(name: str) -> None:
    network = make(FAMILY[name])
    layers = [module for module in network.modules() if isinstance(module, MixtureOfExperts)]
    unused = sum(
        parameter.numel()
        for layer in layers
        for expert in layer.experts[layer.per_token :]
        for parameter in expert.parameters()
    )
    summary = summarize(network)
    assert summary.parameters - summary.active_parameters == unused > 0
    assert summary.as_dict()["active_parameters"] == summary.active_parameters
    alone = summarize(make(FAMILY["decoder-only"]))
    assert alone.active_parameters == alone.parameters


def test_flops_are_those_of_the_chosen_experts() -> None:
    network = make(FAMILY["decoder-only, experts of SwiGLU, rotary"]).float()
    layers = [module for module in network.modules() if isinstance(module, MixtureOfExperts)]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        for layer in layers:
            layer(torch.randn(1, 10, 16))
    summary = summarize(network, 12)
    feed_forward = next(part for part in summary.parts if "feed-forward" in part.name)
    assert feed_forward.flops * 10 == counter.get_total_flops()
    assert FlopCounter(network).training_flops(torch.tensor([12])) == 3 * 12 * summary.forward_flops
