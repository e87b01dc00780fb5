"""Texts in their frame: nothing is too long, nothing is cut that need not be, and no word is lost."""

from hypothesis import given
from hypothesis import strategies as st

from regard.data.encoder_inputs import InputTemplate

ids = st.lists(st.integers(10, 99), max_size=20)
words = st.lists(st.lists(st.integers(10, 99), max_size=5), max_size=12)


@given(ids, ids, st.integers(4, 30))
def test_a_pair_fits_and_only_the_longer_text_is_cut_as_long_as_it_is_longer(
    one: list[int], other: list[int], longest: int
) -> None:
    framed = InputTemplate(2, 3, longest).wrap(one, other)
    assert len(framed.ids) <= longest
    assert framed.truncated == (len(one) + len(other) + 3 > longest)
    if framed.truncated:
        assert len(framed.ids) == longest
    second = framed.ids[len(framed.ids) - framed.second_length :]
    first = framed.ids[: len(framed.ids) - framed.second_length]
    assert (first[0], first[-1], second[-1]) == (2, 3, 3)
    kept, of_other = first[1:-1], second[:-1]
    assert one[: len(kept)] == kept
    assert other[: len(of_other)] == of_other
    if len(kept) < len(one):
        assert len(kept) >= len(of_other) - 1
    if len(of_other) < len(other):
        assert len(of_other) >= len(kept) - 1


@given(words, st.integers(4, 12))
def test_a_divided_sentence_has_every_word_once_and_no_row_that_is_too_long(
    sentence: list[list[int]], longest: int
) -> None:
    rows = list(InputTemplate(2, 3, longest).wrap_words(sentence, unknown=1))
    assert all(len(row) <= longest and (row[0], row[-1]) == (2, 3) for row, _ in rows)
    firsts = [row[place] for row, places in rows for place in places]
    assert firsts == [pieces[0] if pieces else 1 for pieces in sentence]
    text = [number for row, _ in rows for number in row[1:-1]]
    assert text == [number for pieces in sentence for number in (pieces[: longest - 2] or [1])]
