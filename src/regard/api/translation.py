"""`Model.translate` and `Model.translate_detailed`."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypedDict, Unpack, overload

from regard.api.base import ModelBase, check_texts, map_batches
from regard.data.syntax import Parse, ParseSource
from regard.decoding.domain import Domain, DomainCheck, read_domain
from regard.decoding.engines import Engine, choose_engine, unsupported_search
from regard.decoding.options import (
    MAX_SOURCE_TOKENS,
    OutputConstraints,
    SearchOptions,
    TranslationOptions,
    search_options,
)
from regard.decoding.results import Translation
from regard.decoding.translator import Translator
from regard.errors import ConfigError
from regard.registry import EngineName, Precision, SearchName, TextFormat

if TYPE_CHECKING:
    from regard.decoding.logits_processors import LogitsProcessor

TRANSLATION_ITERATOR_BATCH = 512  # texts of an iterator that are translated at once


class TranslateKeywords(TypedDict, total=False):
    """The keyword arguments of `Model.translate`."""

    beam: int | None
    length_penalty: float | None
    coverage_penalty: float
    patience: float | None
    search: SearchName
    n_best: int
    min_tokens: int
    max_tokens: int | None
    prefix: str
    suppress: Sequence[str]
    copy_unknown: bool
    copy_symbols: bool
    split_sentences: bool | None
    max_source_tokens: int
    unwrap: bool
    format: TextFormat
    logits_processors: "Sequence[str | LogitsProcessor]"
    parses: ParseSource | None
    source_language: str | None
    target_language: str | None
    engine: EngineName
    precision: Precision


class TranslationMethods(ModelBase):
    """The methods of translators."""

    @cached_property
    def _engines(self) -> dict[tuple[str, str], Engine]:
        return {}

    @cached_property
    def _translators(self) -> dict[Engine, Translator]:
        return {}

    @overload
    def translate(self, texts: str, **keywords: Unpack[TranslateKeywords]) -> str: ...  # type: ignore[overload-overlap]  # str is a Sequence[str]

    @overload
    def translate(self, texts: Sequence[str], **keywords: Unpack[TranslateKeywords]) -> list[str]: ...

    @overload
    def translate(self, texts: Iterator[str], **keywords: Unpack[TranslateKeywords]) -> Iterator[str]: ...

    def translate(
        self,
        texts: str | Iterable[str],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        coverage_penalty: float = 0.0,
        patience: float | None = None,
        search: SearchName = "exact",
        n_best: int = 1,
        min_tokens: int = 1,
        max_tokens: int | None = None,
        prefix: str = "",
        suppress: Sequence[str] = (),
        copy_unknown: bool = False,
        copy_symbols: bool = True,
        split_sentences: bool | None = None,
        max_source_tokens: int = MAX_SOURCE_TOKENS,
        unwrap: bool = False,
        format: TextFormat = "auto",
        logits_processors: "Sequence[str | LogitsProcessor]" = (),
        parses: ParseSource | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        engine: EngineName = "auto",
        precision: Precision = "int8",
    ) -> str | list[str] | Iterator[str]:
        """Translate texts.

        Args:
            texts: A text, a sequence of texts, or an iterator, which may be endless.
            beam: Number of open hypotheses of beam search; 1 is greedy search. None: the model's default, usually 4.
            length_penalty: α of the length normalization; larger values favor longer translations. None: the model's
                default, usually 0.6.
            coverage_penalty: β of the coverage penalty; larger values penalize source tokens with little attention.
            patience: Stop a search after `patience · beam` finished hypotheses; None: when no open one can win.
            search: "exact", or "fast", which stops after `beam` finished hypotheses.
            n_best: Alternatives per sentence that the search keeps; `translate_detailed` returns them.
            min_tokens: Minimum number of tokens of a sentence.
            max_tokens: Maximum number of tokens of a sentence; None: 50 more than its source, or the model's default.
            prefix: Text that every translation begins with.
            suppress: Words that are never generated.
            copy_unknown: Replace unknown tokens by the source word with the highest attention.
            copy_symbols: Copy sentences without letters, such as --- or a timestamp.
            split_sentences: Translate each sentence on its own (True), or never split texts (False). None:
                split only texts that have more sentences or tokens than the training data.
            max_source_tokens: Sentences with more tokens are split at punctuation.
            unwrap: Join the lines of a paragraph before they are translated; blank lines separate paragraphs.
            format: "html" translates the text between tags, and puts inline tags back by word alignment. "auto" does so
                in lines that have tags in pairs, such as <b>…</b>; "text" translates tags like words.
            logits_processors: Registered names or `LogitsProcessor` objects.
            parses: For models with syntax positions: the path of a CoNLL-U file, or one CoNLL-U text per text.
            source_language: Code of the language of the texts, such as "en", for models of several languages.
            target_language: Code of the language to translate to.
            engine: "torch", "ctranslate2", or "auto" for the fastest that supports the model and the options.
            precision: The number format of CTranslate2.

        Returns:
            A str for a str, a list for a sequence, an iterator for any other iterable.

        Raises:
            ConfigError: The model is not a translator, or an option is out of range.
            ArgumentError: A text is not a str.

        Example:
            model = regard.load("runs/en-it")
            model.translate("I love you.")
            model.translate(["I love you.", "Where is the station?"], beam=8, suppress=["amo"])
        """
        options = _translation_options(
            search_options(
                self.config.decoding,
                beam,
                length_penalty,
                search=search,
                coverage_penalty=coverage_penalty,
                patience=patience,
                n_best=n_best,
                constraints=OutputConstraints(min_tokens, max_tokens, logits_processors=tuple(logits_processors)),
            ),
            prefix=prefix,
            suppress=suppress,
            copy_unknown=copy_unknown,
            copy_symbols=copy_symbols,
            split_sentences=split_sentences,
            max_source_tokens=max_source_tokens,
            unwrap=unwrap,
            format=format,
            source_language=source_language,
            target_language=target_language,
            details=False,
        )
        checked = check_texts("translate", texts)
        translator = self.translator(options, engine=engine, precision=precision)
        if isinstance(texts, str):
            return _translate(translator, list(checked), options, parses)[0].text
        if isinstance(texts, Sequence):
            return [translation.text for translation in _translate(translator, list(checked), options, parses)]
        return _translate_iterator(translator, checked, options, parses)

    def translate_detailed(
        self,
        texts: str | Iterable[str],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        coverage_penalty: float = 0.0,
        patience: float | None = None,
        search: SearchName = "exact",
        n_best: int = 1,
        min_tokens: int = 1,
        max_tokens: int | None = None,
        prefix: str = "",
        suppress: Sequence[str] = (),
        copy_unknown: bool = False,
        copy_symbols: bool = True,
        split_sentences: bool | None = None,
        max_source_tokens: int = MAX_SOURCE_TOKENS,
        unwrap: bool = False,
        format: TextFormat = "auto",
        logits_processors: "Sequence[str | LogitsProcessor]" = (),
        token_scores: bool = False,
        attention: bool = False,
        parses: ParseSource | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        engine: EngineName = "auto",
        precision: Precision = "int8",
    ) -> list[Translation]:
        """Translate texts and return sentences, alternatives, tokens and scores.

        Sentences that are unlike the training data are flagged: `sentences[0].flags`, `out_of_domain`.

        Args:
            texts: A text or several; the result is always a list.
            n_best: Number of alternatives of each sentence; at most `beam`.
            token_scores: Return the log-probability of each token.
            attention: Return the attention of each token to the source.

        The other arguments are those of `translate`.

        Example:
            (translation,) = model.translate_detailed("I love you.", n_best=3, token_scores=True)
            [(alternative.text, alternative.score) for alternative in translation.sentences[0].alternatives]
        """
        options = _translation_options(
            search_options(
                self.config.decoding,
                beam,
                length_penalty,
                search=search,
                coverage_penalty=coverage_penalty,
                patience=patience,
                n_best=n_best,
                constraints=OutputConstraints(min_tokens, max_tokens, logits_processors=tuple(logits_processors)),
            ),
            prefix=prefix,
            suppress=suppress,
            copy_unknown=copy_unknown,
            copy_symbols=copy_symbols,
            split_sentences=split_sentences,
            max_source_tokens=max_source_tokens,
            unwrap=unwrap,
            format=format,
            source_language=source_language,
            target_language=target_language,
            token_scores=token_scores,
            attention=attention,
        )
        checked = list(check_texts("translate_detailed", texts))
        return _translate(self.translator(options, engine=engine, precision=precision), checked, options, parses)

    def translator(
        self, options: TranslationOptions, *, engine: EngineName = "auto", precision: Precision = "int8"
    ) -> Translator:
        """Return a translator on the engine for these options, for callers that reuse an options object."""
        if not self.config.model.translates:
            raise ConfigError(
                f"{self.folder}: is a model of type {self.config.model.family}, which does not translate; "
                "use an encoder-decoder model."
            )
        obstacle = unsupported_search(options, self.config, is_ensemble=self.is_ensemble)
        name = choose_engine(engine, self.config, self._device_obstacle, obstacle)
        chosen = self._engine(name, precision)
        if chosen not in self._translators:
            tokenizers = self.tokenizer, self.target_tokenizer
            self._translators[chosen] = Translator(chosen, self.config, *tokenizers, self._domain_check)
        return self._translators[chosen]

    @cached_property
    def domain(self) -> Domain | None:
        """What the training data cover; None for a model without this information, such as an imported one."""
        return read_domain(self.folder)

    @cached_property
    def _domain_check(self) -> DomainCheck:
        domain = self.domain
        if domain is not None and self.is_ensemble:  # the limit of one network says nothing about several
            domain = domain.model_copy(update={"min_confidence": None})
        return DomainCheck.of(domain, self.tokenizer, self.config.tokens.unknown)

    def _engine(self, name: str, precision: Precision) -> Engine:
        key = (name, precision if name == "ctranslate2" else "")
        if key not in self._engines:
            self._engines[key] = self._ctranslate2_engine(precision) if name == "ctranslate2" else self._torch_engine()
        return self._engines[key]

    def _torch_engine(self) -> Engine:
        from regard.decoding.engines.pytorch import TorchEngine

        return TorchEngine(self.networks, self.config)

    def _ctranslate2_engine(self, precision: Precision) -> Engine:
        from regard.decoding.engines.ctranslate2 import CTranslate2Engine

        return CTranslate2Engine(self.folder, self.config, precision, self.threads, self.device)


def _translation_options(
    search: SearchOptions,
    *,
    prefix: str,
    suppress: Sequence[str],
    copy_unknown: bool,
    copy_symbols: bool,
    split_sentences: bool | None,
    max_source_tokens: int,
    unwrap: bool,
    format: TextFormat,
    token_scores: bool = False,
    attention: bool = False,
    details: bool = True,
    source_language: str | None = None,
    target_language: str | None = None,
) -> TranslationOptions:
    return TranslationOptions(
        search,
        split_sentences,
        max_source_tokens,
        prefix,
        tuple(suppress),
        token_scores,
        attention,
        copy_unknown,
        copy_symbols,
        unwrap,
        format,
        details,
        source_language,
        target_language,
    )


def _translate(
    translator: Translator, texts: list[str], options: TranslationOptions, parses: ParseSource | None
) -> list[Translation]:
    if parses is None:
        return translator.translate(texts, options)
    from regard.data.readers.aligned import attach_parses

    return translator.translate(texts, options, [parse for _, parse in attach_parses(texts, parses)])


def _translate_iterator(
    translator: Translator, texts: Iterator[str], options: TranslationOptions, parses: ParseSource | None
) -> Iterator[str]:
    if parses is None:
        translations = map_batches(
            lambda batch: translator.translate(batch, options), texts, TRANSLATION_ITERATOR_BATCH
        )
    else:
        from regard.data.readers.aligned import attach_parses

        def translate_pairs(batch: list[tuple[str, Parse | None]]) -> list[Translation]:
            return translator.translate([text for text, _ in batch], options, [parse for _, parse in batch])

        translations = map_batches(translate_pairs, attach_parses(texts, parses), TRANSLATION_ITERATOR_BATCH)
    return (translation.text for translation in translations)
