"""The planner: memory and communication follow from formulas, and its trace is what the network computes."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from regard.config import (
    Config,
    ConfigSource,
    DecoderOnlyConfig,
    LearnedPositionsConfig,
    MuonConfig,
    TrainingConfig,
    load_config,
    validate_sources,
)
from regard.errors import ConfigError
from regard.models import build
from regard.models.assembly import build_meta
from regard.models.summary import summarize
from regard.nn import cpu
from regard.training.batches import TokenBatch
from regard.training.device_specs import DEVICES, GB, GIB, Device, custom_device, find_device, parse_devices
from regard.training.layout_plan import DeviceLayout, LayoutPlan, Plan, launch_command, layout_settings
from regard.training.losses import CausalLMObjective
from regard.training.parallel import check_sharding, check_tensor_parallel
from regard.training.planner import _layouts, all_reduce_bytes, faster_precision, gather_bytes, make_plan
from regard.training.step_trace import StepTrace, trace_step

SMALL: dict[str, Any] = {"vocab_size": 100, "width": 32, "layers": 2, "heads": 8, "feed_forward": 64}
A100 = DEVICES["A100-80GB"]
LENGTH, ROWS = 16, 32


def config(**training: Any) -> Config:
    model = DecoderOnlyConfig(**SMALL, norm_order="pre", positions=LearnedPositionsConfig(max_length=64))
    return Config(model=model, training=TrainingConfig(batch_tokens=ROWS * LENGTH, **training))


@pytest.fixture(scope="module", autouse=True)
def _repeated_traces() -> Iterator[None]:
    """Trace equal networks and batches once: the same trace is used for many devices."""
    traces: dict[Any, StepTrace] = {}

    def cached(settings: Config, rows: int, *arguments: Any, **options: Any) -> StepTrace:
        key = settings.model.model_dump_json(), rows, *arguments, *options.values()
        if key not in traces:
            traces[key] = trace_step(settings, rows, *arguments, **options)
        return traces[key]

    with mock.patch("regard.training.planner.trace_step", cached):
        yield


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(config(), A100, 8, LENGTH)


def layout(plan: Plan, name: str) -> LayoutPlan:
    return next(row for row in plan.layouts if row.layout.name == name)


# --- the trace --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_cpu", [False, True])
def test_traced_flops_are_those_of_the_summary(on_cpu: bool) -> None:
    settings = config(label_smoothing=0.0)
    trace = trace_step(settings, 4, LENGTH, torch.float32, on_cpu=on_cpu)
    flops = sum(work.flops for phase in (trace.forward, trace.backward) for work in phase.values())
    expected = summarize(build_meta(settings.model), LENGTH).training_flops * 4 * LENGTH
    if not on_cpu:  # fused attention: half of the products with a causal mask, and the scores computed twice
        attention = 2 * 2 * LENGTH * 32 * 2 * 4 * LENGTH  # two products, of all heads, in two layers
        expected += round(attention * (3.5 / 2 - 3))
    assert flops == expected


@pytest.mark.parametrize("on_cpu", [False, True])
def test_experts_compute_the_tokens_that_chose_them(on_cpu: bool) -> None:
    settings = config(label_smoothing=0.0)
    model = settings.model.model_copy(update={"experts": 4, "feed_forward": 16})
    settings = settings.model_copy(update={"model": model})
    trace = trace_step(settings, 4, LENGTH, torch.float32, on_cpu=on_cpu)
    flops = sum(work.flops for phase in (trace.forward, trace.backward) for work in phase.values())
    expected = summarize(build_meta(model), LENGTH).training_flops * 4 * LENGTH
    if not on_cpu:
        expected += round(2 * 2 * LENGTH * 32 * 2 * 4 * LENGTH * (3.5 / 2 - 3))
    assert flops == expected
    plan = make_plan(settings, A100, 8, LENGTH)
    experts = 2 * 4 * (2 * 32 * 16 + 32 + 16)  # parameters: layers, experts, matrices and biases
    assert plan.parameters - plan.active_parameters == experts / 2
    assert plan.as_dict()["active_parameters"] == plan.active_parameters
    activations = 4 * ROWS * LENGTH * 32
    tensor = layout(plan, "tensor")  # the states after attention once, after the experts twice: two per token
    assert tensor.communication == pytest.approx(2 * 2 * 3 * all_reduce_bytes(activations, 8))


def test_traced_memory_is_what_the_backward_pass_keeps() -> None:
    """The sum of all tensors that autograd saves, measured on the real network."""
    settings = config(label_smoothing=0.0)
    network = build(settings.model).train()
    weights = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        if (key := tensor.untyped_storage().data_ptr()) not in weights:
            kept[key] = tensor
        return tensor

    ids = torch.zeros(4, LENGTH, dtype=torch.long)
    with cpu.disabled(), torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        loss = CausalLMObjective(network, 0.0)(TokenBatch(ids, ids)).loss
    expected = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    trace = trace_step(settings, 4, LENGTH, torch.float32, on_cpu=False)
    assert loss.requires_grad
    assert expected <= trace.activations < 1.6 * expected  # the peak is in the backward pass of the loss


def test_memory_and_work_grow_linearly_with_the_batch() -> None:
    two, four, eight = (trace_step(config(), rows, LENGTH, torch.float32, on_cpu=False) for rows in (2, 4, 8))
    between = two.at(eight, 1 / 3)
    assert between.forward["matmul"].flops == pytest.approx(four.forward["matmul"].flops)
    assert between.activations == pytest.approx(four.activations, rel=0.02)


def test_half_precision_needs_less_memory_for_activations() -> None:
    single, half = (trace_step(config(), 8, LENGTH, dtype, on_cpu=False) for dtype in (torch.float32, torch.bfloat16))
    assert half.saved_in_blocks < single.saved_in_blocks
    assert half.forward["matmul"].bytes < 0.6 * single.forward["matmul"].bytes


# --- memory -----------------------------------------------------------------------------------------------------------


def test_parameters_of_the_paper_and_of_a_large_gpt() -> None:
    """Table 3: 213 million for the big model; the position table of ours is computed, and the vocabulary is 37,000."""
    assert summarize(build_meta(load_config("paper-big").model)).parameters == 214_171_648
    gpt = load_config("recipes/gpt-1.3b/gpt-1.3b.toml").model
    assert summarize(build_meta(gpt)).parameters == 1_315_723_264  # 24 (12 w² + 13 w) + 2 w + (50,257 + 2,048) w


def test_memory_of_one_device_by_hand() -> None:
    single = make_plan(config(), A100, 1, LENGTH).layouts[0]
    # embedding and positions, two layers of 4 w² + 2 w f and norms and biases, the last norm; the output is tied
    parameters = 100 * 32 + 64 * 32 + 2 * (4 * 32**2 + 2 * 32 * 64 + 64 + 32 + 4 * 32) + 2 * 32
    assert single.parameters == parameters
    assert single.weights == single.gradients == 4 * parameters
    assert single.optimizer == 8 * parameters  # two moments of Adam in float32
    assert single.buffers == single.communication == 0
    average = make_plan(config(ema_decay=0.99), A100, 1, LENGTH).layouts[0]
    assert average.optimizer == 12 * parameters


def test_ddp_keeps_everything_and_fsdp_divides_it(plan: Plan) -> None:
    ddp, fsdp = layout(plan, "ddp"), layout(plan, "fsdp")
    total = plan.parameters
    assert (ddp.parameters, fsdp.parameters) == (total, total / 8)
    for name in ("weights", "gradients", "optimizer"):
        assert getattr(fsdp, name) == getattr(ddp, name) / 8
    assert ddp.buffers == 4 * total  # the buckets of gradients
    assert ddp.activations == fsdp.activations


def test_tensor_parallelism_divides_attention_and_feed_forward_layers(plan: Plan) -> None:
    tensor, total = layout(plan, "tensor"), plan.parameters
    divisible = 2 * (4 * 32**2 + 2 * 32 * 64 + 64 + 32)
    assert tensor.parameters == divisible / 8 + total - divisible
    both = layout(plan, "fsdp 4 × tensor 2")
    assert both.parameters == (divisible / 2 + total - divisible) / 4


def test_checkpointing_needs_less_memory_and_more_time(plan: Plan) -> None:
    for row in plan.layouts:
        assert 0 < row.checkpointed_activations < row.activations
        assert row.recompute_seconds > 0


def test_more_devices_need_less_memory_with_fsdp() -> None:
    rows = [make_plan(config(), A100, count, LENGTH).layouts[1] for count in (2, 4, 8)]
    assert [row.layout.kind for row in rows] == ["fsdp"] * 3
    assert sorted((row.memory for row in rows), reverse=True) == [row.memory for row in rows]
    assert rows[0].memory > rows[-1].memory


# --- communication ----------------------------------------------------------------------------------------------------


def test_communication_volume(plan: Plan) -> None:
    size = 4 * plan.parameters
    assert layout(plan, "ddp").communication == 2 * (8 - 1) / 8 * size == all_reduce_bytes(size, 8)
    assert layout(plan, "fsdp").communication == gather_bytes(3 * size, 8)  # weights twice, gradients once
    activations = 4 * ROWS * LENGTH * 32  # bytes of the states of all tokens, which every device has
    assert layout(plan, "tensor").communication == 2 * 2 * 2 * all_reduce_bytes(activations, 8)


def test_accumulation_gathers_weights_for_each_batch_but_reduces_ddp_once(plan: Plan) -> None:
    accumulated = make_plan(config(gradient_accumulation=4), A100, 8, LENGTH)
    assert layout(accumulated, "ddp").communication == layout(plan, "ddp").communication
    assert layout(accumulated, "fsdp").communication == 4 * layout(plan, "fsdp").communication
    assert layout(accumulated, "ddp").tokens == 4 * ROWS * LENGTH


def test_a_slower_link_and_several_nodes_take_longer() -> None:
    slow = replace(A100, link=A100.link / 100)
    fast, slower = (make_plan(config(), device, 8, LENGTH).layouts[0] for device in (A100, slow))
    assert slower.communication_seconds > fast.communication_seconds
    assert slower.communication == fast.communication
    nodes = replace(A100, network=1 * GB)
    assert make_plan(config(), nodes, 16, LENGTH).layouts[0].communication_seconds > fast.communication_seconds


# --- time and recommendation ------------------------------------------------------------------------------------------


def test_time_of_a_network_that_fills_the_device_is_its_flops_at_the_achievable_rate() -> None:
    model = DecoderOnlyConfig(vocab_size=1000, width=4096, layers=1, heads=32, feed_forward=16384)
    large = Config(model=model, training=TrainingConfig(batch_tokens=16 * 512, precision="bfloat16"))
    row = make_plan(large, A100, 1, 512).layouts[0]
    assert 0.4 < row.utilization < A100.matmul_efficiency
    assert row.seconds > row.flops / (A100.matmul_efficiency * A100.peaks["bfloat16"])


def test_the_fastest_layout_that_fits_is_recommended(plan: Plan) -> None:
    assert plan.recommended is not None
    assert plan.recommended.fits
    assert plan.recommended.seconds <= 1.03 * min(row.seconds for row in plan.layouts if row.fits)
    assert "fits" in plan.reason


def test_a_small_memory_needs_a_layout_that_divides_the_network_or_smaller_batches(plan: Plan) -> None:
    ddp, fsdp = layout(plan, "ddp"), layout(plan, "fsdp")
    between = (ddp.memory + fsdp.memory) / 2
    divided = make_plan(config(), replace(A100, memory=GIB + between), 8, LENGTH)
    assert not layout(divided, "ddp").fits
    assert divided.recommended is not None
    assert divided.recommended.layout.kind != "ddp"
    least = min(row.memory - row.activations / 2 for row in plan.layouts)
    smaller = make_plan(config(), replace(A100, memory=GIB + least), 8, LENGTH)
    assert not any(row.fits for row in smaller.layouts)
    assert smaller.recommended is not None
    tokens, accumulation = (int(setting.partition("=")[2]) for setting in smaller.settings[:2])
    assert tokens * accumulation == ROWS * LENGTH
    assert smaller.settings[0].startswith("training.batch_tokens=")
    impossible = make_plan(config(), replace(A100, memory=GIB + 1000), 8, LENGTH)
    assert impossible.recommended is None
    assert "use more or larger devices" in impossible.reason


def test_layouts_that_heads_do_not_allow_are_left_out() -> None:
    odd = make_plan(config(), A100, 3, LENGTH)
    assert [row.layout.kind for row in odd.layouts] == ["ddp", "fsdp"]
    assert odd.notes[0] == "No tensor layout: 3 devices cannot share model.heads = 8 equally."


@pytest.mark.parametrize(
    ("settings", "kinds", "note"),
    [
        (["model.positions=alibi"], ["ddp", "fsdp", "tensor"], None),
        (["model.positions=relative", "model.attention=window"], ["ddp", "fsdp", "tensor"], None),
        (["model.positions=syntax"], ["ddp", "fsdp"], "share heads with model.positions = 'syntax'"),
        (["model.attention=linformer"], ["ddp", "fsdp"], "share heads with model.attention = 'linformer'"),
        (["model.qk_norm=true"], ["ddp", "fsdp"], "share heads with model.qk_norm = true"),
        (["training.optimizer=muon"], ["ddp"], "No fsdp or tensor layout: training.optimizer = 'muon' needs whole m"),
        (
            ["training.start_from=base", "training.lora.rank=4"],
            ["ddp"],
            "No fsdp or tensor layout: training.lora.rank = 4",
        ),
        (["model.positions=buckets"], ["ddp", "fsdp"], "share heads with model.positions = 'buckets'"),
        (["training.precision=float16"], ["ddp"], "No fsdp or tensor layout: training.precision = 'float16'"),
    ],
)
def test_layouts_that_training_refuses_are_left_out(settings: list[str], kinds: list[str], note: str | None) -> None:
    layouts, notes = _layouts(load_config("tiny", settings), 2)
    assert [row.kind for row in layouts] == kinds
    assert (note is None and not notes) or (note is not None and note in notes[0])
    for row in layouts:  # what is planned can be trained
        chosen = load_config("tiny", [*settings, *layout_settings(row)])
        if row.kind != "ddp":
            check_sharding(chosen)
            if row.tensor > 1:
                check_tensor_parallel(chosen, row.tensor)


def test_plans_of_other_precisions_and_optimizers() -> None:
    half = make_plan(config(precision="float16"), DEVICES["V100-16GB"], 4, LENGTH)
    assert (half.precision, [row.layout.kind for row in half.layouts]) == ("float16", ["ddp"])
    assert half.reason == "it fits"
    assert faster_precision(half) is None
    muon = make_plan(config(optimizer=MuonConfig()), A100, 1, LENGTH)
    assert "Memory and time of training.optimizer = 'muon' are those of Adam." in muon.notes
    tiny = make_plan(
        config(precision="float32"), A100, 1, LENGTH
    )  # takes as long as the calls, of which there are more
    assert tiny.recommended is not None
    assert faster_precision(tiny) is None


def test_commands() -> None:
    both = DeviceLayout("fsdp+tensor", 4, 2)
    settings = ("training.parallel=fsdp", "training.parallel.tensor_size=2")
    assert layout_settings(both) == settings
    plan = make_plan(config(), A100, 16, LENGTH)
    command = launch_command(replace(plan, settings=settings), "gpt.toml --out runs/gpt")
    assert command == (
        "torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500 --nproc-per-node 8 -m regard train "
        "gpt.toml --out runs/gpt --set training.parallel=fsdp --set training.parallel.tensor_size=2"
    )


# --- measured steps ---------------------------------------------------------------------------------------------------

MEASURED = json.loads((Path(__file__).parent / "measured_steps.json").read_text())  # by benchmarks/plan.py


@pytest.mark.slow
@pytest.mark.parametrize("run", MEASURED, ids=[f"{run['network']}-{run['processes']}" for run in MEASURED])
def test_predicted_steps_are_those_that_were_measured(run: dict[str, Any]) -> None:
    """From the measured rates of the same processor: seconds within 25%, memory within 30%."""
    settings = validate_sources([ConfigSource("a measured step", run["settings"])])
    device, length = Device(**run["device"]), math.ceil(run["length"])

    def planned(tokens: float) -> LayoutPlan:
        batch = {"batch_tokens": round(tokens / length) * length}
        training = settings.training.model_copy(update=batch)
        chosen = settings.model_copy(update={"training": training})
        return make_plan(chosen, device, run["processes"], length).layouts[0]

    mean = planned(run["rows"] * run["length"])
    assert mean.seconds == pytest.approx(run["seconds"], rel=0.25)
    utilization = mean.flops / run["seconds"] / mean.peak_flops
    assert mean.utilization == pytest.approx(utilization, rel=0.3)
    assert planned(run["largest_batch"]).memory == pytest.approx(run["memory"], rel=0.3)


# --- devices ----------------------------------------------------------------------------------------------------------


def test_devices_are_found_by_usual_names() -> None:
    assert find_device("a100 80gb") is find_device("NVIDIA-A100-80GB") is A100
    assert find_device("rtx4090").memory == 24 * GIB
    assert parse_devices("4 x H100-80GB") == (4, "H100-80GB")
    assert DEVICES["T4"].precision("bfloat16") == "float32"
    assert DEVICES["L4"].precision("bfloat16") == "bfloat16"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: find_device("A10"), "--devices A10: there are several; choose A100-40GB or A100-80GB or A10G."),
        (lambda: find_device("H100-80"), "--devices H100-80: there are several; choose H100-80GB."),
        (lambda: find_device("RTX-4091"), "--devices RTX-4091: is not a known device (did you mean RTX-4090?)"),
        (lambda: parse_devices("0xA100-80GB"), "--devices 0xA100-80GB: the number of devices is 0; use 1 to 65,536."),
        (lambda: parse_devices(""), "--devices '': should be a number and a device, as in 8xA100-80GB."),
        (lambda: custom_device("mine", 10, None, None), "--devices mine: a custom device needs --device-memory (GiB)"),
        (lambda: make_plan(load_config("lstm-lm"), A100, 1, 8), "regard plan is for Transformers, and this network"),
        (lambda: make_plan(config(), A100, 1, 65), "--length 65: the network has 64 positions; use at most that."),
    ],
)  # fmt: skip
def test_wrong_input_gives_one_message(call: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        call()
    assert str(error.value).startswith(message)


def test_custom_devices() -> None:
    device = custom_device("mine", 10, 50, 500)
    assert (device.memory, device.peaks["bfloat16"], device.bandwidth) == (10 * GIB, 50e12, 500 * GB)
    assert device.precision("bfloat16") == "bfloat16"


def test_a_cpu_computes_one_thing_at_a_time() -> None:
    rates = dict.fromkeys(("elementwise", "transcendental", "random", "gather", "stream"), 1e9)
    device = Device("cpu", 8 * GIB, {"float32": 1e11}, 1e9, 1e9, rates=rates, is_cpu=True, seconds_per_call=1e-6)
    single = make_plan(config(), device, 1, LENGTH).layouts[0]
    two = make_plan(config(), device, 2, LENGTH).layouts[0]
    assert two.capacity == single.capacity / 2
    assert two.exposed_seconds == two.communication_seconds > 0
    assert single.seconds > two.compute_seconds
