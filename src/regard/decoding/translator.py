"""From text to text: split, tokenise, search, and put together again. Knows no torch: that is the engine's business."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from regard.config import Config, NetworkConfig
from regard.data.sentence_splitting import join_sentences, split_sentences, split_to_fit
from regard.data.syntax import Parse, TokenFeatures, token_features
from regard.data.tokenizer import Tokenizer
from regard.decoding.engines.engine import Engine, SearchRequest
from regard.decoding.options import SearchOptions, TranslationOptions
from regard.decoding.results import Alternative, Hypothesis, TranslatedSentence, Translation
from regard.errors import ConfigError


def check_parses(model: NetworkConfig, *, given: bool) -> None:
    """Complain where a network reads parses and none are given, or the other way round."""
    if model.needs_parses and not given:
        raise ConfigError(
            "the model has syntax positions and reads a parse with every sentence; "
            "give them as CoNLL-U with --parses (in Python, parses=…)."
        )
    if given and not model.needs_parses:
        raise ConfigError("the model has no syntax positions and reads no parses; leave --parses out.")


class Translator:
    """Translates lines with an engine, and the tokenizers of both languages, which may be the same."""

    def __init__(self, engine: Engine, config: Config, source: Tokenizer, target: Tokenizer) -> None:
        self.engine = engine
        self.config = config
        self._source = source
        self._target = target

    def translate(
        self, lines: Sequence[str], wish: TranslationOptions, parses: Sequence[Parse | None] | None = None
    ) -> list[Translation]:
        """The translations of lines, one for one; of an empty line, nothing.

        A network that reads parses is given one for each line, which is then translated whole: a tree cannot be taken
        apart at a comma. A line without one, because it is empty or was skipped, has no translation.
        """
        check_parses(self.config.model, given=parses is not None)
        plans = self._plans(lines, wish) if parses is None else self._parsed_plans(lines, parses)
        parts = [part for plan in plans for part in plan.parts]
        search = self._search(wish)
        task = SearchRequest(
            [part.ids for part in parts],
            search,
            self._prefixes(plans, wish),
            wish.scored,
            (wish.watched and self.config.model.has_alignment) or wish.copy_unknown,
            self._target.token_strings() if search.bounds.words else (),
            [part.facts for part in parts if part.facts is not None],
        )
        found = iter(self.engine.search(task))
        return [self._assemble(plan, found, wish) for plan in plans]

    def _plans(self, lines: Sequence[str], wish: TranslationOptions) -> "list[_Plan]":
        """Each line's sentences, all of them tokenised at once."""
        split = [split_sentences(line) if wish.split else [line.strip()] if line.strip() else [] for line in lines]
        ids = iter(self._source.encode_batch([sentence for sentences in split for sentence in sentences]))
        return [self._plan(line, sentences, ids, wish) for line, sentences in zip(lines, split, strict=True)]

    def _plan(self, line: str, sentences: list[str], encoded: Iterator[list[int]], wish: TranslationOptions) -> "_Plan":
        longest = min(wish.longest, (self.config.model.max_length or wish.longest + 1) - 1)
        parts, pieces = list[_Part](), 0
        for sentence in sentences:
            ids = next(encoded)
            if len(ids) <= longest:
                parts.append(_Part(sentence, ids))
                continue
            several = split_to_fit(sentence, longest, self._source.encode)
            pieces += len(several)
            parts += [_Part(piece, ids) for piece, ids in several]
        return _Plan(line, parts, pieces)

    def _parsed_plans(self, lines: Sequence[str], parses: Sequence[Parse | None]) -> "list[_Plan]":
        texts = [line.strip() for line, parse in zip(lines, parses, strict=True) if parse is not None]
        encoded = iter(zip(texts, self._source.encode_with_offsets(texts), strict=True))

        def part(parse: Parse) -> _Part:
            text, (ids, offsets) = next(encoded)
            return _Part(text, ids, token_features(parse, offsets))

        return [
            _Plan(line, [] if parse is None else [part(parse)], 0) for line, parse in zip(lines, parses, strict=True)
        ]

    def _search(self, wish: TranslationOptions) -> SearchOptions:
        """What the engine is asked for; of several hypotheses some may turn out to be the same text."""
        bounds = wish.search.bounds
        spare = wish.search.width if wish.search.hypotheses > 1 else 0
        return replace(wish.search, bounds=replace(bounds, words=(*bounds.words, *wish.forbidden)), spare=spare)

    def _prefixes(self, plans: "Sequence[_Plan]", wish: TranslationOptions) -> list[list[int]] | None:
        """A prefix is that of a line, and so of its first part."""
        if not wish.prefix:
            return None
        prefix = self._target.encode(wish.prefix)
        return [prefix if n == 0 else [] for plan in plans for n in range(len(plan.parts))]

    def _assemble(self, plan: "_Plan", found: Iterator[list[Hypothesis]], wish: TranslationOptions) -> Translation:
        sentences = [
            TranslatedSentence(
                part.text,
                self._source.ids_to_tokens(part.ids),
                self._alternatives(hypotheses, part, wish),
            )
            for part, hypotheses in zip(plan.parts, found, strict=False)
        ]
        text = join_sentences([sentence.alternatives[0].text for sentence in sentences])
        return Translation(plan.line, text, sentences, plan.pieces)

    def _alternatives(self, found: Sequence[Hypothesis], part: "_Part", wish: TranslationOptions) -> list[Alternative]:
        """As many as were asked for, the best first; of those that are the same text in other tokens, only the best.

        Spare hypotheses fill up. Where there are too few of them there are fewer alternatives: to find more, the search
        would have to be wider.
        """
        different: dict[str, Alternative] = {}
        for hypothesis in found:
            if len(different) < wish.search.hypotheses:
                one = self._alternative(hypothesis, part, wish)
                different.setdefault(one.text, one)
        return list(different.values())

    def _alternative(self, found: Hypothesis, part: "_Part", wish: TranslationOptions) -> Alternative:
        tokens = self._target.ids_to_tokens(found.ids)
        unknown = self.config.tokens.unknown
        if wish.copy_unknown and found.attention is not None and unknown in found.ids:
            words = self._source.token_texts(part.text)
            tokens = [
                words[max(range(len(words)), key=row.__getitem__)] if number == unknown and words else token
                for number, token, row in zip(found.ids, tokens, found.attention, strict=False)
            ]
            text = self._target.decode_tokens(tokens)
        else:
            text = self._target.decode(found.ids)
        return Alternative(
            text,
            tokens,
            found.score,
            found.log_probability,
            found.ended,
            found.token_scores,
            [row[: len(part.ids)] for row in found.attention] if wish.watched and found.attention is not None else None,
        )


@dataclass(frozen=True)
class _Part:
    text: str
    ids: list[int]
    facts: TokenFeatures | None = None  # where there is a parse


@dataclass(frozen=True)
class _Plan:
    line: str
    parts: list[_Part]
    pieces: int
