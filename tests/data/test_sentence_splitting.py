"""Sentence splitting: at the ends of sentences only; long sentences; joining."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import sentence_splitting
from regard.data.sentence_splitting import (
    group_sentences,
    join_sentences,
    sentence_spans,
    split_sentences,
    split_to_fit,
    unwrap_lines,
)

SPLITS = [
    (["I love you.", "Do you love me?", "Yes!"], " "),
    (["Dr. Smith met Mr. J. R. Brown at 3.30 p.m. in St. Louis.", "They talked."], " "),
    (['"Why?" she asked.', '"Because!"', "He left."], " "),
    (["Wait… what?", "No."], " "),
    (["It cost $3.50.", "That's all (really).", "Bye."], " "),
    (["Sig. Rossi è qui.", "Dov'è la stazione?"], " "),
    (["Das ist z.B. gut, usw. und so fort.", "Ja."], " "),
    (["¿Qué tal?", "¡Muy bien!", "Adiós."], " "),
    (["你好。", "你叫什么名字？", "再见！"], ""),
    (["no capital here. still the same sentence"], " "),
    (["Nothing at all"], " "),
]


@pytest.mark.parametrize(("sentences", "between"), SPLITS)
def test_lines_are_split_into_sentences(sentences: list[str], between: str) -> None:
    assert split_sentences(between.join(sentences)) == sentences


@given(st.text(alphabet="abAB .!?…\"')(。\t", max_size=40))
def test_splitting_drops_only_spaces(line: str) -> None:
    sentences = split_sentences(line)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sentence_splitting, "_MARK", re.compile(""))  # look for ends in every line
        assert split_sentences(line) == sentences
    assert "".join("".join(sentences).split()) == "".join(line.split())
    assert all(sentence == sentence.strip() and sentence for sentence in sentences)


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 4), st.integers(1, 20))
def test_groups_of_sentences_are_consecutive_and_as_large_as_allowed(
    lengths: list[int], max_sentences: int, max_tokens: int
) -> None:
    groups = group_sentences(lengths, max_sentences, max_tokens)
    assert [n for first, last in groups for n in range(first, last)] == list(range(len(lengths)))
    sizes = [sum(lengths[first:last]) for first, last in groups]
    for n, (first, last) in enumerate(groups):
        assert last - first <= max_sentences
        assert sizes[n] <= max_tokens or last - first == 1
        if n + 1 < len(groups) and last - first < max_sentences:
            assert sizes[n] + lengths[last] > max_tokens


def test_spans_are_those_of_the_sentences() -> None:
    line = "  One two.   Three!\t"
    assert [line[start:end] for start, end in sentence_spans(line)] == split_sentences(line) == ["One two.", "Three!"]


def test_hard_wrapped_lines_are_joined_to_paragraphs() -> None:
    text = "# Title\nI love you\nvery much.\n\n\n* one\n  more\n2. two\n---\n> quote\n\n你好，\n再见。\n"
    paragraphs = list(unwrap_lines(text.split("\n")))
    assert [paragraph for _, paragraph in paragraphs] == [
        "# Title",
        "I love you very much.",
        "",
        "",
        "* one more",
        "2. two",
        "---",
        "> quote",
        "",
        "你好，再见。",
        "",
    ]
    assert sum(count for count, _ in paragraphs) == len(text.split("\n"))


def test_empty_lines_have_no_sentences() -> None:
    assert split_sentences("") == split_sentences("   \t") == []


def spell(text: str) -> list[int]:
    """Return one token for every three characters."""
    return [ord(text[n]) for n in range(0, len(text), 3)]


@given(st.text(alphabet="abc ,;.é", max_size=120), st.integers(1, 12))
def test_long_sentences_are_split_into_parts_that_fit(text: str, max_tokens: int) -> None:
    parts = split_to_fit(text, max_tokens, spell)
    assert all(len(ids) <= max_tokens and ids == spell(part) for part, ids in parts)
    assert "".join("".join(part for part, _ in parts).split()) == "".join(text.split())


def test_long_sentences_are_cut_at_the_best_mark() -> None:
    def words(text: str) -> list[int]:
        return [1] * len(text.split())

    text = "one two, three four; five six, seven eight"
    assert [part for part, _ in split_to_fit(text, 4, words)] == ["one two, three four;", "five six, seven eight"]
    assert [part for part, _ in split_to_fit("one two, three four", 3, words)] == ["one two,", "three four"]
    assert [part for part, _ in split_to_fit("a b c d", 2, words)] == ["a b", "c d"]


def test_character_of_too_many_tokens_is_truncated() -> None:
    assert split_to_fit("字", 2, lambda text: list(text.encode())) == [("字", list("字".encode())[:2])]


def test_join_sentences() -> None:
    assert join_sentences(["a.", "", "b."]) == "a. b."
    assert join_sentences(["你好。", "再见。"]) == "你好。再见。"
    assert join_sentences([]) == ""
