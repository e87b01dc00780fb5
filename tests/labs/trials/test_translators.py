"""Translators of labs are trained once, by their settings; and tasks ask for what they say."""

from pathlib import Path

import pytest
import torch

from regard.labs.lab import Bench
from regard.labs.trials import translators
from regard.labs.trials.tasks import echoing
from regard.labs.trials.translators import book, compared, trained, training_for


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


def test_a_translator_is_trained_again_when_there_is_something_else_to_learn(tmp_path: Path) -> None:
    bench = Bench("quick", tmp_path)
    settings = {"model": {"width": 8}, "training": training_for(2)}
    whole, few = book(bench), book(bench, first=60)
    assert whole.digest != few.digest
    assert len(few.train) == 60
    assert trained(bench, settings, "one").folder != trained(bench, settings, "another", few).folder


def test_pairs_that_are_not_what_they_should_be_are_written_again(tmp_path: Path) -> None:
    bench = Bench("quick", tmp_path)
    file = Path(book(bench).files["train"])
    written = file.read_text("utf-8")
    file.write_text("old\tvecchio\n", "utf-8")
    assert file.read_text("utf-8") != written
    book(bench)
    assert file.read_text("utf-8") == written


def test_labs_that_compare_translators_share_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translators, "short", lambda bench: 2)
    said: list[str] = []
    bench = Bench("quick", tmp_path, said.append)
    base = compared(bench, {"model": {"width": 8}}, "base")
    assert compared(bench, {"model": {"width": 8, "heads": 4}}, "4 heads").folder == base.folder
    assert trained(bench, {"model": {"width": 8}, "training": training_for(2)}, "shared").folder == base.folder
    assert compared(bench, {"model": {"width": 8}}, "base", seed=2).folder != base.folder
    assert len(said) == 2
