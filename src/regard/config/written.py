"""Settings written out as TOML, each with where it came from: what `regard config show` prints and a run keeps."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regard.config.complaint import Source, origin
from regard.config.settings import BaseConfig


def to_toml(config: BaseConfig, sources: Sequence[Source] = ()) -> str:
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
        for path, value in leaves(settings):
            line = f"{'.'.join(path)} = {_value(value)}"
            lines.append(f"{line:<40}  # {origin([(section, *path)], sources) or 'default'}" if sources else line)
    return "\n".join(lines[1:]) + "\n"


def leaves(settings: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every setting below a table with its path; lists of files that are empty are left out.

    >>> list(leaves({"schedule": {"kind": "cosine", "warmup_steps": 100}, "seed": 1}))
    [(('schedule', 'kind'), 'cosine'), (('schedule', 'warmup_steps'), 100), (('seed',), 1)]
    """
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*path, key))
        elif value != []:
            yield (*path, key), value


def _value(value: Any) -> str:
    """A value as TOML writes it; JSON writes strings, whole numbers, truth and lists of them the same way."""
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
