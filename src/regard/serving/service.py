"""What the routes share: the models by name and by language, who works for each, and the limits."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from regard.config.complaint import nearest
from regard.decoding.engines.ctranslate2 import cores
from regard.serving.access import Access
from regard.serving.batcher import Batcher
from regard.serving.desk import Desk
from regard.serving.limits import Limits
from regard.serving.metrics import Metrics
from regard.serving.refusal import Refusal
from regard.serving.served import Served
from regard.serving.traces import Traces


@dataclass(frozen=True)
class Service:
    """Models, and everyone who works for them."""

    models: Sequence[Served]
    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    beam: int = 4
    """Hypotheses that are followed where a request does not say."""
    metrics: Metrics = field(default_factory=Metrics)
    batchers: dict[str, Batcher] = field(default_factory=dict)
    desks: dict[str, Desk] = field(default_factory=dict)
    traces: Traces = field(init=False)

    def __post_init__(self) -> None:
        queue = self.limits.queue
        object.__setattr__(self, "traces", Traces(self.limits.traces, queue))
        for model in self.models:
            if model.translates:
                self.batchers[model.name] = Batcher(
                    model.name, model.translate, self.metrics, queue=queue, budget=self.limits.budget
                )
            else:
                self.desks[model.name] = Desk(model.name, self.metrics, seats=cores(), queue=queue)

    @property
    def translators(self) -> list[Served]:
        """The models that translate."""
        return [model for model in self.models if model.translates]

    def named(self, name: str | None, *, translates: bool | None = None) -> Served:
        """The model of this name; without one, the first that can do what is asked."""
        able = [model for model in self.models if translates is None or model.translates == translates]
        does = "translates" if translates else "continues text"
        if name is None and able:
            return able[0]
        found = next((model for model in self.models if model.name == name), None)
        if found is None:
            hint = nearest(name or "", [model.name for model in able])
            what = f"There is no model {name!r} here{hint}." if name is not None else f"No model here {does}."
            raise Refusal(404, what, code="model_not_found")
        if found not in able:
            raise Refusal(400, f"The model {name} is of the kind {found.model.config.model.family}: none that {does}.")
        return found

    @property
    def workers(self) -> dict[str, Batcher | Desk]:
        """Who works for each model."""
        return {**self.batchers, **self.desks}

    async def close(self) -> None:
        """Finish what was accepted."""
        for worker in self.workers.values():
            await worker.close()
        await self.traces.close()
