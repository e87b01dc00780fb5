"""A translator each way and a writer, with random weights, and a server that has all of them, as fixtures."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from random_models import SMALL, saved
from regard.config import DecoderOnly, EncoderDecoder, LearnedPositions

if TYPE_CHECKING:  # what other tests need not wait for
    from regard.serving.served import Served
    from servers import Running


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("served")
    saved(home / "en-it", EncoderDecoder(**SMALL))
    saved(home / "it-en", EncoderDecoder(**SMALL), seed=1)
    saved(home / "writer", DecoderOnly(**SMALL, norm_order="pre", positions=LearnedPositions(length=64)))
    return {folder.name: folder for folder in home.iterdir()}


@pytest.fixture(scope="session")
def models(folders: dict[str, Path]) -> "list[Served]":
    from regard.serving.served import load_all

    found = load_all([str(folders[name]) for name in ("en-it", "it-en", "writer")])
    for model in found:
        model.warm_up()
    return found


@pytest.fixture(scope="session")
def server(models: "list[Served]") -> "Iterator[Running]":
    from regard.serving.service import Service
    from servers import running

    with running(Service(models)) as found:
        yield found
