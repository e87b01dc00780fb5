"""Scoring: a text's tokens are as probable where they are read as where they are written."""

import math

import pytest
import torch

from family import DECODERS, make
from regard.decoding import scoring
from regard.decoding.options import OutputConstraints, SamplingOptions
from regard.decoding.results import ScoredToken
from regard.decoding.sampling import Sampler
from regard.decoding.scoring import score_tokens, text_log_probabilities
from regard.models import Network
from searches import TOKENS

TEXT = [TOKENS.start, 5, 6, 7, 5, 8, 9, 4]


@pytest.mark.parametrize("name", ["decoder-only", "decoder-only, learned positions"])
@pytest.mark.parametrize("places", [1, 3, 256])
def test_tokens_and_candidates_are_the_networks(name: str, places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "LOGITS_CHUNK", places)
    network = make(DECODERS[name])
    logits = network(torch.tensor([TEXT]))[0].detach()
    logits[:, [TOKENS.pad, TOKENS.start]] = -math.inf
    wanted = logits.log_softmax(-1)
    found = score_tokens([network], TEXT, TOKENS, 3)
    assert [one.token for one in found] == TEXT[1:]
    for n, (token, score, candidates) in enumerate(found):
        assert score == pytest.approx(float(wanted[n, token]), abs=1e-5)
        best = wanted[n].topk(3)
        assert [one.token for one in candidates] == best.indices.tolist()
        assert [one.log_probability for one in candidates] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_the_shortest_text_is_a_start_and_one_token() -> None:
    network = make(DECODERS["decoder-only"])
    assert [one.token for one in score_tokens([network], TEXT[:2], TOKENS, 1)] == TEXT[1:2]
    assert score_tokens([network], TEXT[:1], TOKENS, 1) == []


def test_what_is_written_is_scored_as_when_it_is_read() -> None:
    network, prompt = make(DECODERS["decoder-only"]), TEXT[:3]
    writer = Sampler(
        [network], [prompt], [0], TOKENS, SamplingOptions(seed=1, constraints=OutputConstraints(6, 6), top_logprobs=2)
    )
    wrote = []
    while writer.active:
        wrote += [ScoredToken(*drawn[1:]) for drawn in writer.step()]
    read = score_tokens([network], [*prompt, *writer.generated(0)], TOKENS, 2)[len(prompt) - 1 :]
    assert [one.token for one in read] == [one.token for one in wrote]
    for one, other in zip(read, wrote, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
        assert [best.token for best in one.candidates] == [best.token for best in other.candidates]


def test_a_text_longer_than_the_window_is_scored_to_its_end() -> None:
    network = make(DECODERS["decoder-only"])
    found = score_tokens([network], TEXT, TOKENS, 1, window=4)
    assert [one.token for one in found] == TEXT[1:]
    whole = score_tokens([network], TEXT, TOKENS, 1)
    scores = [[one.log_probability for one in scored[:4]] for scored in (found, whole)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


@pytest.mark.parametrize("text", [[], [TOKENS.start]])
def test_a_text_of_one_token_has_nothing_to_score(text: list[int]) -> None:
    assert score_tokens([make(DECODERS["decoder-only"])], text, TOKENS, 1) == []


def test_an_ensemble_scores_by_the_mean_of_probabilities() -> None:
    networks = [make(DECODERS["decoder-only"], seed=seed) for seed in (0, 1)]
    singles = [_log_probabilities([network]) for network in networks]
    for together, first, second in zip(_log_probabilities(networks), *singles, strict=True):
        assert together == pytest.approx(math.log((math.exp(first) + math.exp(second)) / 2), abs=1e-5)
    (pairs,) = text_log_probabilities(networks, [TEXT[1:]], TOKENS)
    rows = [text_log_probabilities([network], [TEXT[1:]], TOKENS)[0] for network in networks]
    means = [math.log((math.exp(first) + math.exp(second)) / 2) for first, second in zip(*rows, strict=True)]
    assert pairs == pytest.approx(means, abs=1e-5)
    assert pairs != pytest.approx([(first + second) / 2 for first, second in zip(*rows, strict=True)], abs=1e-3)


def _log_probabilities(networks: list[Network]) -> list[float]:
    return [token.log_probability or 0.0 for token in score_tokens(networks, TEXT, TOKENS, 1)]
