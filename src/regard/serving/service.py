"""What the routes share: the models by name and by language, who works for each, and the limits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.config.complaint import nearest
from regard.decoding.engines.ctranslate2 import cores
from regard.serving.abilities import WORDS, Ability, told
from regard.serving.access import Access
from regard.serving.batcher import Batcher
from regard.serving.desk import Desk
from regard.serving.errands import cost_of_reading
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
    batchers: dict[str, Batcher[Any, Any, Any]] = field(default_factory=dict)
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
            elif model.encodes:
                self.batchers[model.name] = Batcher(
                    model.name,
                    model.read,
                    self.metrics,
                    cost=cost_of_reading,
                    workers=1,  # who reads holds the network
                    queue=queue,
                    budget=self.limits.budget,
                )
            else:
                self.desks[model.name] = Desk(model.name, self.metrics, seats=cores(), queue=queue)

    @property
    def translators(self) -> list[Served]:
        """The models that translate."""
        return self.able("translates")

    def able(self, ability: Ability | None) -> list[Served]:
        """The models that can do something."""
        return [model for model in self.models if ability is None or ability in model.does]

    def named(self, name: str | None, ability: Ability | None = None) -> Served:
        """The model of this name; without one, the first that can do what is asked."""
        able = self.able(ability)
        does = "is served" if ability is None else WORDS[ability]
        if name is None and able:
            return able[0]
        found = next((model for model in self.models if model.name == name), None)
        if found is None:
            hint = nearest(name or "", [model.name for model in able])
            what = f"There is no model {name!r} here{hint}." if name is not None else f"No model here {does}."
            raise Refusal(404, what, code="model_not_found")
        if found not in able:
            which = f", which {told(found.does)}" if found.encodes else ""
            kind = f"{found.model.config.model.family}{which}"
            raise Refusal(400, f"The model {name} is of the kind {kind}: none that {does}.")
        return found

    @property
    def workers(self) -> dict[str, Batcher[Any, Any, Any] | Desk]:
        """Who works for each model."""
        return {**self.batchers, **self.desks}

    async def close(self) -> None:
        """Finish what was accepted."""
        for worker in self.workers.values():
            await worker.close()
        await self.traces.close()
