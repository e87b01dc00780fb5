"""The `Model` class and `load`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, overload

from regard.api.base import check_texts, map_batches
from regard.api.chat import ChatMethods
from regard.api.encoding import EncoderMethods
from regard.api.translation import TranslationMethods
from regard.data.syntax import Parse, ParseSource
from regard.decoding.options import (
    GenerationOptions,
    OutputConstraints,
    SamplingOptions,
    TranslationOptions,
    search_options,
)
from regard.decoding.results import TextScore
from regard.decoding.translator import check_parses
from regard.errors import ConfigError, InputError
from regard.interop.exporters import MAX_POSITIONS
from regard.models.folder_files import resolve_model_folder

if TYPE_CHECKING:
    from regard.interpret.trace import Trace

SCORE_ITERATOR_BATCH = 128  # texts of an iterator that are scored at once


class Model(TranslationMethods, ChatMethods, EncoderMethods):
    """A trained model, or an ensemble of several.

    `regard.load` creates it from a model folder. Networks, tokenizers and engines are loaded when they are first used.
    A method that the model does not support raises ConfigError: translators have `translate`, language models
    `generate`, `stream` and `chat`, masked language models `fill`, classifiers `classify`, taggers `tag`, all encoders
    `embed`; translators and language models have `score`; every model has `look`.
    """

    @overload
    def score(self, texts: str, targets: str | None = None, *, parses: ParseSource | None = None) -> float: ...  # type: ignore[overload-overlap]  # str is a Sequence[str]

    @overload
    def score(
        self, texts: Sequence[str], targets: Sequence[str] | None = None, *, parses: ParseSource | None = None
    ) -> list[float]: ...

    @overload
    def score(
        self, texts: Iterator[str], targets: Iterable[str] | None = None, *, parses: ParseSource | None = None
    ) -> Iterator[float]: ...

    def score(
        self,
        texts: str | Iterable[str],
        targets: str | Iterable[str] | None = None,
        *,
        parses: ParseSource | None = None,
    ) -> float | list[float] | Iterator[float]:
        """Return the log-probability of texts, or of targets as translations of texts.

        Args:
            texts: A text, a sequence of texts, or an iterator: the texts to score, or the sources of the targets.
            targets: For translators: one translation per text.
            parses: For models with syntax positions: the path of a CoNLL-U file, or one CoNLL-U text per text.

        Returns:
            A float for a str, a list for a sequence, an iterator for any other iterable. End tokens are included.

        Raises:
            InputError: There are more or fewer targets than texts.
            ArgumentError: A text is not a str.

        Example:
            regard.load("runs/gpt").score("Once upon a time")
            regard.load("runs/en-it").score(["I love you."], ["Ti amo."])
        """
        if isinstance(texts, str | Sequence):
            totals = [score.total for score in self._score("score", texts, targets, parses)]
            return totals[0] if isinstance(texts, str) else totals
        self._check_scores(has_targets=targets is not None, has_parses=parses is not None)
        examples = _examples(check_texts("score", texts), targets, parses)
        return (score.total for score in map_batches(self._score_batch, examples, SCORE_ITERATOR_BATCH))

    def score_detailed(
        self,
        texts: str | Iterable[str],
        targets: str | Iterable[str] | None = None,
        *,
        parses: ParseSource | None = None,
    ) -> list[TextScore]:
        """Return the tokens of texts or targets with their log-probabilities; the arguments are those of `score`.

        Example:
            (score,) = model.score_detailed("I love you.", "Ti amo.")
            list(zip(score.tokens, score.log_probabilities))
        """
        return self._score("score_detailed", texts, targets, parses)

    def look(
        self,
        text: str,
        *,
        target: str | None = None,
        beam: int | None = None,
        length_penalty: float | None = None,
        prefix: str | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        min_tokens: int | None = None,
        max_tokens: int | None = None,
        suppress: Sequence[str] = (),
        parses: ParseSource | None = None,
    ) -> "Trace":
        """Return a trace: every value between a text and the model's output.

        Args:
            text: A sentence to translate, a prompt to continue, or a text to encode.
            target: Force this output instead of decoding; for an encoder with a head, the expected labels.
            beam: Translators: number of open hypotheses; by default the model's, usually 4.
            length_penalty: Translators: α of the length normalization; by default the model's, usually 0.6.
            prefix: Translators: text that the translation begins with.
            temperature: Language models: 0, the default, is greedy.
            seed: Language models: seed of the samples (0).
            min_tokens: Minimum number of tokens.
            max_tokens: Maximum number of tokens; language models generate 20 by default.
            suppress: Words that are never generated.
            parses: For models with syntax positions: the path of a CoNLL-U file, or a list with one CoNLL-U text.

        Raises:
            ConfigError: The model is an ensemble, or an option is for models of another type.
            InputError: The text is empty or too long.

        Example:
            trace = model.look("I love you very much.")
            trace.steps[0].candidates
            trace.tensor("decoder.1.cross_attention.weights[2]").values
        """
        from regard.interpret.decode import TracedModel
        from regard.interpret.trace import look

        if self.is_ensemble:
            raise ConfigError("a trace is of one network, not of an ensemble; load one of the models.")
        options = self._trace_options(
            beam=beam,
            length_penalty=length_penalty,
            prefix=prefix,
            temperature=temperature,
            seed=seed,
            min_tokens=min_tokens,
            max_tokens=max_tokens,
            suppress=suppress,
        )
        check_parses(self.config.model, has_parses=parses is not None)
        parse = None
        if parses is not None:
            from regard.data.readers.aligned import attach_parses

            ((_, parse),) = attach_parses([text], parses)
        traced = TracedModel(self.cpu_network, self.config, self.tokenizer, self.target_tokenizer, str(self.folder))
        return look(traced, text, options, target, parse)

    def _score(
        self, call: str, texts: str | Iterable[str], targets: str | Iterable[str] | None, parses: ParseSource | None
    ) -> list[TextScore]:
        sources = list(check_texts(call, texts))
        checked = None if targets is None else list(check_texts(call, targets))
        if checked is not None and len(checked) != len(sources):
            raise InputError(
                f"{call}: there are {len(sources):,} texts and {len(checked):,} targets; pass one for each."
            )
        self._check_scores(has_targets=targets is not None, has_parses=parses is not None)
        return self._score_batch(list(_examples(iter(sources), checked, parses)))

    def _score_batch(self, examples: Sequence[tuple[str, str | None, Parse | None]]) -> list[TextScore]:
        from regard.data.readers.base import Pair
        from regard.evaluation.likelihood import score_pairs, score_texts

        if self.config.model.translates:
            return score_pairs(self, [Pair(source, target or "", parse=parse) for source, target, parse in examples])
        window = self.config.model.max_length or MAX_POSITIONS
        return score_texts(self, [text for text, _, _ in examples], window)

    def _check_scores(self, *, has_targets: bool, has_parses: bool) -> None:
        model = self.config.model
        if has_targets and not model.translates:
            raise ConfigError(
                f"{self.folder}: is a model of type {model.family}, which does not translate; remove the targets."
            )
        if not has_targets and not model.generates:
            remedy = "pass targets to score translations" if model.translates else "use a language model"
            raise ConfigError(
                f"{self.folder}: is a model of type {model.family}, which does not score texts; {remedy}."
            )
        check_parses(model, has_parses=has_parses)

    def _trace_options(
        self,
        *,
        beam: int | None,
        length_penalty: float | None,
        prefix: str | None,
        temperature: float | None,
        seed: int | None,
        min_tokens: int | None,
        max_tokens: int | None,
        suppress: Sequence[str],
    ) -> TranslationOptions | GenerationOptions | None:
        """Return the options for the type of the model; raise ConfigError for an option of another type."""
        search = {"beam": beam, "length_penalty": length_penalty, "prefix": prefix}
        sampling = {"temperature": temperature, "seed": seed}
        lengths = {"min_tokens": min_tokens, "max_tokens": max_tokens, "suppress": suppress or None}
        if self.config.model.translates:
            self._refuse_options(sampling)
            constraints = OutputConstraints(1 if min_tokens is None else min_tokens, max_tokens)
            return TranslationOptions(
                replace(search_options(self.config.decoding, beam, length_penalty), constraints=constraints),
                prefix=prefix or "",
                suppress=tuple(suppress),
            )
        if self.config.model.generates:
            self._refuse_options(search)
            constraints = OutputConstraints(min_tokens or 0, max_tokens, suppressed_words=tuple(suppress))
            return GenerationOptions(SamplingOptions(temperature or 0.0, seed=seed or 0, constraints=constraints))
        self._refuse_options({**search, **sampling, **lengths})
        return None

    def _refuse_options(self, options: Mapping[str, object]) -> None:
        option = next((name for name, value in options.items() if value is not None), None)
        if option is not None:
            raise ConfigError(
                f"{option}: does not apply to {self.folder}, a model of type {self.config.model.family}; remove it."
            )


def load(folder: str | Path, *more: str | Path, device: str = "cpu", threads: int | None = None) -> Model:
    """Load a model.

    The model can be pickled: it is then loaded again from its folder, on first use, in the process that unpickles it.

    Args:
        folder: A model folder, or a run folder, whose best model is loaded.
        more: Further models of the same family with the same vocabulary: an ensemble, whose probabilities are averaged
            for every token.
        device: "cpu", "cuda", "cuda:N", "mps", or "auto" for the GPU if there is one. CTranslate2 uses CPUs and CUDA.
        threads: Number of threads; None: one per core. For PyTorch and the tokenizers it applies to the whole process.

    Raises:
        ModelError: The folder is missing, incomplete or damaged.
        ConfigError: The models of an ensemble do not fit together, or the device is not available.

    Example:
        model = regard.load("runs/en-it")
        model = regard.load("runs/en-it", threads=1)   # one of several worker processes
        ensemble = regard.load("runs/en-it-1", "runs/en-it-2")
    """
    folders = [resolve_model_folder(path) for path in (folder, *more)]
    return Model(*folders, device=device, threads=threads)


def _examples(
    texts: Iterator[str], targets: str | Iterable[str] | None, parses: ParseSource | None
) -> Iterator[tuple[str, str | None, Parse | None]]:
    """Yield each text with its target and its parse."""
    sources: Iterator[tuple[str, Parse | None]]
    if parses is None:
        sources = ((text, None) for text in texts)
    else:
        from regard.data.readers.aligned import attach_parses

        sources = ((text.strip(), parse) for text, parse in attach_parses(texts, parses))
    if targets is None:
        yield from ((text, None, parse) for text, parse in sources)
        return
    checked = check_texts("score", targets)
    for text, parse in sources:
        target = next(checked, None)
        if target is None:
            raise InputError("score: there are fewer targets than texts; pass one for each.")
        yield text, target, parse
    if next(checked, None) is not None:
        raise InputError("score: there are more targets than texts; pass one for each.")
