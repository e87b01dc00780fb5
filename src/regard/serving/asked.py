"""What a client asks, as fields that are checked one by one: the first that is wrong gets a sentence."""

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from regard.serving.errors import ApiError, invalid_fields
from regard.serving.limits import Limits, read_body, read_json

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True)
Fields = TypeVar("Fields", bound=BaseModel)


async def read_asked(fields: type[Fields], request: Request, limits: Limits) -> Fields:
    """The fields of a request that is sent as JSON."""
    content = read_json(await read_body(request, limits))
    try:
        return fields.model_validate(content)
    except ValidationError as error:
        raise invalid_fields(error, list(fields.model_fields)) from None


def check_limits(*counts: tuple[str, int, int]) -> None:
    """Refuse the first that is more than it may be: a name, what was asked for, and the most."""
    for name, given, most in counts:
        if given > most:
            raise ApiError(400, f"{name}: {given:,} is more than this server's limit of {most:,}; ask for less.")
