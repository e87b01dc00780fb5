"""Load settings from presets, files and `--set`: defaults < preset < file < `--set a.b=c`.

Later sources override earlier ones key by key. A table that names another `kind` keeps the settings that both kinds
have: `--set model.kind=decoder-only` on the preset of a translator is a language model of the same size.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar, overload

from pydantic import ValidationError

from regard.config.base import BaseConfig, field_annotation, select_table
from regard.config.data import CorpusConfig, DataConfig
from regard.config.errors import ConfigSource, config_error, did_you_mean, setting_origin
from regard.config.root import Config
from regard.errors import ConfigError

C = TypeVar("C", bound=BaseConfig)

SPLITS = tuple(name for name, field in DataConfig.model_fields.items() if field.annotation is CorpusConfig)
FILE_KEYS = ("source", "target", "parses", "files")  # settings of a split that are paths
NOT_PATHS = ("builtin:", "-")  # prefixes of file names that are not paths: built-in corpora and standard input


def load_config(source: str | Path | None = None, sets: Iterable[str] = ()) -> Config:
    """Return the settings of a preset or a TOML file, overridden by `sets` such as `"model.layers=3"`.

    A file can build on a preset with `preset = "tiny"` at its top.

    >>> load_config("tiny", ["model.layers=2"]).model.layers
    2
    """
    return validate_sources(load_sources(source, sets))


def load_sources(source: str | Path | None = None, sets: Iterable[str] = ()) -> list[ConfigSource]:
    """Return the unchecked settings of a preset or a file and of `sets`, one source each; later ones win."""
    sources = [*_read(source)] if source is not None else []
    return sources + [_read_set(assignment) for assignment in sets]


@overload
def validate_sources(sources: Iterable[ConfigSource]) -> Config: ...


@overload
def validate_sources(sources: Iterable[ConfigSource], schema: type[C]) -> C: ...


def validate_sources(sources: Iterable[ConfigSource], schema: type[BaseConfig] = Config) -> BaseConfig:
    """Merge sources, later ones winning, into a valid config; ConfigError describes the first invalid setting."""
    sources = list(sources)
    values = _merge_all(sources, schema)
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        raise config_error(error, schema, sources, values) from None


def unchecked_value(sources: Iterable[ConfigSource], setting: str) -> Any:
    """Return the unchecked value of a setting in the merged sources; None if no source sets it.

    >>> unchecked_value(load_sources("tiny", ["model.layers=two"]), "model.layers")
    'two'
    """
    value: Any = _merge_all(sources, Config)
    for key in setting.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def preset_names() -> list[str]:
    """Return the names of the presets that come with the package.

    >>> "paper-base" in preset_names()
    True
    """
    return sorted(file.name.removesuffix(".toml") for file in _presets().iterdir() if file.name.endswith(".toml"))


def preset_summary(name: str) -> str:
    """Return the description of a preset: the first line of its file.

    >>> preset_summary("small")
    'Translator that a laptop trains in an hour or two.'
    """
    first_line = (_presets() / f"{name}.toml").read_text("utf-8").partition("\n")[0]
    return first_line.removeprefix("# ")


def resolve_paths(folder: Path, source: ConfigSource) -> ConfigSource:
    """Return the same settings with relative data paths resolved against the folder.

    >>> recipe = ConfigSource("recipe.toml", {"data": {"train": {"files": ["train.tsv", "builtin:phrasebook"]}}})
    >>> resolve_paths(Path("corpora"), recipe).values
    {'data': {'train': {'files': ['corpora/train.tsv', 'builtin:phrasebook']}}}
    """

    def resolve(files: Any) -> Any:
        if isinstance(files, list):
            return [resolve(file) for file in files]
        is_path = isinstance(files, str) and not files.startswith(NOT_PATHS) and "://" not in files
        return str(folder / files) if is_path else files

    data = source.values.get("data")
    if not isinstance(data, Mapping):
        return source
    resolved = {
        name: {key: resolve(value) if key in FILE_KEYS else value for key, value in split.items()}
        if name in SPLITS and isinstance(split, Mapping)
        else split
        for name, split in data.items()
    }
    return replace(source, values={**source.values, "data": resolved})


def to_toml(config: BaseConfig, sources: Sequence[ConfigSource] = ()) -> str:
    """Return all settings as TOML that loads to the same config; with sources, each line names its origin.

    >>> from regard.config import Config
    >>> print(to_toml(Config()).partition("heads")[0])
    [model]
    kind = "encoder-decoder"
    vocab_size = 37000
    width = 512
    layers = 6
    """
    lines: list[str] = []
    for section, settings in config.model_dump(mode="json", exclude_none=True).items():
        lines += ["", f"[{section}]"]
        for path, value in flatten(settings):
            line = f"{'.'.join(path)} = {_toml_value(value)}"
            origin = setting_origin([(section, *path)], sources) or "default"
            lines.append(f"{line:<40}  # {origin}" if sources else line)
    return "\n".join(lines[1:]) + "\n"


def flatten(settings: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and value of every setting in nested tables; empty lists are omitted.

    >>> list(flatten({"schedule": {"kind": "cosine", "warmup_steps": 100}, "seed": 1}))
    [(('schedule', 'kind'), 'cosine'), (('schedule', 'warmup_steps'), 100), (('seed',), 1)]
    """
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten(value, (*path, key))
        elif value != []:
            yield (*path, key), value


