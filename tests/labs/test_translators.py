"""Translators of labs are trained once, by their settings; and tasks ask for what they say."""

from pathlib import Path

import torch

from regard.labs.lab import Bench
from regard.labs.tasks import echoing
from regard.labs.translators import book, trained, training_for


def test_a_translator_is_trained_once_whoever_asks_for_it(tmp_path: Path) -> None:
    said: list[str] = []
    bench = Bench("quick", tmp_path, said.append)
    settings = {"model": {"width": 8}, "training": training_for(6)}
    first = trained(bench, settings, "one")
    assert trained(bench, {**settings, "model": {"width": 8, "heads": 4}}, "the same").folder == first.folder
    assert said == ["  trained one for 6 steps"]
    assert trained(bench, {**settings, "model": {"width": 8, "heads": 2}}, "another").folder != first.folder
    assert len(said) == 2


def test_what_translators_are_tested_on_was_not_learned(tmp_path: Path) -> None:
    pairs = book(Bench("quick", tmp_path))
    assert not {pair.source for pair in pairs.train} & {pair.source for pair in pairs.test}


def test_an_echo_is_the_symbol_so_many_places_before() -> None:
    batch = next(echoing(symbols=5, back=2, length=6, batch=3, seed=1))
    assert torch.equal(batch.answers[:, 2:], batch.read[:, :-2])
    assert batch.asked.tolist() == [[False, False, True, True, True, True]] * 3
