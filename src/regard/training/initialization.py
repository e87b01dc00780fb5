"""Fine-tuning: training that starts from a model folder rather than from nothing.

The network's settings and its tokenizer come from the folder, and so do all weights but those of a head, or a pooling,
that the folder has none of, or another. From the first checkpoint on, a run no longer needs the folder.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.config import Config, ConfigSource, EncoderConfig, unchecked_value, validate_sources
from regard.config.errors import setting_origin
from regard.config.sources import flatten
from regard.data.tokenizer import Tokenizer, load_tokenizer
from regard.data.word_boundaries import whole_words
from regard.data.word_vectors import Vector, WordVectors, read_word_vectors, vector_size
from regard.errors import ConfigError, DataError, ModelError
from regard.models.assembly import build_meta
from regard.models.folder_files import CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE, read_config, resolve_model_folder
from regard.models.network import Network
from regard.models.weights import named_tensors, read_tensors, shape_text
from regard.nn import TokenEmbedding

TASK_SPECIFIC = ("head.", "pooling.")  # what tensors are called that may be new
CHANGEABLE = (  # settings that do not make what was learned mean something else
    "model.dropout",
    "model.attention_dropout",
    "model.activation_dropout",
    "model.head",
    "model.pooling",
)


def start_from_source(sources: Sequence[ConfigSource], *, by_command: bool = False) -> ConfigSource | None:
    """The settings of the network that training starts from, if sources say there is one.

    `by_command`: the first source is what a command stands for, and any network that can do the same will do.
    """
    said = unchecked_value(sources, "training.start_from")
    if not isinstance(said, str):
        return None
    folder = resolve_model_folder(said)
    config = read_config(folder)
    said, usual = (
        unchecked_value(sources[by_command:], "model.kind"),
        unchecked_value(sources[:by_command], "model.kind"),
    )
    asked = said or usual
    if isinstance(asked, str) and asked != config.model.kind and (said or not _alike(asked, config)):
        raise ConfigError(
            f"{folder}: is of the kind {config.model.family}, but model.kind = {asked!r} is asked for; "
            "start from a model of that kind."
        )
    if unchecked_value(sources, "tokenizer.file") is not None:
        raise ConfigError(
            f"tokenizer.file: the tokenizer comes with {folder}, which training starts from; leave it out."
        )
    values = config.model_dump(mode="json", include={"model", "tokens"}, exclude_none=True)
    head = unchecked_value(sources, "model.head")
    wanted = head.get("kind") if isinstance(head, dict) else head
    if wanted is not None and wanted != values["model"].get("head", {}).get("kind"):
        values["model"].pop("head", None)  # its labels are not those of another kind of head
    return ConfigSource(str(folder / CONFIG_FILE), values)


def check_same_network(config: Config, sources: Sequence[ConfigSource]) -> None:
    """Complain about a setting that the network which training starts from does not have."""
    assert config.training.start_from is not None
    folder = resolve_model_folder(config.training.start_from)
    theirs = _settings(read_config(folder))
    for path, now in _settings(config).items():
        name, was = ".".join(path), theirs.get(path)
        if was != now and not any(name == free or name.startswith(f"{free}.") for free in CHANGEABLE):
            found = setting_origin([path], sources)
            where = f"{found}: " if found else ""
            raise ConfigError(
                f"{where}{name} = {now!r} differs from that of {folder}, which training starts from and which has "
                f"{was!r}; leave it out."
            )


def start_tokenizer(folder: str) -> str:
    """The content of the `tokenizer.json` that training starts with."""
    path = resolve_model_folder(folder) / TOKENIZER_FILE
    if not path.exists():
        raise ModelError(f"{path}: is missing, so training cannot start from this model; copy the folder again.")
    return load_tokenizer(path).to_json().decode()


@torch.no_grad()
def copy_weights_from(network: Network, config: Config) -> str:
    """Give a network the weights of the folder that training starts from; a sentence on what is new."""
    assert config.training.start_from is not None
    folder = resolve_model_folder(config.training.start_from)
    theirs, path = read_tensors(folder / WEIGHTS_FILE), folder / WEIGHTS_FILE
    if not _same_head(config, read_config(folder)):
        theirs = {name: tensor for name, tensor in theirs.items() if not name.startswith("head.")}
    new = []
    for name, tensor in named_tensors(network).items():
        if name not in theirs:
            if not name.startswith(TASK_SPECIFIC):
                raise ModelError(f"{path}: has no tensor {name}, which {CONFIG_FILE} asks for.")
            new.append(name)
        elif theirs[name].shape != tensor.shape:
            raise ModelError(
                f"{path}: has {name} of shape {shape_text(theirs[name])}, but training asks for {shape_text(tensor)}."
            )
        else:
            tensor.copy_(theirs[name])
    parts = sorted({name.partition(".")[0] for name in new})
    return f"Starting from {folder}" + (f", with a new {' and a new '.join(parts)}." if parts else ".")


def freeze_encoder(network: nn.Module) -> None:
    """Let training change nothing but the head, what pools for it and, of an ELMo, how layers are mixed for it."""
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name.startswith((*TASK_SPECIFIC, "mixing.")))


def _settings(config: Config) -> dict[tuple[str, ...], Any]:
    return dict(flatten(config.model_dump(mode="json", include={"model", "tokens"}, exclude_none=True)))


def _same_head(ours: Config, theirs: Config) -> bool:
    """Whether two heads predict the same."""
    heads = [config.model.head if isinstance(config.model, EncoderConfig) else None for config in (ours, theirs)]
    one, other = ((head.kind, getattr(head, "labels", ())) if head is not None else None for head in heads)
    return one == other


def _alike(kind: str, config: Config) -> bool:
    """Whether a kind of network does the same as that of a config: translates, continues text, or reads it."""
    try:
        other = validate_sources([ConfigSource("", {"model": {"kind": kind}})])
    except ConfigError:
        return False
    one, two = ((m.translates, m.generates, isinstance(m, EncoderConfig)) for m in (other.model, config.model))
    return one == two


def check_word_vectors(config: Config) -> None:
    """Complain about a file that cannot be read, or does not fit the network, before anything long begins."""
    if config.training.pretrained_embeddings is None:
        return
    found, width = (
        vector_size(Path(config.training.pretrained_embeddings)),
        _tables(build_meta(config.model))[0].size(1),
    )
    if found != width:
        remedy = found * config.model.width // width  # a network may give embeddings only a part of its width
        raise ConfigError(
            f"{config.training.pretrained_embeddings}: vectors of {found} numbers, but the embeddings have "
            f"{width}; set model.width = {remedy}, or give other vectors."
        )


def initialize_embeddings(network: Network, tokenizer: Tokenizer, path: Path) -> str:
    """Set the embeddings of tokens that are words of the file; returns how many there are, as a sentence.

    The vectors keep their directions, and are scaled together to the spread that embeddings have at first, N(0, 1/C).
    Tokens that are no words of the file keep the values they have.
    """
    words = {number: word for number, word in enumerate(whole_words(tokenizer)) if word is not None}
    wanted = {form for word in words.values() for form in (word, word.lower())}
    rows = _rows(words, read_word_vectors(path, wanted))
    if not rows:
        raise DataError(
            f"{path}: has a vector for none of the {len(tokenizer):,} tokens, of which {len(words):,} are whole words; "
            "check its language, or set tokenizer.kind = 'word'."
        )
    numbers, vectors = list(rows), torch.from_numpy(np.stack(list(rows.values())))  # (found, C)
    spread = vectors.square().mean().sqrt()
    if spread > 0:
        vectors = vectors * (vectors.size(1) ** -0.5 / spread)
    with torch.no_grad():
        for table in _tables(network):
            table[numbers] = vectors.to(table)
    return f"{path}: {len(rows):,} of {len(tokenizer):,} tokens found; the others begin at random."


def _rows(words: Mapping[int, str], found: WordVectors) -> dict[int, Vector]:
    """The vectors of tokens; where the file has no capitals, a word with some is taken for the one without."""
    rows: dict[int, Vector] = {}
    for number, word in words.items():
        vector = found.vectors.get(word)
        if vector is None and found.lowercase:
            vector = found.vectors.get(word.lower())
        if vector is not None:
            rows[number] = vector
    return rows


def _tables(network: nn.Module) -> list[nn.Parameter]:
    """The embedding matrices (V, C), each once."""
    tables = {id(part.weight): part.weight for part in network.modules() if isinstance(part, TokenEmbedding)}
    return list(tables.values())