def _toml_value(value: Any) -> str:
    """Format a value as TOML, which agrees with JSON for strings, integers, booleans and lists of them."""
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _presets() -> Traversable:
    return resources.files("regard.config") / "presets"


def _read(source: str | Path) -> Iterable[ConfigSource]:
    """Yield the settings of a preset, or of the preset that a file builds on and then of the file."""
    if isinstance(source, str) and source in preset_names():
        text = (_presets() / f"{source}.toml").read_text("utf-8")
        yield ConfigSource(f"preset {source}", tomllib.loads(text), text)
        return
    path = Path(source)
    if not source or (path.suffix != ".toml" and not path.exists()):
        raise ConfigError(
            f"{str(source)!r} is neither a preset nor a TOML file{did_you_mean(str(source), preset_names())}; "
            f"the presets are {', '.join(preset_names())}."
        )
    text, values = _parse(path)
    preset = values.pop("preset", None)
    if preset is not None:
        if preset not in preset_names():
            raise ConfigError(
                f"{path}: preset = {preset!r} is not a preset{did_you_mean(str(preset), preset_names())}; "
                f"the presets are {', '.join(preset_names())}."
            )
        yield from _read(preset)
    yield ConfigSource(str(path), values, text)


def _parse(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a TOML file and its values."""
    try:
        text = path.read_text("utf-8-sig")  # some editors write a byte order mark
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); pass a preset or the path of a TOML file."
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8.") from None
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if path.suffix != ".toml":
            raise ConfigError(
                f"{path}: is not a TOML file with settings; pass one, or a preset: {', '.join(preset_names())}."
            ) from None
        raise ConfigError(f"{path}: is not valid TOML: {error}.") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path}: is not a valid config file: a number is too long or tables are too deep.") from None


def _read_set(assignment: str) -> ConfigSource:
    """Parse `model.layers=3`; the value is TOML, and a bare word is a string."""
    name, equals, value = assignment.partition("=")
    path = name.strip().split(".")
    if not equals or not all(path) or len(path) > 10:
        raise ConfigError(f"--set {assignment}: should look like model.layers=3.")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        parsed = value.strip()
    values: Any = parsed
    for key in reversed(path):
        values = {key: values}
    return ConfigSource(f"--set {assignment}", values)


def _merge_all(sources: Iterable[ConfigSource], schema: type[BaseConfig]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for source in sources:
        merged = _merge(merged, source.values, schema)
    return merged


def _merge(lower: Mapping[str, Any], upper: Mapping[str, Any], table: Any) -> dict[str, Any]:
    """Override the settings of a table with those of a later source, table by table."""
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        if isinstance(below, str) and isinstance(value, Mapping):
            below = {"kind": below}  # a variant given by its name
        if isinstance(below, Mapping) and isinstance(value, str):
            value = {"kind": value}
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            nested = select_table(field_annotation(table, key), value if "kind" in value else below)
            if (
                "kind" in value and isinstance(nested, type) and issubclass(nested, BaseConfig)
            ):  # keep what both kinds have
                below = {name: setting for name, setting in below.items() if name in nested.model_fields}
            value = _merge(below, value, nested)
        merged[key] = value
    return merged
