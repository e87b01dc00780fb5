"""`regard model`: the parts of a network, and what they cost."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.output import new_table, print_table

if TYPE_CHECKING:
    from regard.config import Config
    from regard.models.anatomy import Anatomy


def show(
    source: Annotated[
        str | None, typer.Argument(help="A preset, a TOML file or a model folder; without it, the presets are listed.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting, such as model.layers=3; may be repeated.")
    ] = None,
    length: Annotated[
        int | None, typer.Option(min=1, help="Tokens a sentence, for the cost of attention; 32 or as many as learned.")
    ] = None,
    taps: Annotated[
        bool, typer.Option("--taps", help="List the points where a number can be read or replaced.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show a network's parts: parameters, FLOPs per token, and memory for training."""
    from regard.config import preset_names
    from regard.models.anatomy import anatomy
    from regard.models.assembly import build_meta

    if source is None and not settings:
        found = {name: anatomy(build_meta(_config(name, []).model)) for name in preset_names()}
        if as_json:
            print(json.dumps({name: parts.as_dict() for name, parts in found.items()}, indent=2))
        else:
            _print_presets(found)
        return
    config = _config(source, settings or [])
    network = build_meta(config.model)
    if taps:
        names = list(network.taps)
        print(json.dumps(names, indent=2) if as_json else "\n".join(names))
        return
    parts = anatomy(network, length or config.model.max_length or 32)
    if as_json:
        print(json.dumps(parts.as_dict(), indent=2))
    else:
        _print_parts(source or "defaults", config, parts)


def _config(source: str | None, settings: list[str]) -> "Config":
    from regard.config import load_config, preset_names
    from regard.config.errors import did_you_mean
    from regard.errors import ConfigError
    from regard.models.folder_files import read_config

    if source and source not in preset_names() and Path(source).is_dir():
        if settings:
            raise ConfigError(
                f"--set {settings[0]}: a trained model's settings are fixed; drop --set, or give a preset."
            )
        return read_config(Path(source))
    if source and source not in preset_names() and not Path(source).exists() and not source.endswith(".toml"):
        known = preset_names()
        raise ConfigError(
            f"{source!r} is no preset, TOML file or model folder{did_you_mean(source, known)}; "
            f"the presets are {', '.join(known)}."
        )
    return load_config(source, settings)


def _print_parts(name: str, config: "Config", found: "Anatomy") -> None:
    table = new_table("part", "count", "parameters", "FLOPs/token")
    for part in found.parts:
        parameters = f"{part.parameters:,}" if part.parameters else "shared"
        table.add_row(part.name, str(part.count), parameters, f"{part.flops:,}")
    table.add_section()
    table.add_row("total", "", f"{found.parameters:,}", f"{found.forward_flops:,}")
    memory = {**found.memory, "together": sum(found.memory.values())}
    tokens = "source and target token" if config.model.translates else "token"
    print(f"{name}: {config.model.family}, {found.parameters / 1e6:.1f} million parameters")
    print_table(table)
    print(f"FLOPs per {tokens}, sentences of {found.length}: ", end="")
    print(f"{found.forward_flops:,} forward, {found.training_flops:,} in training")
    print("Memory to train in float32 with Adam, before activations: ", end="")
    print(", ".join(f"{what} {_size(amount)}" for what, amount in memory.items()))


def _print_presets(found: "dict[str, Anatomy]") -> None:
    from regard.config import preset_summary

    table = new_table("preset", "parameters", "what it is", prose="what it is")
    for name, parts in found.items():
        table.add_row(name, f"{parts.parameters:,}", preset_summary(name))
    print_table(table)


def _size(amount: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
