"""A translator each way and a writer, with random weights, and a server that has all of them, as fixtures.

Beside them stand a translator and a writer that are recurrent.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from random_models import SMALL, VOCABULARY, saved
from regard.config import (
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    LearnedPositionsConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLanguageModelConfig,
)

if TYPE_CHECKING:  # what other tests need not wait for
    from regard.serving.loaded_models import LoadedModel
    from servers import Running


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("served")
    saved(home / "en-it", EncoderDecoderConfig(**SMALL))
    saved(home / "it-en", EncoderDecoderConfig(**SMALL), seed=1)
    saved(
        home / "writer", DecoderOnlyConfig(**SMALL, norm_order="pre", positions=LearnedPositionsConfig(max_length=64))
    )
    saved(home / "seq2seq", RecurrentEncoderDecoderConfig(vocab_size=VOCABULARY, width=16, layers=1))
    saved(home / "lstm", RecurrentLanguageModelConfig(vocab_size=VOCABULARY, width=16, layers=2))
    return {folder.name: folder for folder in home.iterdir()}


@pytest.fixture(scope="session")
def models(folders: dict[str, Path]) -> "list[LoadedModel]":
    from regard.serving.loaded_models import load_models

    found = load_models([str(folders[name]) for name in ("en-it", "it-en", "writer")])
    for model in found:
        model.warm_up()
    return found


@pytest.fixture(scope="session")
def recurrent(folders: dict[str, Path]) -> "dict[str, LoadedModel]":
    from regard.serving.loaded_models import load_models

    return {name: load_models([str(folders[name])])[0] for name in ("seq2seq", "lstm")}


@pytest.fixture(scope="session")
def server(models: "list[LoadedModel]") -> "Iterator[Running]":
    from regard.serving.service import Service
    from servers import running

    with running(Service(models)) as found:
        yield found
