"""Beam search: exact where it can be checked by enumeration, and the same whatever shares the batch."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from family import DECODERS, Batch, batches, make
from regard.config import Config, EncoderDecoderConfig
from regard.decoding.engines import SearchRequest
from regard.decoding.engines.pytorch import TorchEngine
from regard.decoding.options import OutputConstraints, SearchOptions
from regard.decoding.results import Hypothesis
from regard.errors import ConfigError
from regard.models import Network
from searches import TOKENS, TRANSLATORS, engine, never_ending, sentences

TINY = EncoderDecoderConfig(vocab_size=7, width=8, layers=1, heads=2, feed_forward=8)
WORDS = [1, 4, 5, 6]  # what may be written besides the end
LONGEST = 5


def forced(network: Network, source: list[int], target: list[int]) -> list[float]:
    """The log-probability of each token of a target and of its end, where pads and starts cannot be."""
    memory = network.encode(torch.tensor([[*source, TOKENS.end]]))
    logits = network.logits(network.decode(torch.tensor([[TOKENS.start, *target]]), memory))[0].detach()
    logits[:, [TOKENS.pad, TOKENS.start]] = -math.inf
    found: list[float] = logits.log_softmax(-1)[range(len(target) + 1), [*target, TOKENS.end]].tolist()
    return found


def every_sequence(tiny: TorchEngine, source: list[int], search: SearchOptions) -> list[tuple[float, list[int]]]:
    """All that can be written in at most LONGEST tokens, the end included, the best first."""
    targets = [list(words) for size in range(LONGEST) for words in product(WORDS, repeat=size)]
    scores = [sum(forced(tiny.networks[0], source, target)) for target in targets]
    found = [(search.score(score, len(ids) + 1), ids) for score, ids in zip(scores, targets, strict=True)]
    return sorted(found, key=lambda one: -one[0])


@settings(max_examples=6)
@given(seed=st.integers(0, 1000), alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]))
@pytest.mark.slow
def test_a_wide_beam_finds_the_truly_best_sequences(seed: int, alpha: float) -> None:
    tiny = TorchEngine([make(TINY, seed)], Config(model=TINY))
    search = SearchOptions(beam=400, length_penalty=alpha, n_best=5, constraints=OutputConstraints(max_tokens=LONGEST))
    (found,) = tiny.search(SearchRequest([[4, 5]], search))
    wanted = every_sequence(tiny, [4, 5], search)[:5]
    assert [one.ids for one in found] == [ids for _, ids in wanted]
    assert [one.score for one in found] == pytest.approx([score for score, _ in wanted], abs=1e-4)


@pytest.mark.slow
@settings(max_examples=20)
@given(seed=st.integers(0, 1000), width=st.integers(2, 6))
def test_stopping_early_never_changes_what_is_found(seed: int, width: int) -> None:
    """The search stops when nothing open can win; one that goes on to the greatest length finds the same."""
    tiny = TorchEngine([make(TINY, seed)], Config(model=TINY))
    sources = [[4, 5], [6], [5, 5, 4]]
    exact = SearchOptions(beam=width, constraints=OutputConstraints(max_tokens=12))
    patient = SearchOptions(beam=width, patience=1000.0, constraints=OutputConstraints(max_tokens=12))
    stopped, gone_on = (tiny.search(SearchRequest(sources, search)) for search in (exact, patient))
    assert [one.ids for (one,) in stopped] == [one.ids for (one,) in gone_on]


def test_patience_ends_a_search_after_so_many_hypotheses() -> None:
    reads = []
    tiny = TorchEngine([make(TINY)], Config(model=TINY))
    for patience in (1.0, 3.0):
        steps = []
        hook = tiny.networks[0].output.register_forward_hook(lambda *_: steps.append(1))  # type: ignore[union-attr]  # noqa: B023
        tiny.search(
            SearchRequest(
                [[4, 5]], SearchOptions(beam=3, patience=patience, constraints=OutputConstraints(max_tokens=40))
            )
        )
        hook.remove()
        reads.append(len(steps))
    assert reads[0] < reads[1]


@pytest.mark.parametrize("name", TRANSLATORS)
@settings(max_examples=10)
@given(batch=batches(rows=4, longest=4))
@pytest.mark.slow
def test_a_batch_finds_what_each_sentence_finds_alone(name: str, batch: Batch) -> None:
    search = SearchOptions(n_best=3, constraints=OutputConstraints(max_tokens=12))
    together = engine(name).search(SearchRequest(sentences(batch), search))
    for source, found in zip(sentences(batch), together, strict=True):
        (alone,) = engine(name).search(SearchRequest([source], search))
        assert [one.ids for one in found] == [one.ids for one in alone]
        assert [one.score for one in found] == pytest.approx([one.score for one in alone], abs=1e-5)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_scores_are_those_of_teacher_forcing(name: str) -> None:
    sources = [[5, 6, 7], [8], [9, 9, 4, 10]]
    found = engine(name).search(
        SearchRequest(sources, SearchOptions(n_best=4, constraints=OutputConstraints(max_tokens=9)))
    )
    for source, hypotheses in zip(sources, found, strict=True):
        for one in hypotheses:
            assert one.token_scores is not None
            assert len(one.token_scores) == len(one.ids) + one.ended
            wanted = forced(engine(name).networks[0], source, one.ids)[: len(one.token_scores)]
            assert one.token_scores == pytest.approx(wanted, abs=1e-5)
            assert sum(one.token_scores) == pytest.approx(one.log_probability, abs=1e-4)
            assert one.score == pytest.approx(one.log_probability / ((5 + len(one.token_scores)) / 6) ** 0.6, abs=1e-5)


def test_the_n_best_are_different_and_in_order() -> None:
    (found,) = engine(TRANSLATORS[0]).search(
        SearchRequest([[5, 6, 7]], SearchOptions(beam=6, n_best=6, constraints=OutputConstraints(max_tokens=9)))
    )
    assert len({tuple(one.ids) for one in found}) == 6
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_a_search_without_end_gives_what_it_has() -> None:
    found = never_ending().search(
        SearchRequest([[5, 6], [7]], SearchOptions(constraints=OutputConstraints(max_tokens=6)))
    )
    assert [(len(one.ids), one.ended) for (one,) in found] == [(6, False), (6, False)]


def test_coverage_prefers_hypotheses_that_looked_at_everything() -> None:
    plain, covered = (
        engine(TRANSLATORS[0]).search(
            SearchRequest(
                [[5, 6, 7]],
                SearchOptions(coverage_penalty=beta, n_best=4, constraints=OutputConstraints(max_tokens=9)),
                attention=True,
            )
        )[0]
        for beta in (0.0, 5.0)
    )
    by_ids = {tuple(one.ids): one for one in plain}
    for one in covered:
        weights = torch.tensor(one.attention)
        penalty = 5.0 * float(weights.sum(0).clamp(max=1.0).log().sum())
        assert one.score == pytest.approx(
            SearchOptions().score(one.log_probability, len(one.ids) + one.ended) + penalty, abs=1e-4
        )
        if tuple(one.ids) in by_ids:
            assert one.score <= by_ids[tuple(one.ids)].score


def test_attention_belongs_to_its_own_hypothesis() -> None:
    network = engine(TRANSLATORS[0])
    (found,) = network.search(
        SearchRequest([[5, 6, 7]], SearchOptions(n_best=3, constraints=OutputConstraints(max_tokens=9)), attention=True)
    )
    for one in found:
        (alone,) = network.search(SearchRequest([[5, 6, 7]], SearchOptions(beam=1), prefixes=[one.ids], attention=True))
        torch.testing.assert_close(
            torch.tensor(one.attention)[: len(one.ids)], torch.tensor(alone[0].attention)[: len(one.ids)]
        )


class TestConstraints:
    """What must be written, and what must not."""

    def best(self, search: SearchOptions, prefixes: list[list[int]] | None = None, seed: int = 0) -> list[Hypothesis]:
        found = engine(TRANSLATORS[0], seed).search(SearchRequest([[5, 6, 7], [8]], search, prefixes))
        return [one for (one,) in found]

    @pytest.mark.parametrize("width", [1, 4])
    def test_a_prefix_is_how_it_begins_and_costs_nothing(self, width: int) -> None:
        found = self.best(SearchOptions(beam=width, constraints=OutputConstraints(max_tokens=9)), [[9, 8, 7], []])
        free = self.best(SearchOptions(beam=width, constraints=OutputConstraints(max_tokens=9)))
        assert found[0].ids[:3] == [9, 8, 7]
        assert found[0].token_scores is not None
        assert found[0].token_scores[:3] == [0.0, 0.0, 0.0]
        assert found[1].ids == free[1].ids

    @pytest.mark.parametrize("width", [1, 4])
    def test_what_is_forbidden_is_not_written(self, width: int) -> None:
        free = self.best(SearchOptions(beam=width, constraints=OutputConstraints(max_tokens=12)))
        pair = tuple(free[0].ids[1:3])
        assert len(pair) == 2
        found = self.best(
            SearchOptions(
                beam=width, constraints=OutputConstraints(max_tokens=12, suppressed_sequences=(pair, (free[0].ids[0],)))
            )
        )
        for one in found:
            assert free[0].ids[0] not in one.ids
            assert pair not in zip(one.ids, one.ids[1:], strict=False)

    @pytest.mark.parametrize("width", [1, 4])
    def test_the_least_length_is_kept(self, width: int) -> None:
        found = self.best(SearchOptions(beam=width, constraints=OutputConstraints(min_tokens=9, max_tokens=14)))
        assert all(len(one.ids) >= 9 for one in found)


def test_several_networks_vote_with_their_mean_probability() -> None:
    name = TRANSLATORS[0]
    networks = [make(DECODERS[name], seed) for seed in (0, 1)]
    config = Config(model=DECODERS[name])
    (one,) = TorchEngine(networks, config).search(SearchRequest([[5, 6]], SearchOptions(beam=1)))[0]
    source, target = torch.tensor([[5, 6, TOKENS.end]]), torch.tensor([[TOKENS.start, *one.ids]])
    mean = torch.stack([network(source, target)[0].softmax(-1) for network in networks]).mean(0).detach()
    mean[:, [TOKENS.pad, TOKENS.start]] = 0.0
    assert mean.argmax(-1).tolist()[: len(one.ids)] == one.ids
    twice = TorchEngine([networks[0]] * 2, config).search(SearchRequest([[5, 6]]))[0][0]
    assert twice.ids == TorchEngine(networks[:1], config).search(SearchRequest([[5, 6]]))[0][0].ids


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"beam": 0}, "beam is 0; it should be 1 (greedy) to 1,000."),
        ({"n_best": 5}, "n_best is 5, but a beam of 4 gives at most 4; raise it."),
        ({"n_best": 0}, "n_best is 0; it should be 1 or more."),
        ({"length_penalty": -1.0}, "length_penalty is -1.0; it should be 0 to 10."),
        ({"coverage_penalty": -1.0}, "coverage_penalty is -1.0; it should be 0 to 100."),
        ({"patience": 0.0}, "patience is 0.0; it should be greater than 0."),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        SearchOptions(**wrong)
    assert str(error.value) == sentence


def test_lengths_that_make_no_sense_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"min_tokens": -1}, "min_tokens is -1; it should be 0 or more."),
        ({"max_tokens": 0}, "max_tokens is 0, which is less than 1; raise it."),
        ({"min_tokens": 5, "max_tokens": 3}, "max_tokens is 3, which is less than min_tokens, 5; raise it."),
    ]
    for wrong, sentence in cases:
        with pytest.raises(ConfigError) as error:
            OutputConstraints(**wrong)
        assert str(error.value) == sentence
