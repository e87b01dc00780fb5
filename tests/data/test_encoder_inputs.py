"""Encoder inputs: within the maximum length, truncated only if necessary, without losing words."""

from hypothesis import given
from hypothesis import strategies as st

from regard.data.encoder_inputs import InputTemplate

ids = st.lists(st.integers(10, 99), max_size=20)
words = st.lists(st.lists(st.integers(10, 99), max_size=5), max_size=12)


@given(ids, ids, st.integers(4, 30))
def test_pairs_fit_and_the_longer_text_is_truncated_first(
    first_text: list[int], second_text: list[int], max_length: int
) -> None:
    wrapped = InputTemplate(2, 3, max_length).wrap(first_text, second_text)
    assert len(wrapped.ids) <= max_length
    assert wrapped.truncated == (len(first_text) + len(second_text) + 3 > max_length)
    if wrapped.truncated:
        assert len(wrapped.ids) == max_length
    second = wrapped.ids[len(wrapped.ids) - wrapped.second_length :]
    first = wrapped.ids[: len(wrapped.ids) - wrapped.second_length]
    assert (first[0], first[-1], second[-1]) == (2, 3, 3)
    kept, of_other = first[1:-1], second[:-1]
    assert first_text[: len(kept)] == kept
    assert second_text[: len(of_other)] == of_other
    if len(kept) < len(first_text):
        assert len(kept) >= len(of_other) - 1
    if len(of_other) < len(second_text):
        assert len(of_other) >= len(kept) - 1


@given(words, st.integers(4, 12))
def test_long_sentences_are_split_between_words(sentence: list[list[int]], max_length: int) -> None:
    rows = list(InputTemplate(2, 3, max_length).wrap_words(sentence, unknown=1))
    assert all(len(row) <= max_length and (row[0], row[-1]) == (2, 3) for row, _ in rows)
    firsts = [row[place] for row, places in rows for place in places]
    assert firsts == [pieces[0] if pieces else 1 for pieces in sentence]
    text = [number for row, _ in rows for number in row[1:-1]]
    assert text == [number for pieces in sentence for number in (pieces[: max_length - 2] or [1])]
