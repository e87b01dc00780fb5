"""What every table of settings is made of."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Size = Annotated[int, Field(gt=0, le=2**24)]  # past that, it is a slip of the finger
Depth = Annotated[int, Field(gt=0, le=1000)]
Rate = Annotated[float, Field(ge=0, lt=1)]


class BaseConfig(BaseModel):
    """A table of settings: nothing unknown is accepted, nothing is converted silently, nothing changes later."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def variant(default: str) -> BeforeValidator:
    """Accept a variant's name for its table, and take a table that names no kind to be of the default kind."""

    def complete(value: Any) -> Any:
        if isinstance(value, str):
            return {"kind": value}
        return {"kind": default, **value} if isinstance(value, dict) else value

    return BeforeValidator(complete)
