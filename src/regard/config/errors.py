"""Error messages for invalid settings: where the setting is, its value, what is wrong, and what to do."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from regard.config.base import field_annotation, select_table, union_kinds
from regard.errors import ConfigError, ModelError


@dataclass(frozen=True)
class ConfigSource:
    """Settings from one place: a preset, a file, or `--set`."""

    name: str
    """How error messages refer to the source."""
    values: Mapping[str, Any]
    """Nested tables of settings, unchecked."""
    text: str = field(default="", repr=False)
    """TOML text of the settings, for line numbers."""


def config_error(
    error: ValidationError, schema: type[BaseModel], sources: Sequence[ConfigSource], values: Mapping[str, Any]
) -> ConfigError:
    """Convert the first error of a failed validation to a message that names key, value, file and line.

    `values` are the merged settings of all sources.
    """
    first = error.errors()[0]
    path, known = _locate(first["loc"], schema, values)
    if first["type"].startswith("union_tag"):
        path = (*path, "kind")
    key = ".".join(path)
    problem = first["msg"].removeprefix("Value error, ").replace("Input should", "should")
    names_key = problem.startswith(f"{key}.")  # a check of a whole table names the key itself
    mentioned = re.findall(r"([a-z_]+(?:\.[a-z_]+)+)" if names_key else r"([a-z_.]+) = ", problem)
    paths = [tuple(name.split(".")) for name in mentioned]
    origin = setting_origin(paths if names_key else [path, *paths], sources)
    where = f"{origin}: " if origin else ""
    match first["type"]:
        case "extra_forbidden":
            prefix = "".join(f"{part}." for part in path[:-1])
            close = difflib.get_close_matches(path[-1], known, n=1)
            hint = f"did you mean {prefix}{close[0]}?" if close else f"the settings here are {', '.join(known)}."
            return ConfigError(f"{where}{key} is not a setting; {hint}")
        case "model_attributes_type" | "model_type" | "dict_type":
            return ConfigError(f"{where}{key} = {first['input']!r} should be a table of settings.")
        case "string_pattern_mismatch" if first["loc"][-1] == "[key]":
            return ConfigError(f"{where}{key}: the name {path[-1]!r} should match {first['ctx']['pattern']}.")
        case "union_tag_invalid":
            return ConfigError(f"{where}{key} = {_expected(first['ctx']['tag'], first['ctx']['expected_tags'])}.")
        case "literal_error":
            return ConfigError(f"{where}{key} = {_expected(first['input'], first['ctx']['expected'])}.")
    problem = problem.replace("a valid boolean", "true or false").replace("a valid integer", "a whole number")
    if names_key:
        return ConfigError(f"{where}{problem}.")
    return ConfigError(f"{where}{key} = {first['input']!r} {problem}.")


def first_problem(error: ValidationError) -> str:
    """Return the first invalid setting of a failed validation, and what is wrong with it."""
    first = error.errors()[0]
    problem = first["msg"].removeprefix("Value error, ").replace("Input should", "should")
    return problem if " = " in problem else f"{'.'.join(map(str, first['loc']))} {problem}"


@contextmanager
def explain_invalid_network(location: object) -> Iterator[None]:
    """Turn a failed validation of settings that come from another program into a ModelError about their file."""
    try:
        yield
    except ValidationError as error:
        problem = f"describes a network that regard does not have: {first_problem(error)}"
        raise ModelError(f"{location}: {problem}; copy it again, or choose another model.") from None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean …?)` with the known word of the most similar spelling, or an empty string.

    >>> did_you_mean("tinny", ["tiny", "small"])
    ' (did you mean tiny?)'
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def setting_origin(paths: Iterable[Sequence[str]], sources: Sequence[ConfigSource]) -> str:
    """Return `my.toml:4` or `--set …`: the last source that sets one of these paths; empty for a default."""
    paths = list(paths)
    for source in reversed(sources):
        for path in paths:
            if depth := _depth(path, source.values):
                line = _line_number(path[:depth], source.text)
                return f"{source.name}:{line}" if line else source.name
    return ""


def _expected(value: Any, listed: str) -> str:
    """`'x' should be 'a' or 'b' (did you mean a?)`, from pydantic's list of the quoted options."""
    options = re.findall(r"'([^']+)'", listed)
    quoted = [repr(option) for option in options]
    choices = " or ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))
    return f"{value!r} should be {choices}{did_you_mean(str(value), options)}"


def _locate(location: Sequence[int | str], schema: type[BaseModel], values: Any) -> tuple[tuple[str, ...], list[str]]:
    """Return the path of a setting as the user writes it, and the keys of the table that it is in.

    Pydantic adds the kind of a closed union to the location (`model.encoder-decoder.heads`); the path omits it.
    """
    path: list[str] = []
    table: Any = schema
    kinds: set[str] = set()
    known = list(schema.model_fields)
    for part in map(str, location):
        if part == "[key]":  # the name of a table in a dict is invalid
            continue
        if part in kinds:
            kinds = set()
            continue
        path.append(part)
        annotation = field_annotation(table, part)
        values = values.get(part) if isinstance(values, Mapping) else None
        table, kinds = select_table(annotation, values), union_kinds(annotation)
        if isinstance(table, type) and issubclass(table, BaseModel):
            known = list(table.model_fields)
    return tuple(path), known


def _depth(path: Sequence[str], values: Any) -> int:
    """Return how many keys of the path the values contain; a scalar on the way counts, a missing key means 0."""
    for depth, key in enumerate(path):
        if not isinstance(values, Mapping):
            return depth
        if key not in values:
            return 0
        values = values[key]
    return len(path)


def _line_number(path: Sequence[str], text: str) -> int | None:
    """Return the line of a TOML text that sets a path, written as `[a]`, `a.b = …` or `a = { b = … }`."""
    table: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = [part.strip(" \"'") for part in header[1].split(".")]
            if table == list(path):
                return number
        elif assignment := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            assigned = [*table, *(part.strip(" \"'") for part in assignment[1].split("."))]
            if assigned == list(path[: len(assigned)]):
                return number
    return None
