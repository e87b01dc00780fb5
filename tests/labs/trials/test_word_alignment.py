"""Attention merged from tokens to words, and held against a true alignment."""

import pytest
import torch

from regard.labs.alignment import diagonal, error_rate, links, merged, one_each
from regard.labs.trials.translators import toy_pairs
from regard.phrasebook import Pair, split_words


def test_weights_are_summed_over_a_source_word_and_averaged_over_a_target_word() -> None:
    weights = torch.tensor([[0.2, 0.3, 0.5, 0.0], [0.0, 0.0, 0.6, 0.4], [0.1, 0.1, 0.1, 0.7]])  # the last are ends
    words = merged(weights, target=[0, 0], source=[0, 0, 1])
    assert torch.allclose(words, torch.tensor([[0.25, 0.55]]))


def test_a_target_word_is_linked_to_the_source_word_with_the_most_weight() -> None:
    assert links(torch.tensor([[0.1, 0.9], [0.8, 0.2]])) == {(1, 0), (0, 1)}


def test_the_true_alignment_has_no_error_and_another_has() -> None:
    true = {(0, 1), (1, 1), (2, 0)}
    assert error_rate([true], [true]) == 0
    assert error_rate([{(2, 1)}], [true]) == 1
    assert error_rate([one_each(true)], [true]) == pytest.approx(1 - 4 / 5)


def test_the_diagonal_reaches_from_the_first_word_to_the_last() -> None:
    assert diagonal(Pair("a b c", "x y z", ())) == {(0, 0), (1, 1), (2, 2)}
    assert diagonal(Pair("a b c", "x", ())) == {(0, 0)}


def test_a_handful_of_sentences_is_aligned_word_for_word() -> None:
    pairs = toy_pairs()
    assert len({pair.source for pair in pairs}) == len(pairs)
    for pair in pairs[:50]:
        source, target = len(split_words(pair.source)), len(split_words(pair.target))
        assert {i for i, _ in pair.alignment} == set(range(source))
        assert {j for _, j in pair.alignment} == set(range(target))
