"""Config classes: every class and every setting has a description, which the config reference shows."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from regard.config import Config, VariantConfig, Word2VecRunConfig
from regard.config.base import field_descriptions


def config_classes(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield all config classes of an annotation and of their fields, registered variants included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if issubclass(annotation, VariantConfig) and annotation.is_open():
            for kind in annotation.registry.names():
                yield from config_classes(annotation.registry[kind])
        else:
            yield annotation
            for field in annotation.model_fields.values():
                yield from config_classes(field.annotation)
    for argument in get_args(annotation):
        yield from config_classes(argument)


CLASSES = sorted({*config_classes(Config), *config_classes(Word2VecRunConfig)}, key=lambda config: config.__name__)


@pytest.mark.parametrize("config", CLASSES, ids=lambda config: config.__name__)
def test_every_setting_has_a_description(config: type[BaseModel]) -> None:
    assert config.__name__.endswith("Config")
    assert config.__doc__
    descriptions = field_descriptions(config)
    for name in config.model_fields:
        assert descriptions[name].endswith("."), name
        assert len(descriptions[name]) >= 8, name


def test_all_kinds_of_variants_are_found() -> None:
    names = {config.__name__ for config in CLASSES}
    assert {
        "Config",
        "RotaryPositionsConfig",
        "PlateauScheduleConfig",
        "TagHeadConfig",
        "ParameterGroupConfig",
    } <= names
