"""Fixtures: served models with random weights, of every kind, and servers with them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from random_models import SMALL, VOCABULARY, saved
from regard.config import (
    BidirectionalLanguageModelConfig,
    ClassHeadConfig,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    ModelConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLanguageModelConfig,
    TagHeadConfig,
    TokenHeadConfig,
)

if TYPE_CHECKING:  # slow to import; only some tests need it
    from regard.serving.loaded_models import LoadedModel
    from servers import RunningServer

LABELS = ("bad", "good", "so-so")
TAGS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
MASK = VOCABULARY - 1  # w28 is the mask token


@pytest.fixture(scope="session")
def model_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of translators in both directions, a language model, and recurrent models."""
    home = tmp_path_factory.mktemp("served")
    saved(home / "en-it", EncoderDecoderConfig(**SMALL))
    saved(home / "it-en", EncoderDecoderConfig(**SMALL), seed=1)
    saved(
        home / "writer",
        DecoderOnlyConfig(**SMALL, norm_order="pre", positions=LearnedPositionsConfig(max_length=64)),
    )
    saved(home / "seq2seq", RecurrentEncoderDecoderConfig(vocab_size=VOCABULARY, width=16, layers=1))
    saved(home / "lstm", RecurrentLanguageModelConfig(vocab_size=VOCABULARY, width=16, layers=2))
    return {folder.name: folder for folder in home.iterdir()}


@pytest.fixture(scope="session")
def loaded_models(model_folders: dict[str, Path]) -> "list[LoadedModel]":
    """The translators en-it and it-en, and the language model `writer`."""
    return _load([model_folders[name] for name in ("en-it", "it-en", "writer")])


@pytest.fixture(scope="session")
def recurrent_models(model_folders: dict[str, Path]) -> "dict[str, LoadedModel]":
    """The recurrent translator `seq2seq` and language model `lstm`."""
    from regard.serving.loaded_models import load_models

    return {name: load_models([str(model_folders[name])])[0] for name in ("seq2seq", "lstm")}


@pytest.fixture(scope="session")
def loaded_encoders(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, LoadedModel]":
    """A classifier `mood`, a tagger `names`, a masked language model `holes`, and embedders `vectors` and `elmo`."""
    home = tmp_path_factory.mktemp("encoders")
    short, long = LearnedPositionsConfig(max_length=8), LearnedPositionsConfig(max_length=12)
    configs: dict[str, ModelConfig] = {
        "mood": EncoderOnlyConfig(**SMALL, segments=2, pooling="first-dense", head=ClassHeadConfig(labels=LABELS)),
        "names": EncoderOnlyConfig(**SMALL, positions=short, head=TagHeadConfig(labels=TAGS)),
        "holes": EncoderOnlyConfig(**SMALL, positions=long, head=TokenHeadConfig()),
        "vectors": EncoderOnlyConfig(**SMALL, positions=long),
        "elmo": BidirectionalLanguageModelConfig(vocab_size=VOCABULARY, width=32, layers=2),
    }
    for name, config in configs.items():
        saved(home / name, config, **({"mask": MASK} if name == "holes" else {}))
    return {model.name: model for model in _load([home / name for name in configs])}


@pytest.fixture(scope="session")
def server(loaded_models: "list[LoadedModel]") -> "Iterator[RunningServer]":
    """A server with the translators and the language model."""
    from regard.serving.service import Service
    from servers import run_server

    with run_server(Service(loaded_models)) as running:
        yield running


@pytest.fixture(scope="session")
def encoder_server(
    loaded_encoders: "dict[str, LoadedModel]", loaded_models: "list[LoadedModel]"
) -> "Iterator[RunningServer]":
    """A server with a translator, the language model and all encoders."""
    from regard.serving.service import Service
    from servers import run_server

    with run_server(Service([loaded_models[0], loaded_models[2], *loaded_encoders.values()])) as running:
        yield running


def _load(folders: list[Path]) -> "list[LoadedModel]":
    from regard.serving.loaded_models import load_models

    models = load_models([str(folder) for folder in folders])
    for model in models:
        model.warm_up()
    return models
