"""What the routes share: loaded models, their queues, stored traces, limits and metrics."""

import logging
import threading
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import Request

from regard.config.errors import did_you_mean
from regard.decoding.options import SearchOptions
from regard.errors import RegardError
from regard.machine import available_cores
from regard.serving.access import AccessPolicy
from regard.serving.batching import Batcher, BatchResult, search_cost
from regard.serving.encoder_jobs import encoder_cost
from regard.serving.errors import ApiError
from regard.serving.languages import LanguageVocabulary
from regard.serving.limits import Limits
from regard.serving.loaded_models import ABILITY_PHRASES, LoadedModel, describe_abilities
from regard.serving.metrics import Metrics
from regard.serving.running_batch import BatchThread
from regard.serving.streaming import GenerationPool, wait_for_result
from regard.serving.trace_store import TraceStore
from regard.training.task import Ability

log = logging.getLogger(__name__)


@lru_cache(256)  # most requests have the same options
def _search_options(beam: int, length_penalty: float, n_best: int) -> SearchOptions:
    return SearchOptions(beam, length_penalty, n_best=n_best)


class Service:
    """Loaded models with a queue for each: a batcher for translators and encoders, a pool for language models."""

    def __init__(
        self,
        models: Sequence[LoadedModel],
        limits: Limits | None = None,
        access: AccessPolicy | None = None,
        beam: int | None = None,
    ) -> None:
        self.models = models
        self._by_name: dict[str, LoadedModel] = {}
        for model in models:
            self._by_name.setdefault(model.base_name, model)  # the default version is the first
            self._by_name[model.name] = model
        self.limits = Limits() if limits is None else limits
        self.access = AccessPolicy() if access is None else access
        self.beam = beam
        """Beam width of requests that set none; None: that of the model."""
        self.metrics = Metrics()
        self.is_draining = False
        """Whether the server is shutting down: it finishes running requests and is no longer ready for others."""
        self._reloading = threading.Lock()
        self.traces = TraceStore(self.limits.max_traces, self.limits.max_queue)
        self.batchers: dict[str, Batcher[Any, Any, Any]] = {}
        self.generation_pools: dict[str, GenerationPool] = {}
        for model in models:
            if model.translates or model.encodes:
                self.batchers[model.name] = self._batcher(model)
            else:
                model.keep_prefixes(self.limits.prefix_cache_mb * 2**20)
                self.generation_pools[model.name] = GenerationPool(
                    model.name,
                    self.metrics,
                    workers=available_cores(),
                    max_queue=self.limits.max_queue,
                    batch=BatchThread(model, self.metrics.of_model(model.name), self.limits.max_batch),
                )

    def search(
        self, model: LoadedModel, beam: int | None = None, length_penalty: float | None = None, n_best: int = 1
    ) -> SearchOptions:
        """Return the beam width and length penalty of a request: its own, else the server's, else the model's."""
        decoding = model.model.config.decoding
        default = min(decoding.beam, self.limits.max_beam) if self.beam is None else self.beam
        alpha = decoding.length_penalty if length_penalty is None else length_penalty
        return _search_options(beam or max(default, n_best), alpha, n_best)

    def _batcher(self, model: LoadedModel) -> Batcher[Any, Any, Any]:
        max_queue, max_cost = self.limits.max_queue, self.limits.batch_tokens
        if model.translates:
            return Batcher(
                model.name, model.translate, self.metrics, cost=search_cost, max_queue=max_queue, max_cost=max_cost
            )
        return Batcher(
            model.name,
            model.run_encoder,
            self.metrics,
            cost=encoder_cost,
            workers=1,  # an encoder holds the lock of its network
            max_queue=max_queue,
            max_cost=max_cost,
        )

    @cached_property
    def translators(self) -> list[LoadedModel]:
        """Models that translate."""
        return self.with_ability("translate")

    @cached_property
    def languages(self) -> list[str]:
        """Codes of the source and target languages of all translators."""
        codes = (code for model in self.translators for code in (model.source_language, model.target_language))
        return list(dict.fromkeys(codes))

    def targets_of(self, source: str) -> set[str]:
        """Return the languages that a language can be translated to."""
        return {model.target_language for model in self.translators if model.source_language == source}

    @cached_property
    def vocabularies(self) -> list[LanguageVocabulary]:
        """Source languages of the translators with their tokenizers."""
        return [
            LanguageVocabulary(model.source_language, model.model.tokenizer, model.model.config.tokens.unknown)
            for model in self.translators
        ]

    @property
    def queues(self) -> dict[str, Batcher[Any, Any, Any] | GenerationPool]:
        """Queue of each model."""
        return {**self.batchers, **self.generation_pools}

    def with_ability(self, ability: Ability | None) -> list[LoadedModel]:
        """Return the models with an ability; None returns all models."""
        return [model for model in self.models if ability is None or ability in model.abilities]

    def names(self, ability: Ability | None = None) -> list[str]:
        """Return the names that requests for an ability may use: of models, and without version of their defaults."""
        return [name for name, model in self._by_name.items() if ability is None or ability in model.abilities]

    def is_default(self, model: LoadedModel) -> bool:
        """Return whether a model is the default version of its name."""
        return self._by_name[model.base_name] is model

    def model(self, name: str | None, ability: Ability | None = None) -> LoadedModel:
        """Return the model of a name, which may omit the version; without a name, the first one with the ability."""
        model = None if name is None else self._by_name.get(name)
        if model is None:
            candidates = self.with_ability(ability)
            if name is None and candidates:
                return candidates[0]
            hint = did_you_mean(name or "", self.names(ability))
            message = f"There is no model {name!r}{hint}."
            if name is None:
                message = "No model is served." if ability is None else f"No model can {ABILITY_PHRASES[ability]}."
            raise ApiError(404, message, code="model_not_found")
        if ability is not None and ability not in model.abilities:
            kind, can = model.model.config.model.family, describe_abilities(model.abilities)
            raise ApiError(
                400, f"The model {name} cannot {ABILITY_PHRASES[ability]}; it is of kind {kind} and can {can}."
            )
        return model

    async def run_batch(
        self, request: Request, model: LoadedModel, texts: Sequence[Any], job: Any, timeout: float | None = None
    ) -> BatchResult[Any]:
        """Process texts in batches with those of other requests, within the server's timeout."""
        result = self.batchers[model.name].submit(texts, job)
        limit = self.limits.timeout
        return await wait_for_result(request, result, limit if timeout is None else min(timeout, limit))

    def reload(self) -> None:
        """Load all models again from their folders; a model that cannot be loaded stays as it is."""
        with self._reloading:
            for model in self.models:
                try:
                    model.reload()
                except (RegardError, OSError) as error:
                    log.error("%s was not reloaded: %s", model.name, error)
                else:
                    self.traces.discard(model)  # they belong to the old model, and keep it in memory
                    log.warning("%s was reloaded", model.name)
            self.__dict__.pop("vocabularies", None)  # they have the old tokenizers

    async def close(self) -> None:
        """Finish the accepted requests and stop all threads."""
        for queue in self.queues.values():
            await queue.close()
        await self.traces.close()


async def get_service(request: Request) -> Service:
    """Dependency: the service of the application."""
    service: Service = request.app.state.service
    return service


ServiceDependency = Annotated[Service, Depends(get_service)]
