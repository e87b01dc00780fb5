"""`regard plan`: memory, communication and time of training on several devices, before it is started."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from regard.cli.input_output import print_table, print_text
from regard.cli.model import read_settings
from regard.cli.options import DEVICE_PANEL, MODEL_PANEL, OUTPUT_PANEL, SettingsOption, argument, examples, option

if TYPE_CHECKING:
    from rich.table import Table

    from regard.config import Config
    from regard.training.device_specs import Device
    from regard.training.layout_plan import LayoutPlan, Plan

EXAMPLES = examples(
    "regard plan paper-big --devices 8xA100-80GB",
    "regard plan recipes/gpt-1.3b/gpt-1.3b.toml --devices 16xH100-80GB --json",
    "regard plan gpt-small --devices 4xmine --device-memory 32 --device-tflops 120 --link-gbps 200",
)
DEFAULT_LENGTH = 32  # tokens of a sentence
GIB = 2**30
BITS = 8


def run(
    source: Annotated[str, argument("Preset or TOML file with the settings of the training.", "CONFIG")],
    devices: Annotated[
        str,
        option(
            DEVICE_PANEL,
            "--devices",
            help="Number and name of the devices, as in 8xA100-80GB; cpu is this machine, measured now.",
            metavar="NxNAME",
        ),
    ] = "cpu",
    settings: SettingsOption = None,
    length: Annotated[
        int | None,
        option(
            MODEL_PANEL,
            min=1,
            help=f"Tokens of each sequence; the context or maximum length, else {DEFAULT_LENGTH}, by default.",
        ),
    ] = None,
    device_memory: Annotated[
        float | None, option(DEVICE_PANEL, min=0.1, help="Memory of a custom device in GiB.", metavar="GIB")
    ] = None,
    device_tflops: Annotated[
        float | None,
        option(DEVICE_PANEL, min=0.001, help="Peak TFLOP/s of a custom device in training.precision.", metavar="N"),
    ] = None,
    device_bandwidth: Annotated[
        float | None, option(DEVICE_PANEL, min=0.1, help="Memory bandwidth of a custom device in GB/s.", metavar="GB/S")
    ] = None,
    link_gbps: Annotated[
        float | None,
        option(DEVICE_PANEL, min=0.001, help="Gbit/s that a device sends to another of its node.", metavar="GBIT/S"),
    ] = None,
    network_gbps: Annotated[
        float | None,
        option(DEVICE_PANEL, min=0.001, help="Gbit/s that a node of 8 devices sends to another.", metavar="GBIT/S"),
    ] = None,
    as_json: Annotated[bool, option(OUTPUT_PANEL, "--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Estimate memory, communication and step time of each layout of devices, and recommend one.

    Nothing is computed or downloaded: the network is traced without data. See docs/scale.md for the cost model.
    """
    from regard.training.device_specs import custom_device, find_device, measure_cpu, parse_devices, with_options
    from regard.training.layout_plan import launch_command
    from regard.training.planner import make_plan

    config = read_settings(source, settings or [])
    count, name = parse_devices(devices)
    if device_memory is not None or device_tflops is not None:
        device = custom_device(name, device_memory, device_tflops, device_bandwidth)
    elif name.lower() == "cpu" and count > 1:
        device = measure_cpu(threads=_threads_per_process(count))
    else:
        device = find_device(name)
    device = with_options(device, link=_bytes_per_second(link_gbps), network=_bytes_per_second(network_gbps))
    context = config.data.context_length if config.model.generates else None
    plan = make_plan(config, device, count, length or context or config.model.max_length or DEFAULT_LENGTH)
    command = launch_command(plan, _train_arguments(source, config, settings or []))
    if as_json:
        print_text(json.dumps({**plan.as_dict(), "command": command if plan.recommended else None}, indent=2))
    else:
        _print_plan(source, plan, command)


def _bytes_per_second(gbps: float | None) -> float | None:
    """Return GB/s for Gbit/s."""
    return None if gbps is None else gbps / BITS


def _threads_per_process(count: int) -> int:
    from regard.machine import available_cores

    return max(1, available_cores() // count)


def _train_arguments(source: str, config: "Config", settings: list[str]) -> str:
    """Return the arguments of `regard train` for the same settings."""
    name = Path(source).stem
    start = source if source.endswith(".toml") else f"{config.task} --preset {source} --data FILES"
    return " ".join([start, "--out", f"runs/{name}", *(f"--set {setting}" for setting in settings)])


def _print_plan(source: str, plan: "Plan", command: str) -> None:
    from regard.training.planner import faster_precision

    training = plan.config.training
    tokens = plan.layouts[0].tokens
    active = f" ({plan.active_parameters / 1e6:,.1f} active)" if plan.active_parameters < plan.parameters else ""
    print_text(
        f"{source}: {plan.parameters / 1e6:,.1f} million parameters{active}, {tokens:,.0f} tokens per update in "
        f"sequences of {plan.length:,}, {plan.precision}"
    )
    print_text(f"{plan.count} × {plan.device.name}: {_device_line(plan.device, plan.precision)}")
    print_table(_table(plan))
    print_text("Memory in GiB per device. ckpt: with gradient checkpointing. comm: GB that a device sends per update.")
    for note in plan.notes:
        print_text(note)
    if plan.recommended is None:
        print_text(f"No recommendation: {plan.reason}.")
        return
    print_text(f"Use {_describe(plan.recommended)}: {plan.reason}.")
    print_text(f"{training.steps:,} steps take about {_duration(plan.recommended.seconds * training.steps)}.")
    faster = faster_precision(plan)
    if faster is not None:
        print_text(f"With --set training.precision=bfloat16 a step takes {faster.seconds:.3g} s.")
    print_text(f"\n{command}")


def _duration(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours / 24:,.1f} days" if hours >= 48 else f"{hours:,.1f} hours"


def _describe(plan: "LayoutPlan") -> str:
    return f"{plan.layout.name}, {plan.seconds:.3g} s per step, {plan.memory / GIB:.1f} GiB"


def _device_line(device: "Device", precision: str) -> str:
    return (
        f"{device.memory / GIB:.0f} GiB, {device.peaks[precision] / 1e12:.3g} TFLOP/s, "
        f"{device.bandwidth / 1e9:,.0f} GB/s, link {device.link / 1e9:,.3g} GB/s"
    )


def _table(plan: "Plan") -> "Table":
    from regard.tables import new_table

    columns = ("weights", "grads", "optim", "buffers", "activ", "total", "ckpt", "comm", "s/step", "util", "fits")
    table = new_table("layout", *columns)
    for row in plan.layouts:
        memory = (row.weights, row.gradients, row.optimizer, row.buffers, row.activations, row.memory)
        fits = "yes" if row.fits else "ckpt" if row.checkpointed_memory <= row.capacity else "no"
        table.add_row(
            row.layout.name,
            *(f"{size / GIB:.2f}" for size in (*memory, row.checkpointed_memory)),
            f"{row.communication / 1e9:.2f}",
            f"{row.seconds:.3g}",
            f"{row.utilization:.0%}",
            fits,
        )
    return table
