"""`Model.generate`, `Model.generate_detailed`, `Model.stream` and `Model.score_prompts`."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, overload

from regard.api.base import ModelBase, check_texts, map_batches
from regard.decoding.engines import choose_engine, unsupported_sampling
from regard.decoding.generator import GeneratedTexts, GenerationSession, Generator, Prompt, StartSession, prompt_ids
from regard.decoding.options import (
    DEFAULT_GENERATED_TOKENS,
    DEFAULT_TEMPERATURE,
    GenerationOptions,
    SamplingOptions,
    generation_options,
)
from regard.decoding.results import Generation, ScoredToken, TextChunk
from regard.errors import ConfigError
from regard.interop.exporters import MAX_POSITIONS
from regard.registry import EngineName, Precision

if TYPE_CHECKING:
    from regard.decoding.batch_request import BatchRequest
    from regard.decoding.continuous_batch import ContinuousBatch
    from regard.decoding.logits_processors import LogitsProcessor
    from regard.decoding.prefix_cache import PrefixCache

GENERATION_ITERATOR_BATCH = 8  # prompts of an iterator that are continued at once
MAX_BATCH_ROWS = 64  # texts that are generated at once
PREFIX_CACHE_BYTES = 256 * 2**20


class GenerateKeywords(TypedDict, total=False):
    """The keyword arguments of `Model.generate` and `Model.stream`."""

    max_tokens: int
    min_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float
    no_repeat_ngram: int | None
    suppress: Sequence[str]
    stop: Sequence[str]
    seed: int | None
    logits_processors: "Sequence[str | LogitsProcessor]"
    lookup: int
    engine: EngineName
    precision: Precision


class GenerationMethods(ModelBase):
    """The methods of language models."""

    prefix_cache: "PrefixCache | None" = None
    """Keys and values of the beginnings of prompts, which the engine torch reuses; None: each prompt is computed."""

    @cached_property
    def _ctranslate2_sessions(self) -> dict[str, StartSession]:
        return {}

    @overload
    def generate(self, prompts: str = "", **keywords: Unpack[GenerateKeywords]) -> str: ...  # type: ignore[overload-overlap]  # str is a Sequence[str]

    @overload
    def generate(self, prompts: Sequence[str], **keywords: Unpack[GenerateKeywords]) -> list[str]: ...

    @overload
    def generate(self, prompts: Iterator[str], **keywords: Unpack[GenerateKeywords]) -> Iterator[str]: ...

    def generate(
        self,
        prompts: str | Iterable[str] = "",
        *,
        max_tokens: int = DEFAULT_GENERATED_TOKENS,
        min_tokens: int = 0,
        temperature: float = DEFAULT_TEMPERATURE,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float = 1.0,
        no_repeat_ngram: int | None = None,
        suppress: Sequence[str] = (),
        stop: Sequence[str] = (),
        seed: int | None = None,
        logits_processors: "Sequence[str | LogitsProcessor]" = (),
        lookup: int = 0,
        engine: EngineName = "auto",
        precision: Precision = "int8",
    ) -> str | list[str] | Iterator[str]:
        """Continue prompts.

        Args:
            prompts: A prompt, a sequence of prompts, or an iterator of them.
            max_tokens: Maximum number of new tokens.
            min_tokens: Minimum number of new tokens.
            temperature: Below 1, the distribution is sharper; 0 is greedy.
            top_k: Sample from the k most probable tokens.
            top_p: Sample from the most probable tokens whose probabilities sum to p.
            min_p: Sample from the tokens with at least this fraction of the highest probability.
            repetition_penalty: Above 1, tokens that have occurred become less probable.
            no_repeat_ngram: No n-gram of this size occurs twice.
            suppress: Words that are never generated.
            stop: Texts that end a continuation; they are not part of it.
            seed: The same seed gives the same text; None: other text each time, which allows the faster CTranslate2.
            logits_processors: Registered names or `LogitsProcessor` objects.
            lookup: Drafted tokens per step, taken from the text so far: the same text in fewer steps of the engine
                torch, if it repeats itself; 0: none.
            engine: "torch", "ctranslate2", or "auto" for the fastest that supports the model and the options.
            precision: The number format of CTranslate2.

        Returns:
            The new text without its prompt: a str for a str, a list for a sequence, an iterator for other iterables.

        Raises:
            ConfigError: The model is not a language model, or an option is out of range.
            ArgumentError: A prompt is not a str.

        Example:
            model = regard.load("runs/gpt")
            model.generate("Once upon a time", max_tokens=50, temperature=0.8, top_k=40)
        """
        options = generation_options(
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            no_repeat_ngram=no_repeat_ngram,
            suppress=suppress,
            stop=stop,
            seed=seed,
            logits_processors=logits_processors,
            lookup=lookup,
        )
        self._check_generates()
        checked = check_texts("generate", prompts)

        def continue_batch(batch: list[str]) -> list[str]:
            results = self._generate(batch, options, engine, precision, is_seeded=seed is not None)
            return [result.text for result in results]

        if isinstance(prompts, str):
            return continue_batch(list(checked))[0]
        if isinstance(prompts, Sequence):
            return continue_batch(list(checked))
        return map_batches(continue_batch, checked, GENERATION_ITERATOR_BATCH)

    def generate_detailed(
        self,
        prompts: str | Iterable[str] = "",
        *,
        samples: int = 1,
        top_logprobs: int | None = None,
        max_tokens: int = DEFAULT_GENERATED_TOKENS,
        min_tokens: int = 0,
        temperature: float = DEFAULT_TEMPERATURE,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float = 1.0,
        no_repeat_ngram: int | None = None,
        suppress: Sequence[str] = (),
        stop: Sequence[str] = (),
        seed: int | None = None,
        logits_processors: "Sequence[str | LogitsProcessor]" = (),
        lookup: int = 0,
        engine: EngineName = "auto",
        precision: Precision = "int8",
    ) -> list[Generation]:
        """Continue prompts and return tokens and log-probabilities.

        Args:
            prompts: A prompt or several; the result is always a list.
            samples: Number of continuations of each prompt, which follow each other in the result.
            top_logprobs: Return the log-probability of each token, and this many of the most probable tokens.

        The other arguments are those of `generate`.

        Example:
            for result in model.generate_detailed("Once upon a time", samples=3):
                print(result.text, result.log_probability)
        """
        options = generation_options(
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            no_repeat_ngram=no_repeat_ngram,
            suppress=suppress,
            stop=stop,
            seed=seed,
            logits_processors=logits_processors,
            lookup=lookup,
            samples=samples,
            top_logprobs=top_logprobs,
        )
        checked = list(check_texts("generate_detailed", prompts))
        return self._generate(checked, options, engine, precision, is_seeded=seed is not None)

    def stream(
        self,
        prompt: str = "",
        *,
        max_tokens: int = DEFAULT_GENERATED_TOKENS,
        min_tokens: int = 0,
        temperature: float = DEFAULT_TEMPERATURE,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float = 1.0,
        no_repeat_ngram: int | None = None,
        suppress: Sequence[str] = (),
        stop: Sequence[str] = (),
        seed: int | None = None,
        logits_processors: "Sequence[str | LogitsProcessor]" = (),
        lookup: int = 0,
        engine: EngineName = "auto",
        precision: Precision = "int8",
    ) -> Iterator[str]:
        """Continue a prompt and yield pieces of text as they are generated; the arguments are those of `generate`.

        Example:
            for text in model.stream("Once upon a time"):
                print(text, end="", flush=True)
        """
        options = generation_options(
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            no_repeat_ngram=no_repeat_ngram,
            suppress=suppress,
            stop=stop,
            seed=seed,
            logits_processors=logits_processors,
            lookup=lookup,
        )
        (checked,) = check_texts("stream", [prompt])
        is_seeded = seed is not None
        chunks = self.generate_chunks([checked], options, [], engine=engine, precision=precision, is_seeded=is_seeded)
        return (chunk.text for chunk in chunks)

    def generate_chunks(
        self,
        prompts: Sequence[Prompt],
        options: GenerationOptions,
        results: list[Generation],
        *,
        engine: EngineName = "auto",
        precision: Precision = "int8",
        is_seeded: bool = True,
    ) -> Iterator[TextChunk]:
        """Yield the text of several prompts as it is generated, for callers that reuse an options object.

        `results` receives a generation per sample of each prompt, which is complete when the iterator is exhausted.
        """
        self._check_generates()
        name = self.generation_engine(prompts, options, engine=engine, is_seeded=is_seeded)
        if name == "torch" and not options.sampling.lookup and self._batches_rows:
            request = self.batch_request(prompts, options, results, is_seeded=is_seeded)
            return request.generate(self.new_batch(MAX_BATCH_ROWS))
        if name == "ctranslate2" and precision not in self._ctranslate2_sessions:
            from regard.decoding.engines.ctranslate2 import ctranslate2_sessions

            sessions = ctranslate2_sessions(self.folder, self.config, precision, self.threads, self.device)
            self._ctranslate2_sessions[precision] = sessions
        start = self._ctranslate2_sessions[precision] if name == "ctranslate2" else self._start_torch_session
        return Generator(start, self.config, self.tokenizer).stream(prompts, options, results, is_seeded=is_seeded)

    def generation_engine(
        self,
        prompts: Sequence[Prompt],
        options: GenerationOptions,
        *,
        engine: EngineName = "auto",
        is_seeded: bool = True,
    ) -> Literal["torch", "ctranslate2"]:
        """Return the engine that continues these prompts."""
        fits_window = self._fits_window(prompts, options.sampling)
        obstacle = unsupported_sampling(
            options.sampling, is_seeded=is_seeded, is_ensemble=self.is_ensemble, fits_window=fits_window
        )
        return choose_engine(engine, self.config, self._device_obstacle, obstacle)

    def score_prompts(self, prompts: str | Iterable[str], *, top_logprobs: int = 0) -> list[list[ScoredToken]]:
        """Score the tokens of prompts as `generate` sees them, with the most probable tokens at each position.

        The first token of a prompt has no score if nothing precedes it: not every language model has a start token.
        """
        from regard.decoding.scoring import score_tokens

        tokens, window = self.config.tokens, self.config.model.max_length or MAX_POSITIONS
        results = []
        for prompt in check_texts("score_prompts", prompts):
            ids = prompt_ids(prompt, self.config, self.tokenizer)
            scored = score_tokens(self.networks, ids, tokens, top_logprobs, window)
            has_start = bool(ids) and ids[0] == tokens.start
            results.append(scored if has_start else [ScoredToken(ids[0], None), *scored])
        return results

    def _check_generates(self) -> None:
        if not self.config.model.generates:
            raise ConfigError(
                f"{self.folder}: is a model of type {self.config.model.family}, which does not generate text; "
                "use a language model."
            )

    def _generate(
        self,
        prompts: list[str],
        options: GenerationOptions,
        engine: EngineName,
        precision: Precision,
        *,
        is_seeded: bool,
    ) -> list[Generation]:
        results: list[Generation] = []
        for _ in self.generate_chunks(
            prompts, options, results, engine=engine, precision=precision, is_seeded=is_seeded
        ):
            pass
        return results

    def _start_torch_session(
        self, prompts: list[list[int]], streams: list[int], sampling: SamplingOptions
    ) -> GenerationSession:
        from regard.decoding.sampling import Sampler

        token_texts = self._token_texts(sampling)
        tokens, window = self.config.tokens, self.config.context_window
        if sampling.lookup:
            from regard.decoding.speculative import LookupRow, LookupSampler

            return LookupSampler(
                [
                    LookupRow(self.networks, prompt, stream, tokens, sampling, window, token_texts)
                    for prompt, stream in zip(prompts, streams, strict=True)
                ]
            )
        return Sampler(self.networks, prompts, streams, tokens, sampling, window, token_texts, self.prefix_cache)

    def batch_request(
        self,
        prompts: Sequence[Prompt],
        options: GenerationOptions,
        results: list[Generation],
        *,
        is_seeded: bool = True,
    ) -> "BatchRequest":
        """Return a request for a running batch; `results` receives a generation per sample of each prompt."""
        from regard.decoding.batch_request import BatchRequest

        self._check_generates()
        texts = GeneratedTexts(prompts, options, self.config, self.tokenizer, results, is_seeded=is_seeded)
        return BatchRequest(texts, self.config.tokens, self._token_texts(options.sampling))

    def new_batch(self, max_rows: int) -> "ContinuousBatch":
        """Return an empty batch that generates at most this many texts at a time with the engine torch."""
        from regard.decoding.continuous_batch import ContinuousBatch

        tokens, window = self.config.tokens, self.config.context_window
        return ContinuousBatch(self.networks, tokens, max_rows=max_rows, window=window, prefix_cache=self.prefix_cache)

    @property
    def _batches_rows(self) -> bool:
        """Whether texts of different lengths take one step of the networks together, on this device."""
        return all(network.new_row_batch() is not None for network in self.networks)

    def _token_texts(self, sampling: SamplingOptions) -> Sequence[str]:
        """Return the text of each token, if an option needs them."""
        constraints = sampling.constraints
        needs_texts = constraints.suppressed_words or constraints.logits_processors
        return self.tokenizer.token_strings() if needs_texts else ()

    def keep_prefixes(self, max_bytes: int = PREFIX_CACHE_BYTES) -> None:
        """Keep what the engine torch computes for the beginnings of prompts, in at most `max_bytes` of memory."""
        from regard.decoding.prefix_cache import PrefixCache

        self.prefix_cache = PrefixCache(max_bytes)

    def _fits_window(self, prompts: Sequence[Prompt], sampling: SamplingOptions) -> bool:
        window = self.config.context_window or MAX_POSITIONS
        texts = self.tokenizer.encode_batch([prompt for prompt in prompts if isinstance(prompt, str)])
        encoded = [prompt for prompt in prompts if not isinstance(prompt, str)]
        return (
            max(map(len, [*texts, *encoded]), default=0)
            + 1
            + (sampling.constraints.max_tokens or DEFAULT_GENERATED_TOKENS)
            <= window
        )
