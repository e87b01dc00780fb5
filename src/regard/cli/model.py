"""`regard model`: parameters, FLOPs and memory of a network."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from regard.cli.input_output import print_table, print_text
from regard.cli.options import MODEL_PANEL, OUTPUT_PANEL, SettingsOption, argument, examples, option

if TYPE_CHECKING:
    from regard.config import Config
    from regard.models.summary import ModelSummary

EXAMPLES = examples("regard model", "regard model tiny --set model.positions=rotary", "regard model runs/en-it/best")
DEFAULT_SEQUENCE_LENGTH = 32  # tokens per sentence, for the cost of attention


def run(
    source: Annotated[
        str | None, argument("Preset, TOML file or model folder; all presets if omitted.", "SOURCE")
    ] = None,
    settings: SettingsOption = None,
    length: Annotated[
        int | None,
        option(
            MODEL_PANEL,
            min=1,
            help=f"Sequence length for FLOPs; the maximum length, else {DEFAULT_SEQUENCE_LENGTH}, by default.",
        ),
    ] = None,
    taps: Annotated[
        bool, option(OUTPUT_PANEL, "--taps", help="List the taps: points whose values can be recorded or replaced.")
    ] = False,
    as_json: Annotated[bool, option(OUTPUT_PANEL, "--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show the parts of a network with their parameters, FLOPs per token, and memory for training."""
    from regard.config import preset_names
    from regard.models.assembly import build_meta
    from regard.models.summary import summarize

    if source is None and not settings:
        presets = {name: summarize(build_meta(read_settings(name, []).model)) for name in preset_names()}
        if as_json:
            print_text(json.dumps({name: network.as_dict() for name, network in presets.items()}, indent=2))
        else:
            _print_presets(presets)
        return
    config = read_settings(source, settings or [])
    network = build_meta(config.model)
    if taps:
        names = list(network.taps)
        print_text(json.dumps(names, indent=2) if as_json else "\n".join(names))
        return
    costs = summarize(network, length or config.model.max_length or DEFAULT_SEQUENCE_LENGTH)
    if as_json:
        print_text(json.dumps(costs.as_dict(), indent=2))
    else:
        _print_network(source or "defaults", config, costs)
        if "steps" in config.training.model_fields_set:  # otherwise `regard train` chooses most of them
            _print_training(config)
        if config.model.translates:
            _print_decoding(config)


def read_settings(source: str | None, settings: list[str]) -> "Config":
    """Return the settings of a preset, a TOML file or a model folder."""
    from regard.config import did_you_mean, load_config, preset_names
    from regard.errors import ConfigError
    from regard.models.folder_files import read_config

    if source and source not in preset_names() and Path(source).is_dir():
        if settings:
            raise ConfigError(
                f"--set {settings[0]}: the settings of a trained model cannot be changed; remove --set, or pass a "
                "preset."
            )
        return read_config(Path(source))
    if source and source not in preset_names() and not Path(source).exists() and not source.endswith(".toml"):
        known = preset_names()
        raise ConfigError(
            f"{source!r} is not a preset, TOML file or model folder{did_you_mean(source, known)}; "
            f"the presets are {', '.join(known)}."
        )
    return load_config(source, settings)


def _print_network(name: str, config: "Config", costs: "ModelSummary") -> None:
    from regard.tables import new_table

    table = new_table("part", "count", "parameters", "FLOPs/token")
    for part in costs.parts:
        parameters = f"{part.parameters:,}" if part.parameters else "shared"
        table.add_row(part.name, str(part.count), parameters, f"{part.flops:,}")
    table.add_section()
    table.add_row("total", "", f"{costs.parameters:,}", f"{costs.forward_flops:,}")
    memory = {**costs.memory, "total": sum(costs.memory.values())}
    tokens = "source and target token" if config.model.translates else "token"
    millions = f"{costs.parameters / 1e6:.1f} million parameters"
    if costs.active_parameters < costs.parameters:
        millions += f", of which a token uses {costs.active_parameters / 1e6:.1f} million"
    print_text(f"{name}: {config.model.family}, {millions}")
    print_table(table)
    print_text(f"FLOPs per {tokens} at sequence length {costs.length}: ", end="")
    print_text(f"{costs.forward_flops:,} forward, {costs.training_flops:,} in training")
    print_text("Memory for training in float32 with Adam, without activations: ", end="")
    print_text(", ".join(f"{name} {_format_bytes(size)}" for name, size in memory.items()))


def _print_training(config: "Config") -> None:
    training = config.training
    batch = f"{training.batch_tokens * training.gradient_accumulation:,}"
    tokens = f"{batch} source and {batch} target tokens" if config.model.translates else f"{batch} tokens"
    average = f", average of {training.average_checkpoints} checkpoints" if training.average_checkpoints else ""
    print_text(
        f"Training: {training.steps:,} steps of at most {tokens}; {training.optimizer.kind}, "
        f"{training.schedule.kind} schedule with {training.schedule.warmup_steps:,} steps of warmup, "
        f"label smoothing {training.label_smoothing:g}{average}"
    )


def _print_decoding(config: "Config") -> None:
    decoding = config.decoding
    print_text(
        f"Decoding: beam {decoding.beam}, length penalty {decoding.length_penalty:g}, "
        f"at most {decoding.extra_tokens} tokens more than the source"
    )


def _print_presets(presets: "dict[str, ModelSummary]") -> None:
    from regard.config import preset_summary
    from regard.tables import new_table

    table = new_table("preset", "parameters", "description", wrapped="description")
    for name, network in presets.items():
        table.add_row(name, f"{network.parameters:,}", preset_summary(name))
    print_table(table)


def _format_bytes(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
