"""Attention is merged from tokens to words and compared with a gold alignment."""

import pytest
import torch

from regard.labs.alignment import alignment_error_rate, attention_links, diagonal, merge_tokens, one_link_per_word
from regard.labs.translators import toy_pairs
from regard.phrasebook import AlignedPair, words_and_punctuation


def test_weights_are_summed_over_source_tokens_and_averaged_over_target_tokens() -> None:
    weights = torch.tensor([[0.2, 0.3, 0.5, 0.0], [0.0, 0.0, 0.6, 0.4], [0.1, 0.1, 0.1, 0.7]])  # with end tokens
    words = merge_tokens(weights, target=[0, 0], source=[0, 0, 1])
    assert torch.allclose(words, torch.tensor([[0.25, 0.55]]))


def test_target_word_is_linked_to_the_source_word_with_the_largest_weight() -> None:
    assert attention_links(torch.tensor([[0.1, 0.9], [0.8, 0.2]])) == {(1, 0), (0, 1)}


def test_gold_alignment_has_error_rate_zero() -> None:
    gold = {(0, 1), (1, 1), (2, 0)}
    assert alignment_error_rate([gold], [gold]) == 0
    assert alignment_error_rate([{(2, 1)}], [gold]) == 1
    assert alignment_error_rate([one_link_per_word(gold)], [gold]) == pytest.approx(1 - 4 / 5)


def test_diagonal_alignment_goes_from_the_first_word_to_the_last() -> None:
    assert diagonal(AlignedPair("a b c", "x y z", ())) == {(0, 0), (1, 1), (2, 2)}
    assert diagonal(AlignedPair("a b c", "x", ())) == {(0, 0)}


def test_toy_pairs_are_distinct_and_every_word_is_aligned() -> None:
    pairs = toy_pairs()
    assert len({pair.source for pair in pairs}) == len(pairs)
    for pair in pairs[:50]:
        source, target = len(words_and_punctuation(pair.source)), len(words_and_punctuation(pair.target))
        assert {i for i, _ in pair.alignment} == set(range(source))
        assert {j for _, j in pair.alignment} == set(range(target))
