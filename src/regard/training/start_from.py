"""Initial weights from elsewhere: fine-tuning from a model folder, and embeddings from word vectors.

`training.start_from` takes the network's settings, its tokenizer, its weights and how it decodes from a model folder,
except a head or pooling that the folder does not have. `training.pretrained_embeddings` initializes embeddings from a
file of word vectors. From its first checkpoint on, a run needs neither the folder nor the file.
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
from regard.data.word_tokens import whole_words
from regard.data.word_vectors import Vector, WordVectors, read_word_vectors, vector_size
from regard.errors import ConfigError, DataError, ModelError
from regard.models.assembly import build_meta
from regard.models.folder import named_tensors, read_model_weights, shape_text
from regard.models.folder_files import CONFIG_FILE, TOKENIZER_FILE, read_config, resolve_model_folder
from regard.models.network import Network
from regard.nn import TokenEmbedding

TASK_SPECIFIC = ("head.", "pooling.")  # prefixes of tensors that a start model need not have
CHANGEABLE = (  # settings that may differ from the start model
    "model.dropout",
    "model.attention_dropout",
    "model.activation_dropout",
    "model.head",
    "model.pooling",
)


def start_from_source(sources: Sequence[ConfigSource], *, by_command: bool = False) -> ConfigSource | None:
    """The network settings of the model that training starts from, and how it decodes, if sources name one.

    With `by_command`, the first source has the defaults of a task: any network of the same type will do.
    """
    start = unchecked_value(sources, "training.start_from")
    if not isinstance(start, str):
        return None
    folder = resolve_model_folder(start)
    config = read_config(folder)
    by_user = unchecked_value(sources[by_command:], "model.kind")
    kind = by_user or unchecked_value(sources[:by_command], "model.kind")
    if isinstance(kind, str) and kind != config.model.kind and (by_user or not _same_type(kind, config)):
        raise ConfigError(
            f"{folder}: has model.kind = {config.model.kind!r}, but model.kind = {kind!r} is set; "
            "start from a model of that kind."
        )
    if unchecked_value(sources, "tokenizer.file") is not None:
        raise ConfigError(
            f"tokenizer.file: the tokenizer comes with {folder}, which training starts from; leave it out."
        )
    tables = {"model", "tokens", "decoding"} if config.model.translates else {"model", "tokens"}
    values = config.model_dump(mode="json", include=tables, exclude_none=True)
    head = unchecked_value(sources, "model.head")
    head_kind = head.get("kind") if isinstance(head, dict) else head
    if head_kind is not None and head_kind != values["model"].get("head", {}).get("kind"):
        values["model"].pop("head", None)  # the labels of another kind of head do not apply
    return ConfigSource(str(folder / CONFIG_FILE), values)


def check_same_network(config: Config, sources: Sequence[ConfigSource]) -> None:
    """Raise a ConfigError for a network setting that differs from the model that training starts from."""
    assert config.training.start_from is not None
    folder = resolve_model_folder(config.training.start_from)
    start_settings = _network_settings(read_config(folder))
    for path, value in _network_settings(config).items():
        key, start_value = ".".join(path), start_settings.get(path)
        if start_value != value and not any(key == free or key.startswith(f"{free}.") for free in CHANGEABLE):
            origin = setting_origin([path], sources)
            raise ConfigError(
                f"{f'{origin}: ' if origin else ''}{key} = {value!r} differs from {folder}, which training starts from "
                f"and which has {start_value!r}; leave it out."
            )


def start_tokenizer(folder: str) -> str:
    """The content of the `tokenizer.json` of the model that training starts from."""
    path = resolve_model_folder(folder) / TOKENIZER_FILE
    if not path.exists():
        raise ModelError(f"{path}: is missing, so training cannot start from this model; copy the folder again.")
    return load_tokenizer(path, read_config(path.parent).model.vocab_size).to_json().decode()


@torch.no_grad()
def copy_weights_from(network: Network, config: Config) -> str:
    """Copy the weights of the model that training starts from; returns a message about new parts."""
    assert config.training.start_from is not None
    folder = resolve_model_folder(config.training.start_from)
    path, weights = read_model_weights(folder)
    if not _same_head(config, read_config(folder)):
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith("head.")}
    new = []
    for name, tensor in named_tensors(network).items():
        if name not in weights:
            if not name.startswith(TASK_SPECIFIC):
                raise ModelError(f"{path}: has no tensor {name}, which {CONFIG_FILE} requires.")
            new.append(name)
        elif weights[name].shape != tensor.shape:
            raise ModelError(
                f"{path}: has {name} of shape {shape_text(weights[name])}, but training needs {shape_text(tensor)}."
            )
        else:
            tensor.copy_(weights[name])
    parts = sorted({name.partition(".")[0] for name in new})
    return f"Starting from {folder}" + (f", with a new {' and a new '.join(parts)}." if parts else ".")


def freeze_encoder(network: nn.Module) -> None:
    """Train only the head, the pooling and the layer mixing of ELMo."""
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name.startswith((*TASK_SPECIFIC, "mixing.")))


def _network_settings(config: Config) -> dict[tuple[str, ...], Any]:
    return dict(flatten(config.model_dump(mode="json", include={"model", "tokens"}, exclude_none=True)))


def _same_head(config: Config, start: Config) -> bool:
    """Whether two heads predict the same labels."""
    heads = [model.head if isinstance(model, EncoderConfig) else None for model in (config.model, start.model)]
    first, second = ((head.kind, getattr(head, "labels", ())) if head is not None else None for head in heads)
    return first == second


def _same_type(kind: str, config: Config) -> bool:
    """Whether a kind of network translates, generates or encodes text as that of a config does."""
    try:
        default = validate_sources([ConfigSource("", {"model": {"kind": kind}})])
    except ConfigError:
        return False
    first, second = (
        (model.translates, model.generates, isinstance(model, EncoderConfig)) for model in (default.model, config.model)
    )
    return first == second


def check_word_vectors(config: Config) -> None:
    """Raise an error for a vector file that cannot be read or does not fit the network."""
    if config.training.pretrained_embeddings is None:
        return
    size = vector_size(Path(config.training.pretrained_embeddings))
    embedding_size = _embedding_matrices(build_meta(config.model))[0].size(1)
    if size != embedding_size:
        width = size * config.model.width // embedding_size  # embeddings may have a part of the model width
        raise ConfigError(
            f"{config.training.pretrained_embeddings}: vectors of {size} numbers, but the embeddings have "
            f"{embedding_size}; set model.width = {width}, or use other vectors."
        )


def initialize_embeddings(network: Network, tokenizer: Tokenizer, path: Path) -> str:
    """Initialize the embeddings of tokens that are words of a vector file; returns a message with their number.

    The vectors keep their directions, and are scaled together to the variance of the random initialization, N(0, 1/C).
    Other tokens keep their random initialization.
    """
    words = {token_id: word for token_id, word in enumerate(whole_words(tokenizer)) if word is not None}
    forms = {form for word in words.values() for form in (word, word.lower())}
    rows = _vectors_of_tokens(words, read_word_vectors(path, forms))
    if not rows:
        raise DataError(
            f"{path}: has a vector for none of the {len(tokenizer):,} tokens, of which {len(words):,} are whole words; "
            "check its language, or set tokenizer.kind = 'word'."
        )
    token_ids, vectors = list(rows), torch.from_numpy(np.stack(list(rows.values())))  # (N, C)
    deviation = vectors.square().mean().sqrt()
    if deviation > 0:
        vectors = vectors * (vectors.size(1) ** -0.5 / deviation)
    with torch.no_grad():
        for matrix in _embedding_matrices(network):
            matrix[token_ids] = vectors.to(matrix)
    return f"{path}: {len(rows):,} of {len(tokenizer):,} tokens found; the others are initialized at random."


def _vectors_of_tokens(words: Mapping[int, str], file: WordVectors) -> dict[int, Vector]:
    """The vectors of tokens; in a file without capitals, words are looked up in lower case too."""
    rows: dict[int, Vector] = {}
    for token_id, word in words.items():
        vector = file.vectors.get(word)
        if vector is None and file.lowercase:
            vector = file.vectors.get(word.lower())
        if vector is not None:
            rows[token_id] = vector
    return rows


def _embedding_matrices(network: nn.Module) -> list[nn.Parameter]:
    """The embedding matrices (V, C), each once."""
    matrices = {id(module.weight): module.weight for module in network.modules() if isinstance(module, TokenEmbedding)}
    return list(matrices.values())
