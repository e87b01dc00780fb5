"""From presets, files and `--set` to one checked `Config`: defaults < preset < file < `--set a.b=c`.

Later layers override earlier ones key by key. A table that names another `kind` starts afresh, because the settings
of one variant mean nothing to another. Every value remembers the layer it came from, so that an error can name it.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from regard.config.complaint import complain, nearest
from regard.config.model import EncoderDecoder, ModelConfig, Settings
from regard.errors import ConfigError


class SpecialTokens(Settings):
    """The ids of the tokens that are not text."""

    pad: int = 0
    unknown: int = 1
    start: int = 2
    end: int = 3


class Config(Settings):
    """Everything that can be set, in one tree.

    >>> Config().model.width
    512
    """

    model: ModelConfig = EncoderDecoder()
    tokens: SpecialTokens = SpecialTokens()


@dataclass(frozen=True)
class Layer:
    """Settings from one place: `name` is how an error refers to it, `text` the TOML they were read from."""

    name: str
    values: Mapping[str, Any]
    text: str = field(default="", repr=False)


def resolve(source: str | Path | None = None, sets: Iterable[str] = ()) -> Config:
    """The settings of a preset or a TOML file, with `sets` such as `"model.layers=3"` on top.

    A file may build on a preset by saying `preset = "tiny"` at its top.

    >>> resolve("tiny", ["model.layers=2"]).model.layers
    2
    """
    layers = [*_read(source)] if source is not None else []
    layers += [_read_set(assignment) for assignment in sets]
    return check(layers)


def check(layers: Iterable[Layer]) -> Config:
    """Merge layers, later ones winning, into a valid `Config`; or complain about the first setting that is wrong."""
    layers = list(layers)
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _merge(merged, layer.values)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise complain(error, Config, [(layer.name, layer.values, layer.text) for layer in layers]) from None


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
    return resources.files("regard") / "presets"


def _read(source: str | Path) -> Iterable[Layer]:
    """The layers behind a preset's name or a file: the preset it builds on, then its own."""
    if isinstance(source, str) and source in preset_names():
        text = (_presets() / f"{source}.toml").read_text("utf-8")
        yield Layer(f"preset {source}", tomllib.loads(text), text)
        return
    path = Path(source)
    if path.suffix != ".toml" and not path.exists():
        raise ConfigError(
            f"{str(source)!r} is neither a preset nor a TOML file{nearest(str(source), preset_names())}; "
            f"the presets are {', '.join(preset_names())}."
        )
    text, values = _parse(path)
    preset = values.pop("preset", None)
    if preset is not None:
        if preset not in preset_names():
            raise ConfigError(
                f"{path}: preset = {preset!r} is not a preset{nearest(str(preset), preset_names())}; "
                f"the presets are {', '.join(preset_names())}."
            )
        yield from _read(preset)
    yield Layer(str(path), values, text)


def _parse(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text("utf-8")
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


def _read_set(assignment: str) -> Layer:
    """`model.layers=3` as a layer. The value is read as TOML; a bare word is a string."""
    name, equals, value = assignment.partition("=")
    path = name.strip().split(".")
    if not equals or not all(path):
        raise ConfigError(f"--set {assignment}: should look like model.layers=3.")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    values: Any = parsed
    for key in reversed(path):
        values = {key: values}
    return Layer(f"--set {assignment}", values)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` laid over `below`, table by table."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(under, str) and isinstance(value, Mapping):
            under = {"kind": under}  # a variant given by its name alone
        if isinstance(under, Mapping) and isinstance(value, Mapping) and not _is_another_kind(under, value):
            value = _merge(under, value)
        merged[key] = value
    return merged


def _is_another_kind(below: Mapping[str, Any], above: Mapping[str, Any]) -> bool:
    return "kind" in above and above["kind"] != below.get("kind", above["kind"])
