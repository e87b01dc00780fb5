"""Translation of text: split into sentences, tokenize, search, detokenize and join. Torch-free."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import exp, isfinite
from typing import TYPE_CHECKING

from regard.config import Config, NetworkConfig
from regard.data.sentence_splitting import join_sentences, split_sentences, split_to_fit, unwrap_lines
from regard.data.syntax import Parse, TokenFeatures, token_features
from regard.data.tokenizer import Tokenizer
from regard.decoding.domain import DomainCheck
from regard.decoding.engines import Engine, SearchRequest
from regard.decoding.languages import language_tokens
from regard.decoding.options import SearchOptions, TranslationOptions
from regard.decoding.results import Alternative, Hypothesis, TranslatedSentence, Translation
from regard.decoding.segmentation import EncodedText, SplitRule, split_lines, split_rule
from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard.data.html_text import HtmlText


def check_parses(model: NetworkConfig, *, has_parses: bool) -> None:
    """Raise ConfigError if a network needs parses and there are none, or the other way round."""
    if model.needs_parses and not has_parses:
        raise ConfigError(
            "the model has syntax positions and needs a parse of every sentence; "
            "pass the parses as CoNLL-U (--parses on the command line)."
        )
    if has_parses and not model.needs_parses:
        raise ConfigError("the model has no syntax positions and uses no parses; remove them.")


def join_translations(
    source: str, translations: Sequence[Translation], join: Callable[[Sequence[str]], str]
) -> Translation:
    """Return the translation of a text from those of its parts; `join` makes a text of the texts of all parts."""
    others = max((len(translation.alternatives) for translation in translations), default=0)

    def of_rank(rank: int) -> str:
        return join([[translation.text, *translation.alternatives][: rank + 1][-1] for translation in translations])

    return Translation(
        source,
        of_rank(0),
        [sentence for translation in translations for sentence in translation.sentences],
        sum(translation.parts for translation in translations),
        [of_rank(rank) for rank in range(1, others + 1)],
    )


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
        self._positions = config.model.max_length
        self._source = source
        self._target = target
        self._domain_check = domain_check or DomainCheck.of(None, source, config.tokens.unknown)

    def translate(
        self, lines: Sequence[str], options: TranslationOptions, parses: Sequence[Parse | None] | None = None
    ) -> list[Translation]:
        """Return one translation per text; that of an empty text is empty.

        Unless sentences are never split, each line of a text is translated on its own, and blank lines stay; with
        `options.unwrap`, each paragraph. `segmentation` has the rule by which sentences are translated together.
        A network that needs parses receives one per line. Such lines are not split, since a tree cannot be split at a
        comma; lines without a parse, which are empty or were skipped, have an empty translation.
        """
        check_parses(self.config.model, has_parses=parses is not None)
        language_tokens(self.config, options.source_language, options.target_language)  # before anything long
        if parses is not None and (options.unwrap or options.format == "html"):
            option = "unwrap: joins lines" if options.unwrap else "format: HTML has no lines"
            raise ConfigError(f"{option}, but each line has a parse of its own; remove one of them.")
        if not lines:
            return []
        if options.format == "html":
            from regard.data.html_text import HtmlText

            return self._translate_html(lines, [HtmlText(line) for line in lines], options)
        by_line = parses is None and (options.unwrap or options.split_sentences is not False)
        if by_line and any("\n" in line for line in lines):
            return self._translate_paragraphs(lines, options)
        if parses is None and options.format == "auto" and any("<" in line for line in lines):
            return self._translate_tagged(lines, options)
        encoded = self._encode(lines, options) if parses is None else self._encode_parsed(lines, parses)
        if options.prefix:
            prefix = self._target.encode(options.prefix)
            for line in encoded:  # only the first part of a line that is translated has the prefix
                for part in [part for part in line.parts if not part.is_copied][:1]:
                    part.prefix = prefix
        self._search([part for line in encoded for part in line.parts], options)
        self._split_incomplete(encoded, options)
        if options.details or options.search.n_best > 1 or options.copy_unknown:
            return [self._assemble(line, options) for line in encoded]
        return self._texts(encoded)

    def _texts(self, lines: "Sequence[_EncodedLine]") -> list[Translation]:
        """Return translations without sentences; all texts are detokenized at once."""
        translated = [part for line in lines for part in line.parts if not part.is_copied]
        texts = iter(self._target.decode_batch([part.hypotheses[0].ids for part in translated]))
        translations = []
        for line in lines:
            if line.parts and all(part.is_copied for part in line.parts):
                text = line.text  # unchanged, spaces included
            else:
                text = join_sentences([part.text if part.is_copied else next(texts) for part in line.parts])
            translations.append(Translation(line.text, text, [], line.split_parts))
        return translations

    def _search(self, parts: "Sequence[_Part]", options: TranslationOptions) -> None:
        """Find hypotheses for all parts that are not copied."""
        parts = [part for part in parts if not part.is_copied]
        search = self._search_options(options)
        constraints = search.constraints
        before, first = language_tokens(self.config, options.source_language, options.target_language)
        request = SearchRequest(
            [[*before, *part.ids] for part in parts],
            search,
            [[*first, *part.prefix] for part in parts] if options.prefix or first else None,
            options.token_scores,
            (options.attention and self.config.model.has_alignment) or options.copy_unknown,
            self._target.token_strings() if constraints.suppressed_words or constraints.logits_processors else (),
            [part.features for part in parts if part.features is not None],
        )
        for part, hypotheses in zip(parts, self.engine.search(request), strict=True):
            part.hypotheses = [hypothesis.without(len(first), len(before)) for hypothesis in hypotheses]

    def _split_incomplete(self, lines: "Sequence[_EncodedLine]", options: TranslationOptions) -> None:
        """Replace parts of several sentences whose translation has not as many by single sentences."""
        again: list[_Part] = []
        for line in lines:
            if any(part.sentences > 1 and not self._is_complete(part) for part in line.parts):
                parts, line.parts = line.parts, []
                for part in parts:
                    if part.sentences == 1 or self._is_complete(part):
                        line.parts.append(part)
                        continue
                    (sentences,) = split_lines([part.text], SplitRule(), self._source, 0)
                    split = self._encode_line(part.text, sentences, options, self._max_tokens(options))
                    next(piece for piece in split.parts if not piece.is_copied).prefix = part.prefix
                    line.parts += split.parts
                    line.split_parts += split.split_parts
                    again += split.parts
        if again:
            self._search(again, options)

    def _is_complete(self, part: "_Part") -> bool:
        return len(split_sentences(self._target.decode(part.hypotheses[0].ids))) == part.sentences

    def _translate_paragraphs(self, texts: Sequence[str], options: TranslationOptions) -> list[Translation]:
        """Translate the lines of texts, or their paragraphs; a translation has a line for each."""
        lines = [text.split("\n") for text in texts]
        if options.unwrap:
            lines = [[paragraph for _, paragraph in unwrap_lines(text_lines)] for text_lines in lines]
        translated = iter(self.translate([line for text_lines in lines for line in text_lines], options))
        return [
            join_translations(text, [next(translated) for _ in text_lines], "\n".join)
            for text, text_lines in zip(texts, lines, strict=True)
        ]

    def _translate_tagged(self, lines: Sequence[str], options: TranslationOptions) -> list[Translation]:
        """Translate lines of text; in those with tags, the tags are put into the translations."""
        from regard.data.html_text import TaggedLine, has_tags

        tagged = [n for n, line in enumerate(lines) if has_tags(line)]
        others = sorted(set(range(len(lines))).difference(tagged))
        translations = self.translate([lines[n] for n in others], replace(options, format="text"))
        texts = [lines[n] for n in tagged]
        translations += self._translate_html(texts, [TaggedLine(text) for text in texts], options)
        by_line = dict(zip([*others, *tagged], translations, strict=True))
        return [by_line[n] for n in range(len(lines))]

    def _translate_html(
        self, texts: Sequence[str], documents: "Sequence[HtmlText]", options: TranslationOptions
    ) -> list[Translation]:
        """Translate the texts of HTML, and put their tags into the translations.

        Only texts with tags inside are translated with attention, which is slower.
        """
        from regard.decoding.markup import with_marks

        plain, tokenizers = replace(options, format="text", unwrap=False, details=True), (self._source, self._target)
        marked = [text for document in documents for text in document.texts]
        translations: dict[int, Translation] = {}
        for aligned in (False, True):
            chosen = [n for n, text in enumerate(marked) if text.needs_alignment == aligned]
            found = self.translate(
                [marked[n].text for n in chosen], replace(plain, attention=aligned or options.attention)
            )
            for n, translation in zip(chosen, found, strict=True):
                translations[n] = with_marks(marked[n], translation, tokenizers, keep_attention=options.attention)
        remaining = iter(translations[n] for n in range(len(marked)))
        return [
            join_translations(text, [next(remaining) for _ in document.texts], document.replace)
            for text, document in zip(texts, documents, strict=True)
        ]

    def _encode(self, lines: Sequence[str], options: TranslationOptions) -> "list[_EncodedLine]":
        """Split lines into sentences, or groups of them, and tokenize all of them at once."""
        rule = split_rule(self.config, options.split_sentences)
        limit = self._max_tokens(options)
        split = split_lines(lines, rule, self._source, limit)
        return [self._encode_line(line, parts, options, limit) for line, parts in zip(lines, split, strict=True)]

    def _max_tokens(self, options: TranslationOptions) -> int:
        limit, reserved = options.max_source_tokens, 2 if self.config.languages.codes else 1  # end and language
        return limit if self._positions is None else min(limit, self._positions - reserved)

    def _encode_line(
        self, line: str, encoded: list[EncodedText], options: TranslationOptions, max_tokens: int
    ) -> "_EncodedLine":
        parts: list[_Part] = []
        split_parts = 0
        for text, ids, sentences in encoded:
            if options.copy_symbols and not any(map(str.isalpha, text)):
                parts.append(_Part(text, ids, is_copied=True))
                continue
            if len(ids) <= max_tokens:
                parts.append(_Part(text, ids, sentences=sentences))
                continue
            pieces = split_to_fit(text, max_tokens, self._source.encode)
            split_parts += len(pieces)
            parts += [_Part(piece, piece_ids) for piece, piece_ids in pieces]
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
        if not options.suppress and search.n_best == 1 and not search.extra_hypotheses:
            return search
        words = (*constraints.suppressed_words, *options.suppress)
        extra = search.beam if search.n_best > 1 else 0
        return replace(search, constraints=replace(constraints, suppressed_words=words), extra_hypotheses=extra)

    def _assemble(self, line: "_EncodedLine", options: TranslationOptions) -> Translation:
        sentences = [
            self._copied_sentence(part, options) if part.is_copied else self._translated_sentence(part, options)
            for part in line.parts
        ]
        if line.parts and all(part.is_copied for part in line.parts):
            return Translation(line.text, line.text, sentences, line.split_parts)  # unchanged, spaces included
        if options.search.n_best == 1:
            best = join_sentences([sentence.alternatives[0].text for sentence in sentences])
            return Translation(line.text, best, sentences, line.split_parts)
        ranks = range(max((len(sentence.alternatives) for sentence in sentences), default=1))
        best, *others = [
            join_sentences([sentence.alternatives[: rank + 1][-1].text for sentence in sentences]) for rank in ranks
        ]
        return Translation(line.text, best, sentences, line.split_parts, others)

    def _copied_sentence(self, part: "_Part", options: TranslationOptions) -> TranslatedSentence:
        """Return a sentence without letters as its own translation."""
        tokens = self._target.ids_to_tokens(self._target.encode(part.text))
        scores = [0.0] * len(tokens) if options.token_scores else None
        copy = Alternative(part.text, tokens, 0.0, 0.0, True, scores)
        return TranslatedSentence(part.text, self._source.ids_to_tokens(part.ids), [copy])

    def _translated_sentence(self, part: "_Part", options: TranslationOptions) -> TranslatedSentence:
        alternatives, check = self._alternatives(part, options), self._domain_check
        best, confidence = alternatives[0], None
        if isfinite(best.log_probability) and (options.token_scores or options.search.beam > 1):
            confidence = exp(best.log_probability / max(1, len(best.tokens) + best.ended))
        flags = check.flags(part.ids, confidence)
        unknown_words = check.unknown_words(part.text) if "unknown_pieces" in flags else ()
        tokens = self._source.ids_to_tokens(part.ids)
        return TranslatedSentence(part.text, tokens, alternatives, flags, unknown_words, confidence)

    def _alternatives(self, part: "_Part", options: TranslationOptions) -> list[Alternative]:
        """Return the n best texts; of hypotheses with the same text, only the best.

        Spare hypotheses replace duplicates. There can be fewer than n: finding more would need a larger beam.
        """
        by_text: dict[str, Alternative] = {}
        for hypothesis in part.hypotheses:
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


@dataclass(slots=True)
class _Part:
    """One or more sentences, or a part of a sentence that was too long."""

    text: str
    ids: list[int]
    features: TokenFeatures | None = None  # from its parse
    is_copied: bool = False  # it has no letters
    sentences: int = 1
    prefix: list[int] = field(default_factory=list)
    hypotheses: Sequence[Hypothesis] = ()


@dataclass(slots=True)
class _EncodedLine:
    text: str
    parts: list[_Part]
    split_parts: int
