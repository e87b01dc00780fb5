"""Sentences of a line: taken apart where one ends, never inside, and put together again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.sentence_splitting import join_sentences, split_sentences, split_to_fit

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
def test_a_line_is_split_between_its_sentences(sentences: list[str], between: str) -> None:
    assert split_sentences(between.join(sentences)) == sentences


@given(st.text(alphabet="abAB .!?…\"')(。\t", max_size=40))
def test_nothing_is_lost_in_splitting_but_spaces(line: str) -> None:
    found = split_sentences(line)
    assert "".join("".join(found).split()) == "".join(line.split())
    assert all(sentence == sentence.strip() and sentence for sentence in found)


def test_an_empty_line_has_no_sentences() -> None:
    assert split_sentences("") == split_sentences("   \t") == []


def spell(text: str) -> list[int]:
    """A token for every three characters."""
    return [ord(text[n]) for n in range(0, len(text), 3)]


@given(st.text(alphabet="abc ,;.é", max_size=120), st.integers(1, 12))
def test_long_sentences_become_parts_that_fit_and_lose_nothing(text: str, longest: int) -> None:
    parts = split_to_fit(text, longest, spell)
    assert all(len(ids) <= longest and ids == spell(part) for part, ids in parts)
    assert "".join("".join(part for part, _ in parts).split()) == "".join(text.split())


def test_long_sentences_are_cut_at_the_best_mark() -> None:
    def words(text: str) -> list[int]:
        return [1] * len(text.split())

    text = "one two, three four; five six, seven eight"
    assert [part for part, _ in split_to_fit(text, 4, words)] == ["one two, three four;", "five six, seven eight"]
    assert [part for part, _ in split_to_fit("one two, three four", 3, words)] == ["one two,", "three four"]
    assert [part for part, _ in split_to_fit("a b c d", 2, words)] == ["a b", "c d"]


def test_a_character_that_takes_more_tokens_than_there_is_room_for_is_cut_off() -> None:
    assert split_to_fit("字", 2, lambda text: list(text.encode())) == [("字", list("字".encode())[:2])]


def test_parts_are_joined_with_spaces_where_the_writing_has_them() -> None:
    assert join_sentences(["a.", "", "b."]) == "a. b."
    assert join_sentences(["你好。", "再见。"]) == "你好。再见。"
    assert join_sentences([]) == ""
