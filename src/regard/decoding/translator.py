"""Translation of text: split into sentences, tokenize, search, detokenize and join. Torch-free."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite

from regard.config import Config, NetworkConfig
from regard.data.sentence_splitting import join_sentences, split_sentences, split_to_fit
from regard.data.syntax import Parse, TokenFeatures, token_features
from regard.data.tokenizer import Tokenizer
from regard.decoding.domain import DomainCheck
from regard.decoding.engines import Engine, SearchRequest
from regard.decoding.options import SearchOptions, TranslationOptions
from regard.decoding.results import Alternative, Hypothesis, TranslatedSentence, Translation
from regard.errors import ConfigError


def check_parses(model: NetworkConfig, *, has_parses: bool) -> None:
    """Raise ConfigError if a network needs parses and there are none, or the other way round."""
    if model.needs_parses and not has_parses:
        raise ConfigError(
            "the model has syntax positions and needs a parse of every sentence; "
            "pass the parses as CoNLL-U (--parses on the command line)."
        )
    if has_parses and not model.needs_parses:
        raise ConfigError("the model has no syntax positions and uses no parses; remove them.")


class Translator:
    """Translates lines with an engine and the tokenizers of both languages, which may be the same."""

    def __init__(
        self,
        engine: Engine,
        config: Config,
        source: Tokenizer,
        target: Tokenizer,
        domain_check: DomainCheck | None = None,
    ) -> None:
        self.engine = engine
        self.config = config
        self._source = source
        self._target = target
        self._domain_check = domain_check or DomainCheck.of(None, source, config.tokens.unknown)

    def translate(
        self, lines: Sequence[str], options: TranslationOptions, parses: Sequence[Parse | None] | None = None
    ) -> list[Translation]:
        """Return one translation per text; that of an empty text is empty.

        If sentences are split, each line of a text is translated on its own, and blank lines stay.
        A network that needs parses receives one per line. Such lines are not split, since a tree cannot be split at a
        comma; lines without a parse, which are empty or were skipped, have an empty translation.
        """
        check_parses(self.config.model, has_parses=parses is not None)
        if parses is None and options.split_sentences and any("\n" in line for line in lines):
            return self._translate_paragraphs(lines, options)
        encoded = self._encode(lines, options) if parses is None else self._encode_parsed(lines, parses)
        parts = [part for line in encoded for part in line.parts if not part.is_copied]
        search = self._search_options(options)
        constraints = search.constraints
        request = SearchRequest(
            [part.ids for part in parts],
            search,
            self._prefixes(encoded, options),
            options.token_scores,
            (options.attention and self.config.model.has_alignment) or options.copy_unknown,
            self._target.token_strings() if constraints.suppressed_words or constraints.logits_processors else (),
            [part.features for part in parts if part.features is not None],
        )
        hypotheses = iter(self.engine.search(request))
        return [self._assemble(line, hypotheses, options) for line in encoded]

    def _translate_paragraphs(self, texts: Sequence[str], options: TranslationOptions) -> list[Translation]:
        """Translate the lines of texts; a translation has as many lines as its text."""
        lines = [text.split("\n") for text in texts]
        translated = iter(self.translate([line for text_lines in lines for line in text_lines], options))
        results = []
        for text, text_lines in zip(texts, lines, strict=True):
            parts = [next(translated) for _ in text_lines]
            sentences = [sentence for part in parts for sentence in part.sentences]
            joined = "\n".join(part.text for part in parts)
            results.append(Translation(text, joined, sentences, sum(part.parts for part in parts)))
        return results

    def _encode(self, lines: Sequence[str], options: TranslationOptions) -> "list[_EncodedLine]":
        """Split lines into sentences, and tokenize all of them at once."""
        if options.split_sentences:
            split = [split_sentences(line) for line in lines]
        else:
            split = [[line.strip()] if line.strip() else [] for line in lines]
        ids = iter(self._source.encode_batch([sentence for sentences in split for sentence in sentences]))
        return [self._encode_line(line, sentences, ids, options) for line, sentences in zip(lines, split, strict=True)]

    def _encode_line(
        self, line: str, sentences: list[str], encoded: Iterator[list[int]], options: TranslationOptions
    ) -> "_EncodedLine":
        limit = options.max_source_tokens
        max_tokens = min(limit, (self.config.model.max_length or limit + 1) - 1)
        parts, split_parts = list[_Part](), 0
        for sentence in sentences:
            ids = next(encoded)
            if options.copy_symbols and not any(map(str.isalpha, sentence)):
                parts.append(_Part(sentence, ids, is_copied=True))
                continue
            if len(ids) <= max_tokens:
                parts.append(_Part(sentence, ids))
                continue
            pieces = split_to_fit(sentence, max_tokens, self._source.encode)
            split_parts += len(pieces)
            parts += [_Part(text, ids) for text, ids in pieces]
        return _EncodedLine(line, parts, split_parts)

    def _encode_parsed(self, lines: Sequence[str], parses: Sequence[Parse | None]) -> "list[_EncodedLine]":
        texts = [line.strip() for line, parse in zip(lines, parses, strict=True) if parse is not None]
        encoded = iter(zip(texts, self._source.encode_with_offsets(texts), strict=True))

        def part(parse: Parse) -> _Part:
            text, (ids, offsets) = next(encoded)
            return _Part(text, ids, token_features(parse, offsets))

        return [
            _EncodedLine(line, [] if parse is None else [part(parse)], 0)
            for line, parse in zip(lines, parses, strict=True)
        ]

    def _search_options(self, options: TranslationOptions) -> SearchOptions:
        """Add the suppressed words, and extra hypotheses where several that are found may have the same text."""
        search, constraints = options.search, options.search.constraints
        words = (*constraints.suppressed_words, *options.suppress)
        extra = search.beam if search.n_best > 1 else 0
        return replace(search, constraints=replace(constraints, suppressed_words=words), extra_hypotheses=extra)

    def _prefixes(self, lines: "Sequence[_EncodedLine]", options: TranslationOptions) -> list[list[int]] | None:
        """Return the prefix of each part that is translated; only the first of a line has one."""
        if not options.prefix:
            return None
        prefix = self._target.encode(options.prefix)
        translated = [[part for part in line.parts if not part.is_copied] for line in lines]
        return [prefix if n == 0 else [] for parts in translated for n in range(len(parts))]

    def _assemble(
        self, line: "_EncodedLine", hypotheses: Iterator[list[Hypothesis]], options: TranslationOptions
    ) -> Translation:
        sentences = [
            self._copied_sentence(part, options)
            if part.is_copied
            else self._translated_sentence(part, next(hypotheses), options)
            for part in line.parts
        ]
        if line.parts and all(part.is_copied for part in line.parts):
            text = line.text  # unchanged, spaces included
        else:
            text = join_sentences([sentence.alternatives[0].text for sentence in sentences])
        return Translation(line.text, text, sentences, line.split_parts)

    def _copied_sentence(self, part: "_Part", options: TranslationOptions) -> TranslatedSentence:
        """Return a sentence without letters as its own translation."""
        tokens = self._target.ids_to_tokens(self._target.encode(part.text))
        scores = [0.0] * len(tokens) if options.token_scores else None
        copy = Alternative(part.text, tokens, 0.0, 0.0, True, scores)
        return TranslatedSentence(part.text, self._source.ids_to_tokens(part.ids), [copy])

    def _translated_sentence(
        self, part: "_Part", hypotheses: Sequence[Hypothesis], options: TranslationOptions
    ) -> TranslatedSentence:
        alternatives, check = self._alternatives(hypotheses, part, options), self._domain_check
        best, confidence = alternatives[0], None
        if isfinite(best.log_probability) and (options.token_scores or options.search.beam > 1):
            confidence = exp(best.log_probability / max(1, len(best.tokens) + best.ended))
        flags = check.flags(part.ids, confidence)
        unknown_words = check.unknown_words(part.text) if "unknown_pieces" in flags else ()
        tokens = self._source.ids_to_tokens(part.ids)
        return TranslatedSentence(part.text, tokens, alternatives, flags, unknown_words, confidence)

    def _alternatives(
        self, hypotheses: Sequence[Hypothesis], part: "_Part", options: TranslationOptions
    ) -> list[Alternative]:
        """Return the n best texts; of hypotheses with the same text, only the best.

        Spare hypotheses replace duplicates. There can be fewer than n: finding more would need a larger beam.
        """
        by_text: dict[str, Alternative] = {}
        for hypothesis in hypotheses:
            if len(by_text) < options.search.n_best:
                alternative = self._alternative(hypothesis, part, options)
                by_text.setdefault(alternative.text, alternative)
        return list(by_text.values())

    def _alternative(self, hypothesis: Hypothesis, part: "_Part", options: TranslationOptions) -> Alternative:
        tokens = self._target.ids_to_tokens(hypothesis.ids)
        unknown, attention = self.config.tokens.unknown, hypothesis.attention
        if options.copy_unknown and attention is not None and unknown in hypothesis.ids:
            words = self._source.token_texts(part.text)
            tokens = [
                words[max(range(len(words)), key=row.__getitem__)] if token_id == unknown and words else token
                for token_id, token, row in zip(hypothesis.ids, tokens, attention, strict=False)
            ]
            text = self._target.decode_tokens(tokens)
        else:
            text = self._target.decode(hypothesis.ids)
        return Alternative(
            text,
            tokens,
            hypothesis.score,
            hypothesis.log_probability,
            hypothesis.ended,
            hypothesis.token_scores,
            [row[: len(part.ids)] for row in attention] if options.attention and attention is not None else None,
        )


@dataclass(frozen=True)
class _Part:
    """A sentence, or a part of a sentence that was too long."""

    text: str
    ids: list[int]
    features: TokenFeatures | None = None  # from its parse
    is_copied: bool = False  # it has no letters


@dataclass(frozen=True)
class _EncodedLine:
    text: str
    parts: list[_Part]
    split_parts: int
