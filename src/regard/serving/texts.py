"""What requests to encoders share: one text or several, within limits, read together with those of others."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.requests import Request

from regard.serving.asked import STRICT, check_limits
from regard.serving.batching import BatchResult
from regard.serving.encoder_jobs import EncoderJob
from regard.serving.limits import Limits
from regard.serving.loaded_models import Ability, LoadedModel
from regard.serving.schema import TEXT, WHOLE, Schema, listed, obj, takes
from regard.serving.service import Service
from regard.serving.streaming import wait_for_answer

DIGITS = 6  # of a probability


class AskedTexts(BaseModel):
    """Texts for a model."""

    model_config = STRICT

    text: str | list[str]
    """A text, or several."""
    model: str | None = None
    """Without it, the first that can do this."""
    deadline: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which the answer is of no use; at most the server's own deadline."""

    @property
    def texts(self) -> list[str]:
        """All of them."""
        return self.text if isinstance(self.text, list) else [self.text]

    def place(self, number: int) -> str:
        """What a text is called in a complaint; they are counted from 1."""
        return f"text {number}" if isinstance(self.text, list) else "text"


PROBABILITY: Schema = {"type": "number", "minimum": 0, "maximum": 1}
TIMINGS = obj(
    *("waited_ms", "worked_ms", "together"),
    waited_ms={"type": "number"},
    worked_ms={"type": "number"},
    together=WHOLE,
)


def answer_of(name: str, each: Schema) -> Schema:
    """What such a route answers: something for each text, under a name."""
    return obj("model", name, "timings", model=TEXT, timings=TIMINGS, **{name: listed(each)})


def offered(body: type[BaseModel], service: Service, ability: Ability) -> Schema:
    """A request's body, with the models that can do it, if there are any."""
    able = [model.name for model in service.able(ability)]
    return takes(body, choices={"model": able} if able else {})


def check_size(limits: Limits, texts: Sequence[str], **counted: int) -> None:
    """Refuse more characters than the server takes, or more of something else than it takes texts."""
    counts = [(what, given, limits.texts) for what, given in counted.items()]
    check_limits(*counts, ("characters", sum(map(len, texts)), limits.characters))


async def carried_out(
    request: Request,
    service: Service,
    model: LoadedModel,
    texts: Sequence[Any],
    errand: EncoderJob,
    deadline: float | None = None,
) -> BatchResult[Any]:
    """What a model makes of texts, in batches with those of others."""
    latest = service.limits.deadline
    answer = service.batchers[model.name].submit(texts, errand)
    return await wait_for_answer(request, answer, min(deadline or latest, latest))


def shown(probability: float) -> float:
    """A probability in as many digits as mean something."""
    return round(probability, DIGITS)
