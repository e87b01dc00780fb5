"""Translation of text: split into sentences, tokenize, search, detokenize and join. Torch-free."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress
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
from regard.decoding.segmentation import (
    EncodedLine,
    EncodedText,
    Part,
    SplitRule,
    TranslationPlan,
    has_letters,
    is_whole,
    split_lines,
    split_rule,
)
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
        self._plan: TranslationPlan | None = None

    def translate(
        self, lines: Sequence[str], options: TranslationOptions, parses: Sequence[Parse | None] | None = None
    ) -> list[Translation]:
        """Return one translation per text; that of an empty text is empty.

        Unless sentences are never split, each line of a text is translated on its own, and blank lines stay; with
        `options.unwrap`, each paragraph. `segmentation` has the rule by which sentences are translated together.
        A network that needs parses receives one per line. Such lines are not split, since a tree cannot be split at a
        comma; lines without a parse, which are empty or were skipped, have an empty translation.
        """
        plan = self._plan_for(options, has_parses=parses is not None)
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
        if plan.only_ids and parses is None:
            return self._translate_whole(lines, plan)
        encoded = self._encode(lines, plan) if parses is None else self._encode_parsed(lines, parses)
        if options.prefix:
            prefix = self._target.encode(options.prefix)
            for line in encoded:  # only the first part of a line that is translated has the prefix
                for part in [part for part in line.parts if not part.is_copied][:1]:
                    part.prefix = prefix
        self._search([part for line in encoded for part in line.parts], plan)
        self._split_incomplete(encoded, plan)
        if options.details or options.search.n_best > 1 or options.copy_unknown:
            return [self._assemble(line, options) for line in encoded]
        return self._texts(encoded)

    def _plan_for(self, options: TranslationOptions, *, has_parses: bool) -> TranslationPlan:
        """Return what follows from the options and the model; that of the last options is kept."""
        plan = self._plan
        if plan is not None and plan.options is options and plan.has_parses == has_parses:
            return plan
        check_parses(self.config.model, has_parses=has_parses)
        limit, reserved = options.max_source_tokens, 2 if self.config.languages.codes else 1  # end and language
        self._plan = plan = TranslationPlan(
            options,
            has_parses,
            split_rule(self.config, options.split_sentences),
            limit if self._positions is None else min(limit, self._positions - reserved),
            self._search_options(options),
            language_tokens(self.config, options.source_language, options.target_language),
            not (options.details or options.prefix or options.search.n_best > 1 or options.copy_unknown),
        )
        return plan

    def _translate_whole(self, lines: Sequence[str], plan: TranslationPlan) -> list[Translation]:
        """Translate lines without details: most lines need no more than the ids of a sentence and of its translation.

        Only the others get parts: lines of several sentences, without letters, or longer than the maximum.
        """
        copies, rule = plan.options.copy_symbols, plan.rule
        texts = [line.strip() for line in lines]
        whole = [n for n, text in enumerate(texts) if is_whole(text, rule) and not (copies and not has_letters(text))]
        ids = self._source.encode_batch(texts if len(whole) == len(texts) else [texts[n] for n in whole])
        fitting = [len(row) <= plan.max_tokens for row in ids]
        if not all(fitting):
            whole, ids = list(compress(whole, fitting)), list(compress(ids, fitting))
        if len(whole) == len(texts):
            decoded = self._target.decode_batch(self._best_ids(ids, plan))
            return [Translation(line, text, []) for line, text in zip(lines, decoded, strict=True)]
        others = sorted({*range(len(texts))}.difference(whole))
        encoded = self._encode([lines[n] for n in others], plan)
        parts = [part for line in encoded for part in line.parts if not part.is_copied]
        outputs = self._best_ids([*ids, *(part.ids for part in parts)], plan)
        for part, output in zip(parts, outputs[len(ids) :], strict=True):
            part.output = output
        self._split_incomplete(encoded, plan)
        translations = dict(zip(others, self._texts(encoded), strict=True))
        for n, text in zip(whole, self._target.decode_batch(outputs[: len(ids)]), strict=True):
            translations[n] = Translation(lines[n], text, [])
        return [translations[n] for n in range(len(lines))]

    def _best_ids(self, sources: list[list[int]], plan: TranslationPlan) -> list[list[int]]:
        """Return the ids of the best translation of each source, without those that the languages require."""
        before, first = plan.languages
        if not before and not first:
            return self.engine.best_ids(self._request(sources, None, plan))
        request = self._request([[*before, *ids] for ids in sources], [list(first) for _ in sources], plan)
        return [ids[len(first) :] for ids in self.engine.best_ids(request)]

    def _texts(self, lines: Sequence[EncodedLine]) -> list[Translation]:
        """Return translations without sentences; all texts are detokenized at once."""
        translated = [part for line in lines for part in line.parts if not part.is_copied]
        texts = iter(self._target.decode_batch([part.output for part in translated]))
        translations = []
        for line in lines:
            if line.parts and all(part.is_copied for part in line.parts):
                text = line.text  # unchanged, spaces included
            else:
                text = join_sentences([part.text if part.is_copied else next(texts) for part in line.parts])
            translations.append(Translation(line.text, text, [], line.split_parts))
        return translations

    def _search(self, parts: Sequence[Part], plan: TranslationPlan) -> None:
        """Find hypotheses for all parts that are not copied."""
        parts = [part for part in parts if not part.is_copied]
        if plan.only_ids and not plan.has_parses:
            for part, ids in zip(parts, self._best_ids([part.ids for part in parts], plan), strict=True):
                part.output = ids
            return
        before, first = plan.languages
        prefixes = [[*first, *part.prefix] for part in parts] if plan.options.prefix or first else None
        features = [part.features for part in parts if part.features is not None]
        request = self._request([[*before, *part.ids] for part in parts], prefixes, plan, features)
        for part, hypotheses in zip(parts, self.engine.search(request), strict=True):
            part.hypotheses = [hypothesis.without(len(first), len(before)) for hypothesis in hypotheses]
            part.output = part.hypotheses[0].ids

    def _request(
        self,
        sources: list[list[int]],
        prefixes: list[list[int]] | None,
        plan: TranslationPlan,
        features: Sequence[TokenFeatures] = (),
    ) -> SearchRequest:
        options, constraints = plan.options, plan.search.constraints
        return SearchRequest(
            sources,
            plan.search,
            prefixes,
            options.token_scores,
            (options.attention and self.config.model.has_alignment) or options.copy_unknown,
            self._target.token_strings() if constraints.suppressed_words or constraints.logits_processors else (),
            features,
        )

    def _split_incomplete(self, lines: Sequence[EncodedLine], plan: TranslationPlan) -> None:
        """Replace parts of several sentences whose translation has not as many by single sentences."""
        again: list[Part] = []
        for line in lines:
            if any(part.sentences > 1 and not self._is_complete(part) for part in line.parts):
                parts, line.parts = line.parts, []
                for part in parts:
                    if part.sentences == 1 or self._is_complete(part):
                        line.parts.append(part)
                        continue
                    (sentences,) = split_lines([part.text], SplitRule(), self._source, 0)
                    split = self._encode_line(part.text, sentences, plan)
                    next(piece for piece in split.parts if not piece.is_copied).prefix = part.prefix
                    line.parts += split.parts
                    line.split_parts += split.split_parts
                    again += split.parts
        if again:
            self._search(again, plan)

    def _is_complete(self, part: Part) -> bool:
        return len(split_sentences(self._target.decode(part.output))) == part.sentences

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

    def _encode(self, lines: Sequence[str], plan: TranslationPlan) -> list[EncodedLine]:
        """Split lines into sentences, or groups of them, and tokenize all of them at once."""
        split = split_lines(lines, plan.rule, self._source, plan.max_tokens)
        return [self._encode_line(line, parts, plan) for line, parts in zip(lines, split, strict=True)]

    def _encode_line(self, line: str, encoded: list[EncodedText], plan: TranslationPlan) -> EncodedLine:
        parts: list[Part] = []
        split_parts = 0
        for text, ids, sentences in encoded:
            if plan.options.copy_symbols and not has_letters(text):
                parts.append(Part(text, ids, is_copied=True))
                continue
            if len(ids) <= plan.max_tokens:
                parts.append(Part(text, ids, sentences=sentences))
                continue
            pieces = split_to_fit(text, plan.max_tokens, self._source.encode)
            split_parts += len(pieces)
            parts += [Part(piece, piece_ids) for piece, piece_ids in pieces]
        return EncodedLine(line, parts, split_parts)

    def _encode_parsed(self, lines: Sequence[str], parses: Sequence[Parse | None]) -> list[EncodedLine]:
        texts = [line.strip() for line, parse in zip(lines, parses, strict=True) if parse is not None]
        encoded = iter(zip(texts, self._source.encode_with_offsets(texts), strict=True))

        def part(parse: Parse) -> Part:
            text, (ids, offsets) = next(encoded)
            return Part(text, ids, token_features(parse, offsets))

        return [
            EncodedLine(line, [] if parse is None else [part(parse)], 0)
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

    def _assemble(self, line: EncodedLine, options: TranslationOptions) -> Translation:
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

    def _copied_sentence(self, part: Part, options: TranslationOptions) -> TranslatedSentence:
        """Return a sentence without letters as its own translation."""
        tokens = self._target.ids_to_tokens(self._target.encode(part.text))
        scores = [0.0] * len(tokens) if options.token_scores else None
        copy = Alternative(part.text, tokens, 0.0, 0.0, True, scores)
        return TranslatedSentence(part.text, self._source.ids_to_tokens(part.ids), [copy])

    def _translated_sentence(self, part: Part, options: TranslationOptions) -> TranslatedSentence:
        alternatives, check = self._alternatives(part, options), self._domain_check
        best, confidence = alternatives[0], None
        if isfinite(best.log_probability) and (options.token_scores or options.search.beam > 1):
            confidence = exp(best.log_probability / max(1, len(best.tokens) + best.ended))
        flags = check.flags(part.ids, confidence)
        unknown_words = check.unknown_words(part.text) if "unknown_pieces" in flags else ()
        tokens = self._source.ids_to_tokens(part.ids)
        return TranslatedSentence(part.text, tokens, alternatives, flags, unknown_words, confidence)

    def _alternatives(self, part: Part, options: TranslationOptions) -> list[Alternative]:
        """Return the n best texts; of hypotheses with the same text, only the best.

        Spare hypotheses replace duplicates. There can be fewer than n: finding more would need a larger beam.
        """
        by_text: dict[str, Alternative] = {}
        for hypothesis in part.hypotheses:
            if len(by_text) < options.search.n_best:
                alternative = self._alternative(hypothesis, part, options)
                by_text.setdefault(alternative.text, alternative)
        return list(by_text.values())

    def _alternative(self, hypothesis: Hypothesis, part: Part, options: TranslationOptions) -> Alternative:
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
