"""Translators of labs are trained once, by their settings; and tasks ask for what they say."""

from pathlib import Path

import pytest
import torch

from regard.labs.lab import LabContext
from regard.labs.trials import translators
from regard.labs.trials.tasks import delayed_copy_task
from regard.labs.trials.translators import train_for_comparison, train_translator, training_settings, translation_data


def test_a_translator_is_trained_once_whoever_asks_for_it(tmp_path: Path) -> None:
    said: list[str] = []
    context = LabContext("quick", tmp_path, said.append)
    settings = {"model": {"width": 8}, "training": training_settings(6)}
    first = train_translator(context, settings, "one")
    assert train_translator(context, {**settings, "model": {"width": 8, "heads": 4}}, "the same").folder == first.folder
    assert said == ["  trained one for 6 steps"]
    assert train_translator(context, {**settings, "model": {"width": 8, "heads": 2}}, "another").folder != first.folder
    assert len(said) == 2


def test_what_translators_are_tested_on_was_not_learned(tmp_path: Path) -> None:
    pairs = translation_data(LabContext("quick", tmp_path))
    assert not {pair.source for pair in pairs.train} & {pair.source for pair in pairs.test}


def test_an_echo_is_the_symbol_so_many_places_before() -> None:
    batch = next(delayed_copy_task(symbols=5, delay=2, length=6, batch=3, seed=1))
    assert torch.equal(batch.labels[:, 2:], batch.inputs[:, :-2])
    assert batch.label_mask.tolist() == [[False, False, True, True, True, True]] * 3


def test_a_translator_is_trained_again_when_there_is_something_else_to_learn(tmp_path: Path) -> None:
    context = LabContext("quick", tmp_path)
    settings = {"model": {"width": 8}, "training": training_settings(2)}
    whole, few = translation_data(context), translation_data(context, max_train=60)
    assert whole.digest != few.digest
    assert len(few.train) == 60
    assert (
        train_translator(context, settings, "one").folder != train_translator(context, settings, "another", few).folder
    )


def test_pairs_that_are_not_what_they_should_be_are_written_again(tmp_path: Path) -> None:
    context = LabContext("quick", tmp_path)
    file = Path(translation_data(context).files["train"])
    written = file.read_text("utf-8")
    file.write_text("old\tvecchio\n", "utf-8")
    assert file.read_text("utf-8") != written
    translation_data(context)
    assert file.read_text("utf-8") == written


def test_labs_that_compare_translators_share_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translators, "comparison_steps", lambda context: 2)
    said: list[str] = []
    context = LabContext("quick", tmp_path, said.append)
    base = train_for_comparison(context, {"model": {"width": 8}}, "base")
    assert train_for_comparison(context, {"model": {"width": 8, "heads": 4}}, "4 heads").folder == base.folder
    assert (
        train_translator(context, {"model": {"width": 8}, "training": training_settings(2)}, "shared").folder
        == base.folder
    )
    assert train_for_comparison(context, {"model": {"width": 8}}, "base", seed=2).folder != base.folder
    assert len(said) == 2
