"""A wrong setting as one sentence: where it stands, what it says, what it should be."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from regard.errors import ConfigError

Source = tuple[str, Mapping[str, Any], str]  # name of the layer, its values, its TOML text


def complain(error: ValidationError, schema: type[BaseModel], sources: Sequence[Source]) -> ConfigError:
    """The first complaint of a failed validation, in words a user can act on."""
    first = error.errors()[0]
    tables = list(_tables(schema))
    path = _without_tags(first["loc"], tables)
    if first["type"].startswith("union_tag"):
        path = (*path, "kind")
    key = ".".join(path)
    others = re.findall(r"([a-z_.]+) = ", first["msg"])  # a contradiction names the other setting
    where = _where([path, *(tuple(other.split(".")) for other in others)], sources)
    match first["type"]:
        case "extra_forbidden":
            known = _known_keys(first["loc"], schema)
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
                f"{where}{key} = {context['tag']!r} should be {_either(tags)}{nearest(context['tag'], tags)}."
            )
        case "literal_error":
            options = re.findall(r"'([^']+)'", first["ctx"]["expected"])
            given = first["input"]
            return ConfigError(f"{where}{key} = {given!r} should be {_either(options)}{nearest(str(given), options)}.")
    fault = first["msg"].removeprefix("Value error, ").replace("Input should", "should")
    return ConfigError(f"{where}{key} = {first['input']!r} {fault}.")


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean …?)` when something known is spelled like it, else nothing.

    >>> nearest("tinny", ["tiny", "small"])
    ' (did you mean tiny?)'
    """
    guess = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {guess[0]}?)" if guess else ""


def _either(options: Sequence[str]) -> str:
    quoted = [repr(option) for option in options]
    return " or ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))


def _tables(annotation: Any) -> Iterable[type[BaseModel]]:
    """Every table of settings inside a schema, the variants of unions included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from _tables(field.annotation)
    for argument in get_args(annotation):
        yield from _tables(argument)


def _without_tags(location: Iterable[int | str], tables: Iterable[type[BaseModel]]) -> tuple[str, ...]:
    """Pydantic puts the tag of a union into the path (`model.encoder-decoder.heads`); the user did not write it."""
    tags = {table.model_fields["kind"].default for table in tables if "kind" in table.model_fields}
    return tuple(str(part) for part in location if part not in tags)


def _known_keys(location: Sequence[int | str], schema: type[BaseModel]) -> list[str]:
    """The settings of the table that a path leads to, its last part being the unknown one."""
    table = schema
    for part in location[:-1]:
        if part in table.model_fields:
            inner = list(_tables(table.model_fields[str(part)].annotation))
            table = inner[0]
            variants = inner
        else:  # the tag of a union
            table = next(variant for variant in variants if variant.model_fields["kind"].default == part)
    return list(table.model_fields)


def _where(paths: Iterable[Sequence[str]], sources: Sequence[Source]) -> str:
    """`my.toml:4: ` or `--set …: `: the last layer that gave one of these settings, else nothing (a default)."""
    paths = list(paths)
    for name, values, text in reversed(sources):
        for path in paths:
            if depth := _depth(path, values):
                line = _line(path[:depth], text)
                return f"{name}:{line}: " if line else f"{name}: "
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
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = [part.strip(" \"'") for part in header[1].split(".")]
        elif assignment := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            given = [*table, *(part.strip(" \"'") for part in assignment[1].split("."))]
            if given == list(path[: len(given)]):
                return number
    return None
