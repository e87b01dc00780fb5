"""A wrong setting as one sentence: where it stands, what it says, what it should be."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from regard.errors import ConfigError


@dataclass(frozen=True)
class ConfigSource:
    """Settings from one place: `name` is how an error refers to it, `text` the TOML they were read from."""

    name: str
    values: Mapping[str, Any]
    text: str = field(default="", repr=False)


def config_error(error: ValidationError, schema: type[BaseModel], sources: Sequence[ConfigSource]) -> ConfigError:
    """The first complaint of a failed validation, in words a user can act on."""
    first = error.errors()[0]
    path, known = _trace(first["loc"], schema)
    if first["type"].startswith("union_tag"):
        path = (*path, "kind")
    key = ".".join(path)
    fault = first["msg"].removeprefix("Value error, ").replace("Input should", "should")
    of_a_table = fault.startswith(f"{key}.")  # it says itself which of the table's settings is wrong
    named = re.findall(r"([a-z_]+(?:\.[a-z_]+)+)" if of_a_table else r"([a-z_.]+) = ", fault)  # maybe several, at odds
    paths = [tuple(name.split(".")) for name in named]
    where = _where(paths if of_a_table else [path, *paths], sources)
    match first["type"]:
        case "extra_forbidden":
            prefix = "".join(f"{part}." for part in path[:-1])
            guess = difflib.get_close_matches(path[-1], known, n=1)
            hint = f"did you mean {prefix}{guess[0]}?" if guess else f"the settings here are {', '.join(known)}."
            return ConfigError(f"{where}{key} is not a setting; {hint}")
        case "model_attributes_type" | "model_type" | "dict_type":
            return ConfigError(f"{where}{key} = {first['input']!r} should be a table of settings.")
        case "union_tag_invalid":
            context = first["ctx"]
            tags = re.findall(r"'([^']+)'", context["expected_tags"])
            return ConfigError(
                f"{where}{key} = {context['tag']!r} should be {_either(tags)}{did_you_mean(context['tag'], tags)}."
            )
        case "literal_error":
            options = re.findall(r"'([^']+)'", first["ctx"]["expected"])
            given = first["input"]
            return ConfigError(
                f"{where}{key} = {given!r} should be {_either(options)}{did_you_mean(str(given), options)}."
            )
    fault = fault.replace("a valid boolean", "true or false").replace("a valid integer", "a whole number")
    if of_a_table:
        return ConfigError(f"{where}{fault}.")
    return ConfigError(f"{where}{key} = {first['input']!r} {fault}.")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean …?)` when something known is spelled like it, else nothing.

    >>> did_you_mean("tinny", ["tiny", "small"])
    ' (did you mean tiny?)'
    """
    guess = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {guess[0]}?)" if guess else ""


def _either(options: Sequence[str]) -> str:
    quoted = [repr(option) for option in options]
    return " or ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))


def config_classes(annotation: Any) -> Iterable[type[BaseModel]]:
    """Every table of settings inside a schema, the variants of unions included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for inner in annotation.model_fields.values():
            yield from config_classes(inner.annotation)
    for argument in get_args(annotation):
        yield from config_classes(argument)


def _options(annotation: Any) -> Iterable[type[BaseModel]]:
    """The tables that one setting may be, those inside them not included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _options(argument)


def has_kind(table: type[BaseModel]) -> bool:
    """Whether a table is one of several variants."""
    return "kind" in table.model_fields


def _trace(location: Sequence[int | str], schema: type[BaseModel]) -> tuple[tuple[str, ...], list[str]]:
    """The path of a setting as the user writes it, and the settings of the table it is in.

    Pydantic puts the tag of a union into the path (`model.encoder-decoder.heads`); the user did not write it.
    """
    path: list[str] = []
    table: type[BaseModel] | None = schema
    variants: dict[Any, type[BaseModel]] = {}
    known = list(schema.model_fields)
    for part in location:
        if part in variants:
            table, variants = variants[part], {}
        else:
            path.append(str(part))
            inner = table.model_fields.get(str(part)) if table is not None else None
            options = list(_options(inner.annotation)) if inner is not None else []
            variants = {option.model_fields["kind"].default: option for option in options if has_kind(option)}
            table = options[0] if options and not variants else None
        if table is not None:
            known = list(table.model_fields)
    return tuple(path), known


def _where(paths: Iterable[Sequence[str]], sources: Sequence[ConfigSource]) -> str:
    """`my.toml:4: ` or `--set …: `, or nothing for a default."""
    found = setting_origin(paths, sources)
    return f"{found}: " if found else ""


def setting_origin(paths: Iterable[Sequence[str]], sources: Sequence[ConfigSource]) -> str:
    """`my.toml:4` or `--set …`: the last source that gave one of these settings, else nothing (a default)."""
    paths = list(paths)
    for source in reversed(sources):
        for path in paths:
            if depth := _depth(path, source.values):
                line = _line(path[:depth], source.text)
                return f"{source.name}:{line}" if line else source.name
    return ""


def _depth(path: Sequence[str], values: Any) -> int:
    """How far down the path these values go: all of it, or to a shorthand value; 0 when they do not mention it."""
    for depth, key in enumerate(path):
        if not isinstance(values, Mapping):
            return depth
        if key not in values:
            return 0
        values = values[key]
    return len(path)


def _line(path: Sequence[str], text: str) -> int | None:
    """The line of a TOML text that gives a setting, in tables written as `[a]`, `a.b = …` or `a = { b = … }`."""
    table: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = [part.strip(" \"'") for part in header[1].split(".")]
            if table == list(path):
                return number
        elif assignment := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            given = [*table, *(part.strip(" \"'") for part in assignment[1].split("."))]
            if given == list(path[: len(given)]):
                return number
    return None
