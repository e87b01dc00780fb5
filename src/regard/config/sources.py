"""From presets, files and `--set` to one checked `Config`: defaults < preset < file < `--set a.b=c`.

Later sources override earlier ones key by key. Where a table names another `kind`, it keeps the settings that both
kinds have: `--set model.kind=decoder-only` on a translator's preset is a language model of the same size.
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

from regard.config.base import BaseConfig
from regard.config.data import CorpusConfig, DataConfig
from regard.config.errors import ConfigSource, config_classes, config_error, did_you_mean, has_kind, setting_origin
from regard.config.schema import Config
from regard.errors import ConfigError

S = TypeVar("S", bound=BaseConfig)


def load_config(source: str | Path | None = None, sets: Iterable[str] = ()) -> Config:
    """The settings of a preset or a TOML file, with `sets` such as `"model.layers=3"` on top.

    A file may build on a preset by saying `preset = "tiny"` at its top.

    >>> load_config("tiny", ["model.layers=2"]).model.layers
    2
    """
    return validate_sources(load_sources(source, sets))


def load_sources(source: str | Path | None = None, sets: Iterable[str] = ()) -> list[ConfigSource]:
    """The same settings, still apart: each place that says something, the later ones to win."""
    sources = [*_read(source)] if source is not None else []
    return sources + [_read_set(assignment) for assignment in sets]


@overload
def validate_sources(sources: Iterable[ConfigSource]) -> Config: ...


@overload
def validate_sources(sources: Iterable[ConfigSource], schema: type[S]) -> S: ...


def validate_sources(sources: Iterable[ConfigSource], schema: type[BaseConfig] = Config) -> BaseConfig:
    """Merge sources, later ones winning, into a valid `Config`; or complain about the first setting that is wrong.

    What is not trained as a network is has another `schema`.
    """
    sources = list(sources)
    try:
        return schema.model_validate(_merged(sources))
    except ValidationError as error:
        raise config_error(error, schema, sources) from None


def unchecked_value(sources: Iterable[ConfigSource], setting: str) -> Any:
    """What sources say about a setting, unchecked; None where none of them mentions it.

    >>> unchecked_value(load_sources("tiny", ["model.layers=two"]), "model.layers")
    'two'
    """
    value: Any = _merged(sources)
    for key in setting.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def preset_names() -> list[str]:
    """The named recipes that come with the package.

    >>> "paper-base" in preset_names()
    True
    """
    return sorted(file.name.removesuffix(".toml") for file in _presets().iterdir() if file.name.endswith(".toml"))


def preset_summary(name: str) -> str:
    """What a preset is, in its own first line.

    >>> preset_summary("small")
    'A translator that a laptop trains in an hour or two.'
    """
    first = (_presets() / f"{name}.toml").read_text("utf-8").partition("\n")[0]
    return first.removeprefix("# ")


def _presets() -> Traversable:
    return resources.files("regard.config") / "presets"


def _read(source: str | Path) -> Iterable[ConfigSource]:
    """The settings behind a preset's name or a file: those of the preset it builds on, then its own."""
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
    try:
        text = path.read_text("utf-8-sig")  # some editors put a byte order mark first
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); give a preset or the path of a TOML file."
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8.") from None
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}.") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path}: is not a file of settings: a number or a table in it has no end.") from None


def _read_set(assignment: str) -> ConfigSource:
    """`model.layers=3` as a source. The value is read as TOML; a bare word is a string."""
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


def _merged(sources: Iterable[ConfigSource]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for source in sources:
        merged = _merge(merged, source.values)
    return merged


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` laid over `below`, table by table."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(under, str) and isinstance(value, Mapping):
            under = {"kind": under}  # a variant given by its name alone
        if isinstance(under, Mapping) and isinstance(value, str):
            value = {"kind": value}
        if isinstance(under, Mapping) and isinstance(value, Mapping):
            value = _merge(_kept(under, value), value)
        merged[key] = value
    return merged


def _kept(below: Mapping[str, Any], above: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a table keeps of the one below it: all of it, or where `above` names a kind, what that kind has too."""
    fields = {
        table.model_fields["kind"].default: table.model_fields for table in config_classes(Config) if has_kind(table)
    }
    kind = above.get("kind")
    known = fields.get(kind) if isinstance(kind, str) else None
    return below if known is None else {key: value for key, value in below.items() if key in known}


def to_toml(config: BaseConfig, sources: Sequence[ConfigSource] = ()) -> str:
    """All settings as a TOML file that gives the same settings again; with sources, the origin of each beside it.

    >>> from regard.config import Config
    >>> print(to_toml(Config()).partition("heads")[0])
    [model]
    kind = "encoder-decoder"
    vocabulary = 37000
    width = 512
    layers = 6
    """
    lines: list[str] = []
    for section, settings in config.model_dump(mode="json", exclude_none=True).items():
        lines += ["", f"[{section}]"]
        for path, value in flatten(settings):
            line = f"{'.'.join(path)} = {_value(value)}"
            lines.append(
                f"{line:<40}  # {setting_origin([(section, *path)], sources) or 'default'}" if sources else line
            )
    return "\n".join(lines[1:]) + "\n"


def flatten(settings: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every setting below a table with its path; lists of files that are empty are left out.

    >>> list(flatten({"schedule": {"kind": "cosine", "warmup_steps": 100}, "seed": 1}))
    [(('schedule', 'kind'), 'cosine'), (('schedule', 'warmup_steps'), 100), (('seed',), 1)]
    """
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten(value, (*path, key))
        elif value != []:
            yield (*path, key), value


def _value(value: Any) -> str:
    """A value as TOML writes it; JSON writes strings, whole numbers, truth and lists of them the same way."""
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


PARTS = tuple(name for name, field in DataConfig.model_fields.items() if field.annotation is CorpusConfig)
ELSEWHERE = ("builtin:", "-")  # what is not a path: embedded corpora, and standard input


def resolve_paths(folder: Path, source: ConfigSource) -> ConfigSource:
    """The same settings, with relative paths of data starting from the folder.

    >>> recipe = ConfigSource("recipe.toml", {"data": {"train": {"files": ["train.tsv", "builtin:phrasebook"]}}})
    >>> resolve_paths(Path("corpora"), recipe).values
    {'data': {'train': {'files': ['corpora/train.tsv', 'builtin:phrasebook']}}}
    """
    data = source.values.get("data")
    if not isinstance(data, Mapping):
        return source
    placed = {name: _part(folder, part) if name in PARTS else part for name, part in data.items()}
    return replace(source, values={**source.values, "data": placed})


def _part(folder: Path, part: Any) -> Any:
    return {name: _files(folder, files) for name, files in part.items()} if isinstance(part, Mapping) else part


def _files(folder: Path, files: Any) -> Any:
    if isinstance(files, list):
        return [_files(folder, file) for file in files]
    return str(folder / files) if isinstance(files, str) and not files.startswith(ELSEWHERE) else files
