"""What the routes share: the models by name and by language, who works for each, and the limits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.config.errors import did_you_mean
from regard.decoding.engines.ctranslate2_models import available_cores
from regard.serving.access import AccessPolicy
from regard.serving.batching import Batcher
from regard.serving.encoder_jobs import encoder_cost
from regard.serving.errors import ApiError
from regard.serving.generation_pool import GenerationPool
from regard.serving.limits import Limits
from regard.serving.loaded_models import ABILITY_PHRASES, Ability, LoadedModel, describe_abilities
from regard.serving.metrics import Metrics
from regard.serving.trace_store import TraceStore


@dataclass(frozen=True)
class Service:
    """Models, and everyone who works for them."""

    models: Sequence[LoadedModel]
    limits: Limits = field(default_factory=Limits)
    access: AccessPolicy = field(default_factory=AccessPolicy)
    beam: int = 4
    """Hypotheses that are followed where a request does not say."""
    metrics: Metrics = field(default_factory=Metrics)
    batchers: dict[str, Batcher[Any, Any, Any]] = field(default_factory=dict)
    desks: dict[str, GenerationPool] = field(default_factory=dict)
    traces: TraceStore = field(init=False)

    def __post_init__(self) -> None:
        queue = self.limits.queue
        object.__setattr__(self, "traces", TraceStore(self.limits.traces, queue))
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
                    cost=encoder_cost,
                    workers=1,  # who reads holds the network
                    queue=queue,
                    budget=self.limits.budget,
                )
            else:
                self.desks[model.name] = GenerationPool(model.name, self.metrics, seats=available_cores(), queue=queue)

    @property
    def translators(self) -> list[LoadedModel]:
        """The models that translate."""
        return self.able("translates")

    def able(self, ability: Ability | None) -> list[LoadedModel]:
        """The models that can do something."""
        return [model for model in self.models if ability is None or ability in model.does]

    def named(self, name: str | None, ability: Ability | None = None) -> LoadedModel:
        """The model of this name; without one, the first that can do what is asked."""
        able = self.able(ability)
        does = "is served" if ability is None else ABILITY_PHRASES[ability]
        if name is None and able:
            return able[0]
        found = next((model for model in self.models if model.name == name), None)
        if found is None:
            hint = did_you_mean(name or "", [model.name for model in able])
            what = f"There is no model {name!r} here{hint}." if name is not None else f"No model here {does}."
            raise ApiError(404, what, code="model_not_found")
        if found not in able:
            which = f", which {describe_abilities(found.does)}" if found.encodes else ""
            kind = f"{found.model.config.model.family}{which}"
            raise ApiError(400, f"The model {name} is of the kind {kind}: none that {does}.")
        return found

    @property
    def workers(self) -> dict[str, Batcher[Any, Any, Any] | GenerationPool]:
        """Who works for each model."""
        return {**self.batchers, **self.desks}

    async def close(self) -> None:
        """Finish what was accepted."""
        for worker in self.workers.values():
            await worker.close()
        await self.traces.close()
