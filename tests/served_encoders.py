"""Encoders of every kind with random weights, and a server that has them beside a translator and a writer."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from random_models import SMALL, VOCABULARY, saved
from regard.config import (
    BidirectionalLanguageModelConfig,
    ClassHeadConfig,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    TagHeadConfig,
    TokenHeadConfig,
)

if TYPE_CHECKING:  # what other tests need not wait for
    from regard.serving.loaded_models import LoadedModel
    from servers import Running

LABELS = ("bad", "good", "so-so")
TAGS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
MASK = VOCABULARY - 1  # w28 stands for a hole


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, LoadedModel]":
    from regard.serving.loaded_models import load_models

    home = tmp_path_factory.mktemp("encoders")
    saved(
        home / "mood",
        EncoderOnlyConfig(**SMALL, segments=2, pooling="first-dense", head=ClassHeadConfig(labels=LABELS)),
    )
    saved(
        home / "names",
        EncoderOnlyConfig(**SMALL, positions=LearnedPositionsConfig(max_length=8), head=TagHeadConfig(labels=TAGS)),
    )
    saved(
        home / "holes",
        EncoderOnlyConfig(**SMALL, positions=LearnedPositionsConfig(max_length=12), head=TokenHeadConfig()),
        mask=MASK,
    )
    saved(home / "vectors", EncoderOnlyConfig(**SMALL, positions=LearnedPositionsConfig(max_length=12)))
    saved(home / "elmo", BidirectionalLanguageModelConfig(vocab_size=VOCABULARY, width=32, layers=2))
    found = load_models([str(home / name) for name in ("mood", "names", "holes", "vectors", "elmo")])
    for model in found:
        model.warm_up()
    return {model.name: model for model in found}


@pytest.fixture(scope="session")
def reading(encoders: "dict[str, LoadedModel]", models: "list[LoadedModel]") -> "Iterator[Running]":
    """All kinds of models at once."""
    from regard.serving.service import Service
    from servers import running

    with running(Service([models[0], models[2], *encoders.values()])) as found:
        yield found
