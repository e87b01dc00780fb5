"""Translation of texts, with an engine that only records its requests."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from regard.config import (
    Config,
    DecodingConfig,
    EncoderDecoderConfig,
    LearnedPositionsConfig,
    SyntaxPositionsConfig,
    TokenizerConfig,
)
from regard.data.syntax import ParsedWord, TreePosition
from regard.data.tokenizer import Tokenizer, train_tokenizer
from regard.decoding.engines import SearchRequest, max_target_lengths
from regard.decoding.options import OutputConstraints, SearchOptions, TranslationOptions
from regard.decoding.results import Hypothesis
from regard.decoding.translator import Translator
from regard.errors import ConfigError, InputError

TEXTS = ["one two three.", "four five, six!", "seven eight nine?", "One, Two; Three"]
CONFIG = Config(model=EncoderDecoderConfig(vocab_size=400))


class Echo:
    """An engine whose translation of a sentence is the sentence; the next best lacks its first token, and so on."""

    name = "echo"

    def __init__(self) -> None:
        self.tasks: list[SearchRequest] = []

    def best_ids(self, task: SearchRequest) -> list[list[int]]:
        return [hypotheses[0].ids for hypotheses in self.search(task)]

    def search(self, task: SearchRequest) -> list[list[Hypothesis]]:
        self.tasks.append(task)
        ranks = range(task.search.n_best)
        return [[self._found(list(source)[rank:], rank) for rank in ranks] for source in task.sources]

    def _found(self, ids: list[int], rank: int) -> Hypothesis:
        size = len(ids)
        attention = [[1.0 if s == size - 1 - t else 0.0 for s in range(size + 1)] for t in range(size)]
        return Hypothesis(ids, -rank, -rank, True, [-0.5] * (size + 1), attention)


class Spelled(Echo):
    """An engine that finds one text in several ways to cut it into tokens, and then others."""

    def __init__(self, ways: list[list[int]]) -> None:
        super().__init__()
        self.ways = ways

    def search(self, task: SearchRequest) -> list[list[Hypothesis]]:
        self.tasks.append(task)
        found = [Hypothesis(ids, -rank, -rank) for rank, ids in enumerate(self.ways)]
        return [found[: task.search.n_best + task.search.extra_hypotheses] for _ in task.sources]


def tokenizer(kind: str = "bpe", texts: Sequence[str] = TEXTS, *, byte_fallback: bool = True) -> Tokenizer:
    return train_tokenizer(texts, TokenizerConfig(kind=kind, byte_fallback=byte_fallback), 400)  # type: ignore[arg-type]


def translator(config: Config = CONFIG, kind: str = "bpe") -> tuple[Translator, Echo]:
    engine, both = Echo(), tokenizer(kind)
    return Translator(engine, config, both, both), engine


def test_lines_come_back_one_for_one_and_empty_ones_empty() -> None:
    ready, engine = translator()
    lines = ["one two.", "", "   ", "Three! Four? Five.", "six"]
    assert [found.text for found in ready.translate(lines, TranslationOptions())] == [
        "one two.",
        "",
        "",
        "Three! Four? Five.",
        "six",
    ]
    assert len(engine.tasks[0].sources) == 5  # each sentence by itself
    assert [found.text for found in ready.translate([], TranslationOptions())] == []


@pytest.mark.parametrize("split", [None, True, False])
def test_texts_without_details_are_the_same(split: bool | None) -> None:
    ready, _ = translator()
    lines = ["one two. Three!", "", "  ", "  --- ", "four 5.\n\n6", "one. --- two.", "six seven eight nine ten, " * 9]
    options = TranslationOptions(split_sentences=split, max_source_tokens=20)
    full, short = ready.translate(lines, options), ready.translate(lines, replace(options, details=False))
    assert [(line.source, line.text, line.parts) for line in full] == [(t.source, t.text, t.parts) for t in short]
    assert not any(line.sentences for line in short)
    alone = [ready.translate([line], replace(options, details=False))[0] for line in lines]
    assert alone == short


def test_a_translator_takes_other_options_with_each_call() -> None:
    ready, engine = translator()
    one, two = TranslationOptions(SearchOptions(2), details=False), TranslationOptions(SearchOptions(3), details=False)
    for options in (one, one, two, one):
        ready.translate(["one two."], options)
    assert [task.search.beam for task in engine.tasks] == [2, 2, 3, 2]
    with pytest.raises(ConfigError, match="the model has no syntax positions and uses no parses"):
        ready.translate(["one two."], one, [None])


def test_sentences_without_letters_are_copied() -> None:
    ready, engine = translator()
    lines = ["---", " 00:00:01,000 --> 00:00:04,000", ".", "|---|:-:|", "two 3.", "4. one two."]
    found = ready.translate(lines, TranslationOptions(token_scores=True))
    assert [line.text for line in found] == lines
    assert len(engine.tasks[0].sources) == 2
    (copied,) = found[0].sentences
    assert [alternative.text for alternative in copied.alternatives] == ["---"]
    ready.translate(lines, TranslationOptions(prefix="six"))
    assert engine.tasks[1].prefixes is not None
    assert len(engine.tasks[1].prefixes) == 2
    ready.translate(["---", "."], TranslationOptions(copy_symbols=False))
    assert len(engine.tasks[2].sources) == 2


def test_the_lines_of_a_text_are_kept() -> None:
    ready, engine = translator()
    text = "one two. Three!\n\n---\n   \nfour five\n"
    (found, other) = ready.translate([text, "six"], TranslationOptions())
    assert (found.source, found.text) == (text, "one two. Three!\n\n---\n\nfour five\n")
    assert [sentence.source for sentence in found.sentences] == ["one two.", "Three!", "---", "four five"]
    assert other.text == "six"
    assert len(engine.tasks) == 1  # one batch
    (joined,) = ready.translate(["one\ntwo"], TranslationOptions(split_sentences=False))
    assert "\n" not in joined.sentences[0].alternatives[0].tokens


def test_a_text_that_was_found_in_two_ways_is_listed_once_with_its_better_score() -> None:
    both = tokenizer()
    whole, apart = both.encode("one two"), both.encode("o") + both.encode_continuation("ne two")
    assert both.decode(whole) == both.decode(apart)
    assert whole != apart
    engine = Spelled([whole, apart, both.encode("three"), both.encode("four")])
    ready = Translator(engine, CONFIG, both, both)
    (found,) = ready.translate(["one"], TranslationOptions(SearchOptions(n_best=3)))
    assert [one.text for one in found.sentences[0].alternatives] == ["one two", "three", "four"]
    assert [one.score for one in found.sentences[0].alternatives] == [0, -2, -3]
    engine.ways = [whole, apart]
    (found,) = ready.translate(["one"], TranslationOptions(SearchOptions(n_best=3)))
    assert [one.score for one in found.sentences[0].alternatives] == [0]  # there are no others
    ready.translate(["one"], TranslationOptions())
    assert [task.search.extra_hypotheses for task in engine.tasks] == [4, 4, 0]  # one needs no others


def test_a_line_stays_whole_where_that_is_asked() -> None:
    ready, engine = translator()
    ready.translate(["Three! Four? Five."], TranslationOptions(split_sentences=False))
    assert len(engine.tasks[0].sources) == 1


def test_sentences_that_are_too_long_are_translated_in_parts_and_counted() -> None:
    ready, engine = translator()
    line = "one two three, four five six; seven eight nine one two three"
    (found,) = ready.translate([line], TranslationOptions(max_source_tokens=12))
    assert found.text == line
    assert found.parts == len(engine.tasks[0].sources) > 1
    assert all(len(ids) <= 12 for ids in engine.tasks[0].sources)


def test_learned_positions_bound_the_parts_too() -> None:
    config = Config(model=EncoderDecoderConfig(vocab_size=400, positions=LearnedPositionsConfig(max_length=10)))
    ready, engine = translator(config)
    (found,) = ready.translate(["one two three four five six seven"], TranslationOptions())
    assert found.text == "one two three four five six seven"
    assert all(len(ids) <= 9 for ids in engine.tasks[0].sources)


def test_a_prefix_is_that_of_a_line_and_not_of_each_sentence() -> None:
    ready, engine = translator()
    ready.translate(["Three! Four?", "", "five"], TranslationOptions(prefix="six"))
    six = tokenizer().encode("six")
    assert engine.tasks[0].prefixes == [six, [], six]


def test_forbidden_words_reach_the_engine_with_the_spelling_of_every_token() -> None:
    ready, engine = translator()
    ready.translate(["one"], TranslationOptions(suppress=("seven",)))
    (task,) = engine.tasks
    assert task.search.constraints.suppressed_words == ("seven",)
    ids = tokenizer().encode("one two.")
    assert "".join(task.token_texts[number] for number in ids) == " one two."


def test_alternatives_have_tokens_and_scores() -> None:
    ready, _ = translator()
    (found,) = ready.translate(
        ["one two."], TranslationOptions(SearchOptions(n_best=2), token_scores=True, attention=True)
    )
    (sentence,) = found.sentences
    best, second = sentence.alternatives
    assert (best.text, best.tokens, best.score, second.score) == ("one two.", sentence.tokens, 0, -1)
    assert best.token_scores == [-0.5] * (len(best.tokens) + 1)
    assert best.attention is not None
    assert {len(row) for row in best.attention} == {len(sentence.tokens)}


def test_unknown_words_are_copied_from_where_attention_looked() -> None:
    both = tokenizer("word", byte_fallback=False)
    engine = Echo()
    ready = Translator(engine, CONFIG, both, both)
    line = "Rossi one two Bianchi"  # the echo looks at the words from last to first
    assert ready.translate([line], TranslationOptions())[0].text == "one two"
    (found,) = ready.translate([line], replace(TranslationOptions(), copy_unknown=True))
    assert found.text == "Bianchi one two Rossi"


def test_limits_are_fifty_more_than_the_source_or_what_is_asked_or_learned() -> None:
    task = SearchRequest([[5] * 4, [5]])
    assert max_target_lengths(task, CONFIG) == [55, 52]
    assert max_target_lengths(
        replace(task, search=SearchOptions(constraints=OutputConstraints(max_tokens=7))), CONFIG
    ) == [
        7,
        7,
    ]
    longer = CONFIG.model_copy(update={"decoding": DecodingConfig(extra_tokens=7)})
    assert max_target_lengths(task, longer) == [12, 9]
    short = Config(model=EncoderDecoderConfig(vocab_size=400, positions=LearnedPositionsConfig(max_length=10)))
    assert max_target_lengths(task, short) == [10, 10]
    with pytest.raises(InputError) as error:
        max_target_lengths(SearchRequest([[5] * 10]), short)
    assert str(error.value) == (
        "The sentence has 11 tokens with its end token, but this network has 10 learned positions; "
        "split it, or train with more positions."
    )


def test_lines_without_a_parse_have_an_empty_translation_and_the_others_their_own_features() -> None:
    config = Config(model=EncoderDecoderConfig(vocab_size=400, positions=SyntaxPositionsConfig()))
    parses = [(ParsedWord(3, TreePosition(depth, 0, 1)),) for depth in (4, 5)]
    translate, engine = translator(config)
    found = translate.translate(["one", "", "two"], TranslationOptions(), [parses[0], None, parses[1]])
    assert [translation.text for translation in found] == ["one", "", "two"]
    (request,) = engine.tasks
    assert [set(features["depth"]) for features in request.features] == [{4}, {5}]
