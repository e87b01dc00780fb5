"""Base classes of all settings: strict tables, number types, and variants that are selected by `kind`.

Two kinds of variants exist. A closed union lists its classes (`ModelConfig`, `HeadConfig`); an open one is a
`VariantConfig` whose classes are registered by name, so that other packages can add their own:

    @POSITIONS.register("my-scheme")
    class MySchemeConfig(PositionsConfig):
        kind: Literal["my-scheme"] = "my-scheme"
        builder: ClassVar = "my_package.positions:build"
"""

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import pairwise
from textwrap import dedent
from typing import Annotated, Any, ClassVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from regard.errors import ConfigError
from regard.registry import Registry

Size = Annotated[int, Field(gt=0, le=2**24)]  # larger values are typing errors
Depth = Annotated[int, Field(gt=0, le=1000)]
Count = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]


def _as_tuple(value: Any) -> Any:
    """Accept a single string for a list of strings, and a list for a tuple."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Strings = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
Counts = Annotated[tuple[Count, ...], BeforeValidator(_as_tuple)]


class BaseConfig(BaseModel):
    """A table of settings: unknown keys are errors, values are not converted, instances are frozen."""

    # A validator is built when a class is first used, and descriptions are read on request (`field_descriptions`):
    # both take longer than everything else that a command does before it starts.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)


def variant(default: str) -> BeforeValidator:
    """Complete the table of a closed union: a bare name selects a variant, a table without `kind` is the default."""

    def complete(value: Any) -> Any:
        if isinstance(value, str):
            return {"kind": value}
        return {"kind": default, **value} if isinstance(value, dict) else value

    return BeforeValidator(complete)


class VariantConfig(BaseConfig):
    """One of several variants of a component, selected by `kind` from a registry.

    A direct subclass sets `registry` and `default_kind` and is the type of fields: `positions: PositionsConfig`.
    Its subclasses are the variants. Each has a `kind` with a default, and a `builder`: the function that builds the
    implementation, as an import path, so that settings never import torch, or as a callable.

    A variant may also be one file that has config, builder and implementation and imports torch. Its line in the table
    of the registry is a name and an import path, which is imported when a setting selects the variant:

        POSITIONS = Registry("positions", {"my-scheme": "regard.models.my_scheme:MySchemeConfig"})
    """

    registry: ClassVar[Registry[Any]]
    default_kind: ClassVar[str]
    builder: ClassVar[str | Callable[..., Any]] = ""
    kind: str
    """Name of the variant."""

    def load_builder(self) -> Callable[..., Any]:
        """Return the function that builds the implementation of this variant."""
        if not isinstance(self.builder, str):
            return type(self).builder  # type: ignore[return-value]  # not bound to the instance
        module, _, function = self.builder.partition(":")
        try:
            builder: Callable[..., Any] = getattr(import_module(module), function)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(
                f"the builder {self.builder!r} of {self.kind!r} ({self.registry.group}) cannot be loaded: {error}; "
                "set it to 'module:function'."
            ) from error
        return builder

    def build(self, *arguments: Any, **options: Any) -> Any:
        """Return the implementation of this variant: what its builder returns for these settings and arguments."""
        builder = self.load_builder()
        try:
            return builder(self, *arguments, **options)
        except ValueError as error:
            message = str(error).rstrip(".")
            raise ConfigError(f"{self.kind!r} ({self.registry.group}): {message}; change its settings.") from error

    @classmethod
    def variant_class(cls, kind: object) -> "type[VariantConfig] | None":
        """Return the class registered under this kind; None if there is none."""
        return cls.registry[kind] if isinstance(kind, str) and kind in cls.registry else None

    @classmethod
    def is_open(cls) -> bool:
        """Return whether this class stands for all its registered variants, and is not one itself."""
        return "default_kind" in cls.__dict__

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if not cls.is_open():
            return handler(source)
        return core_schema.no_info_plain_validator_function(
            cls._select, serialization=core_schema.simple_ser_schema("any")
        )

    @classmethod
    def _select(cls, value: Any) -> Any:
        """Validate a name or a table as the registered variant that it names; a variant is returned as it is."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, dict):
            raise PydanticKnownError("model_type", {"class_name": cls.__name__})
        value = {"kind": cls.default_kind, **value}
        selected = cls.variant_class(value["kind"])
        if selected is None:
            names = ", ".join(map(repr, cls.registry.names()))
            tag = {"discriminator": "'kind'", "tag": str(value["kind"]), "expected_tags": names}
            raise PydanticKnownError("union_tag_invalid", tag)
        return selected.model_validate(value)


def field_descriptions(table: type[BaseModel]) -> dict[str, str]:
    """Return the description of each setting of a config class: the docstring that follows it in the source.

    >>> field_descriptions(VariantConfig)
    {'kind': 'Name of the variant.'}
    """
    descriptions: dict[str, str] = {}
    for parent in reversed(table.__mro__):
        if issubclass(parent, BaseConfig):
            (definition,) = ast.parse(dedent(inspect.getsource(parent))).body
            for setting, docstring in pairwise(getattr(definition, "body", ())):
                match setting, docstring:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        descriptions[name] = inspect.cleandoc(text)
    return {name: text for name, text in descriptions.items() if name in table.model_fields}


def field_annotation(table: Any, key: str) -> Any:
    """Return the annotation of a key in a table, which is a config class or a `dict`; None if there is no such key."""
    if isinstance(table, type) and issubclass(table, BaseModel):
        field = table.model_fields.get(key)
        return None if field is None else field.annotation
    return get_args(table)[1] if get_origin(table) is dict else None


def select_table(annotation: Any, value: Any) -> Any:
    """Return the table that a setting is: the config class that the `kind` in its value selects, or a `dict`.

    `value` is the unchecked value of the setting; None is returned if it selects no class.
    """
    if get_origin(annotation) is dict:
        return annotation
    classes = list(_table_classes(annotation))
    kind = value.get("kind") if isinstance(value, Mapping) else value
    if not classes:
        return None
    if issubclass(classes[0], VariantConfig) and classes[0].is_open():
        return classes[0].variant_class(kind if isinstance(kind, str) else classes[0].default_kind)
    if len(classes) == 1 or not isinstance(kind, str):
        return classes[0]
    return {cls.model_fields["kind"].default: cls for cls in classes}.get(kind)


def union_kinds(annotation: Any) -> set[str]:
    """Return the kinds of a closed union; pydantic names the selected one in the location of an error."""
    classes = list(_table_classes(annotation))
    return {cls.model_fields["kind"].default for cls in classes} if len(classes) > 1 else set()


def _table_classes(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the config classes that a field may hold, those inside them not included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _table_classes(argument)
