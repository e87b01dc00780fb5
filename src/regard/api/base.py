"""What all parts of the `Model` class share: folders, configuration, networks and tokenizers, loaded on first use."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from regard.config import Config
from regard.data.tokenizer import Tokenizer, load_tokenizer
from regard.errors import ConfigError, ModelError
from regard.models.folder_files import TARGET_TOKENIZER_FILE, TOKENIZER_FILE, read_config

if TYPE_CHECKING:
    from regard.models import Network


class ModelBase:
    """A model folder, or several that form an ensemble."""

    def __init__(self, folder: Path, *more: Path) -> None:
        self.folder: Path = folder
        """The model folder; the first of an ensemble."""
        self.folders: tuple[Path, ...] = (folder, *more)
        """All model folders of an ensemble."""
        self.config: Config = read_config(folder)
        """The configuration of the model."""
        for other in more:
            _check_compatible(folder, self.config, other)

    @property
    def is_ensemble(self) -> bool:
        """Whether several models are combined."""
        return len(self.folders) > 1

    @cached_property
    def networks(self) -> "list[Network]":
        """The torch networks of all folders."""
        from regard.models.folder import load as load_network

        return [load_network(folder).network for folder in self.folders]

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
        return load_tokenizer(path)

    @cached_property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of the target language."""
        path = self.folder / TARGET_TOKENIZER_FILE
        return load_tokenizer(path) if path.exists() else self.tokenizer


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
        if path.exists() != other_path.exists() or (path.exists() and path.read_bytes() != other_path.read_bytes()):
            raise ConfigError(
                f"{other_path}: differs from {path}; the models of an ensemble must have the same vocabulary: "
                "train them with the same tokenizer.file."
            )
    if other_config.tokens != config.tokens:
        raise ConfigError(
            f"{other}: has other special tokens than {folder}; the models of an ensemble must have the same."
        )
