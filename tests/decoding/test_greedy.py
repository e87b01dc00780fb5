"""Greedy search: the most probable token at each step, whatever shares the batch."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings

from family import Batch, batches
from regard.decoding.engines import SearchRequest
from regard.decoding.options import GREEDY, OutputConstraints, SearchOptions
from searches import TOKENS, TRANSLATORS, engine, never_ending, sentences

LONGEST = 8  # tokens: random networks seldom end, and each step by hand takes longer than the one before


@torch.no_grad()
def by_hand(name: str, source: list[int]) -> tuple[list[int], list[float]]:
    """One sentence, the whole target decoded again at each step."""
    network = engine(name).networks[0]
    written, scores = [TOKENS.start], []
    for _ in range(LONGEST):
        logits = network(torch.tensor([[*source, TOKENS.end]]), torch.tensor([written]))[0, -1]
        logits[[TOKENS.pad, TOKENS.start, *([TOKENS.end] if len(written) == 1 else [])]] = -torch.inf
        written.append(int(logits.argmax()))
        scores.append(float(logits.log_softmax(-1).max()))
        if written[-1] == TOKENS.end:
            return written[1:-1], scores
    return written[1:], scores


@pytest.mark.parametrize("name", TRANSLATORS)
@given(batch=batches(rows=4, longest=4))
@settings(max_examples=8)
@pytest.mark.slow
def test_a_batch_gives_what_each_sentence_gives_by_hand(name: str, batch: Batch) -> None:
    search = replace(GREEDY, constraints=OutputConstraints(min_tokens=1, max_tokens=LONGEST))
    for source, (found,) in zip(
        sentences(batch), engine(name).search(SearchRequest(sentences(batch), search)), strict=True
    ):
        ids, scores = by_hand(name, source)
        assert found.ids == ids
        assert found.token_scores == pytest.approx(scores, abs=1e-5)
        assert found.log_probability == pytest.approx(sum(scores), abs=1e-4)


def test_an_output_has_at_most_fifty_tokens_more_than_its_source() -> None:
    found = never_ending().search(SearchRequest([[5, 6, 7, 8, 9], [5]], GREEDY))
    assert [(len(one.ids), one.ended) for (one,) in found] == [(56, False), (52, False)]


def test_a_greatest_length_is_kept() -> None:
    search = SearchOptions(beam=1, constraints=OutputConstraints(max_tokens=7))
    assert [len(one.ids) for (one,) in never_ending().search(SearchRequest([[5, 6], [9]], search))] == [7, 7]


def test_nothing_to_translate_is_nothing() -> None:
    assert never_ending().search(SearchRequest([], GREEDY)) == []


def test_a_beam_of_one_with_attention_is_greedy_too() -> None:
    name = TRANSLATORS[0]
    plain, watched = (
        engine(name).search(SearchRequest([[5, 6, 7], [8]], GREEDY, attention=watched)) for watched in (False, True)
    )
    assert [one.ids for (one,) in plain] == [one.ids for (one,) in watched]
    for (one,), source in zip(watched, ([5, 6, 7], [8]), strict=True):
        weights = torch.tensor(one.attention)
        assert weights.shape == (len(one.ids) + one.ended, len(source) + 1)
        torch.testing.assert_close(weights.sum(1), torch.ones(len(weights)))
