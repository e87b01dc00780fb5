"""A backend for the lm-evaluation-harness (`pip install lm_eval`), which measures a model on its tasks.

import lm_eval
from regard.api.harness import HarnessModel

lm_eval.simple_evaluate(model=HarnessModel("runs/gpt"), tasks=["hellaswag"])
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from regard.api.model import Model, load
from regard.errors import ConfigError, MissingPackageError
from regard.evaluation.likelihood import score_texts
from regard.evaluation.multiple_choice import score_continuations

MAX_GENERATED_TOKENS = 256  # where a task sets no limit, as in the harness
REQUESTS_AT_A_TIME = 128


class Request(Protocol):
    """A request of the harness."""

    @property
    def args(self) -> tuple[object, ...]:
        """Its arguments: texts, and options of generation."""
        ...


def harness_model(model: str | Path | Model, device: str = "auto") -> "HarnessModel":
    """Return a language model as the harness calls it: an instance of its class `LM`.

    `model` is a model folder, a run folder, or a loaded model.
    """
    try:
        from lm_eval.api.model import LM
    except ModuleNotFoundError:
        raise MissingPackageError(
            "The lm-evaluation-harness is not installed; install it with: pip install lm_eval, or evaluate local task "
            "files with regard evaluate --tasks."
        ) from None

    class RegardModel(HarnessModel, LM):  # type: ignore[misc,unused-ignore]  # a class of another package
        """A model of regard that the harness accepts."""

    loaded = model if isinstance(model, Model) else load(model, device=device)
    if not loaded.config.model.generates:
        raise ConfigError(f"{loaded.folder}: is not a language model, which the harness measures; pass another.")
    return RegardModel(loaded)


class HarnessModel:
    """The requests of the harness, answered by a language model."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def loglikelihood(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Log-probability of each second text as a continuation of the first, and whether greedy search writes it."""
        results: list[tuple[float, bool]] = []
        for some in _chunks(requests):
            pairs = [(str(context), str(continuation)) for context, continuation in (item.args for item in some)]
            results += [(score.total, score.is_greedy) for score in score_continuations(self.model, pairs)]
        return results

    def loglikelihood_rolling(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[float]:
        """Log-probability of each text without its end; long texts in windows that overlap by half."""
        results: list[float] = []
        for some in _chunks(requests):
            texts = [str(item.args[0]) for item in some]
            results += [sum(score.log_probabilities[:-1]) for score in score_texts(self.model, texts)]
        return results

    def generate_until(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[str]:
        """Continue each text until one of its stop texts, greedily unless the task samples."""
        return [self._generate(str(context), options) for context, options in (item.args for item in requests)]

    def _generate(self, context: str, options: object) -> str:
        values = dict(options) if isinstance(options, dict) else {}
        until = values.get("until") or []
        stop = [until] if isinstance(until, str) else [str(text) for text in until]
        sampled = bool(values.get("do_sample", False))
        limit = values.get("max_gen_toks") or values.get("max_new_tokens") or MAX_GENERATED_TOKENS
        return self.model.generate(
            context,
            max_tokens=int(limit),
            temperature=float(values.get("temperature") or 1.0) if sampled else 0.0,
            top_p=float(values["top_p"]) if sampled and values.get("top_p") else None,
            stop=stop,
            seed=1,
        )


def _chunks(requests: Sequence[Request]) -> Iterable[Sequence[Request]]:
    for start in range(0, len(requests), REQUESTS_AT_A_TIME):
        yield requests[start : start + REQUESTS_AT_A_TIME]
