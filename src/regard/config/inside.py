"""Files of data that settings name, taken to be in a folder: one recipe for data wherever they lie."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.config.complaint import Source
from regard.config.data import CorpusConfig, DataConfig

PARTS = tuple(name for name, field in DataConfig.model_fields.items() if field.annotation is CorpusConfig)
ELSEWHERE = ("builtin:", "-")  # what is not a path: embedded corpora, and standard input


def inside(folder: Path, source: Source) -> Source:
    """The same settings, with relative paths of data starting from the folder.

    >>> recipe = Source("recipe.toml", {"data": {"train": {"files": ["train.tsv", "builtin:phrasebook"]}}})
    >>> inside(Path("corpora"), recipe).values
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
