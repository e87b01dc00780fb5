"""What all parts of the `Model` class share: folders, networks and tokenizers, loaded on first use; checks of texts.

A model is pickled as its folders and options. What has been loaded stays behind, so that a used model can be sent to
other processes and machines, where everything is loaded on first use.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from regard.config import Config
from regard.data.tokenizer import Tokenizer, load_tokenizer
from regard.data.tokenizer_file import MAX_TOKENIZER_BYTES
from regard.errors import ArgumentError, ConfigError, ModelError
from regard.machine import check_device, ctranslate2_device, resolve_device
from regard.models.folder_files import TARGET_TOKENIZER_FILE, TOKENIZER_FILE, read_config, read_file

if TYPE_CHECKING:
    from regard.models import Network
    from regard.models.folder import SharedWeights

Item = TypeVar("Item")
Result = TypeVar("Result")


class ModelBase:
    """A model folder, or several that form an ensemble."""

    shared_weights: "SharedWeights | None" = None
    """Weights that models of one server have in common, such as the base model of several adapters."""

    def __init__(self, folder: Path, *more: Path, device: str = "cpu", threads: int | None = None) -> None:
        self.folders: tuple[Path, ...] = (folder, *more)
        """All model folders of an ensemble."""
        self.device: str = check_device(device)
        """The device, by name."""
        self.threads: int | None = threads
        """Threads that the engines use; None: one per core."""
        if threads is not None and threads < 1:
            raise ConfigError(f"threads is {threads}; it should be 1 or more.")
        for other in more:
            _check_compatible(folder, self.config, other)
        _ = self.config  # raises an error for a damaged folder now

    @property
    def folder(self) -> Path:
        """The model folder; the first of an ensemble."""
        return self.folders[0]

    @cached_property
    def config(self) -> Config:
        """The configuration of the model."""
        return read_config(self.folder)

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled: absolute folders and options."""
        folders = tuple(folder.absolute() for folder in self.folders)
        return {"folders": folders, "device": self.device, "threads": self.threads}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {' + '.join(map(str, self.folders))}: {self.config.model.family}>"

    @property
    def is_ensemble(self) -> bool:
        """Whether several models are combined."""
        return len(self.folders) > 1

    @cached_property
    def networks(self) -> "list[Network]":
        """The torch networks of all folders."""
        import torch

        from regard.models.folder import load_network

        device = resolve_device(self.device)
        if self.threads is not None:
            torch.set_num_threads(self.threads)  # torch has one setting for the whole process
        return [load_network(folder, self.shared_weights).network.to(device) for folder in self.folders]

    @cached_property
    def cpu_network(self) -> "Network":
        """The torch network on the CPU, where traces are computed."""
        from regard.models.folder import load_network

        return self.network if resolve_device(self.device).type == "cpu" else load_network(self.folder).network

    @property
    def network(self) -> "Network":
        """The torch network; the first of an ensemble."""
        return self.networks[0]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; for a translator with two tokenizers, that of the source language."""
        path = self.folder / TOKENIZER_FILE
        if not path.exists():
            raise ModelError(f"{path}: is missing, so {self.folder} cannot process text; copy the folder again.")
        if self.threads is not None:
            os.environ.setdefault("RAYON_NUM_THREADS", str(self.threads))  # read when a tokenizer first uses threads
        return load_tokenizer(path, self.config.model.vocab_size)

    @cached_property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of the target language."""
        path = self.folder / TARGET_TOKENIZER_FILE
        return load_tokenizer(path, self._target_vocab_size) if path.exists() else self.tokenizer

    @property
    def _target_vocab_size(self) -> int:
        return getattr(self.config.model, "target_vocab_size", None) or self.config.model.vocab_size

    @property
    def _device_obstacle(self) -> str | None:
        """Why CTranslate2 cannot be used on the device of this model; None if it can."""
        if ctranslate2_device(self.device) is not None:
            return None
        return "CTranslate2 cannot use Apple's GPUs" if self.device == "mps" else "CTranslate2 finds no such GPU"


def _check_compatible(folder: Path, config: Config, other: Path) -> None:
    """Raise ConfigError unless two models agree on family, parses, vocabularies and special tokens."""
    other_config = read_config(other)
    if other_config.model.family != config.model.family:
        raise ConfigError(
            f"{other}: is a model of type {other_config.model.family}, and cannot form an ensemble with {folder}, "
            f"which is of type {config.model.family}."
        )
    if other_config.model.needs_parses != config.model.needs_parses:
        needs, without = (other, folder) if other_config.model.needs_parses else (folder, other)
        raise ConfigError(f"{needs}: needs parses, and cannot form an ensemble with {without}, which uses none.")
    for name in (TOKENIZER_FILE, TARGET_TOKENIZER_FILE):
        path, other_path = folder / name, other / name
        if path.exists() != other_path.exists() or (path.exists() and _content(path) != _content(other_path)):
            raise ConfigError(
                f"{other_path}: differs from {path}; the models of an ensemble must have the same vocabulary: "
                "train them with the same tokenizer.file."
            )
    if other_config.tokens != config.tokens:
        raise ConfigError(
            f"{other}: has other special tokens than {folder}; the models of an ensemble must have the same."
        )


def _content(path: Path) -> bytes:
    return read_file(path, MAX_TOKENIZER_BYTES)


def check_texts(call: str, texts: object) -> Iterator[str]:
    """Yield one or more texts; raise ArgumentError at the first that is not a str.

    >>> list(check_texts("translate", "Hello.")), list(check_texts("translate", ["Hello.", "Bye."]))
    (['Hello.'], ['Hello.', 'Bye.'])
    """
    if isinstance(texts, str):
        return iter([texts])
    if isinstance(texts, bytes | bytearray) or not isinstance(texts, Iterable):
        raise ArgumentError(f"{call}: expected a str or an iterable of str, not {_type_name(texts)}.")
    return _check_each(call, texts)


def map_batches(
    function: Callable[[list[Item]], Sequence[Result]], items: Iterable[Item], size: int
) -> Iterator[Result]:
    """Yield the results of a function that takes a batch, reading at most `size` items ahead.

    >>> list(map_batches(lambda batch: [sum(batch)] * len(batch), range(5), 2))
    [1, 1, 5, 5, 4]
    """
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield from function(batch)


def _check_each(call: str, texts: Iterable[object]) -> Iterator[str]:
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise ArgumentError(f"{call}: text {number:,} should be a str, not {_type_name(text)}.")
        yield text


def _type_name(value: object) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    if isinstance(value, bytes | bytearray):
        return f"{name}; decode them first"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
