"""Translation models of labs are trained once per settings and data; tasks have the right labels."""

from pathlib import Path

import pytest
import torch

from regard.labs import LabContext, translators
from regard.labs.translators import train_for_comparison, train_translator, training_settings, translation_data
from regard.labs.trials import delayed_copy_task


@pytest.mark.slow
def test_model_with_the_same_settings_is_trained_once(tmp_path: Path) -> None:
    log: list[str] = []
    context = LabContext("quick", tmp_path, log.append)
    settings = {"model": {"width": 8}, "training": training_settings(6)}
    first = train_translator(context, settings, "a model")
    same = train_translator(context, {**settings, "model": {"width": 8, "heads": 4}}, "the same")
    assert same.folder == first.folder
    assert log == ["  trained a model for 6 steps"]
    other = train_translator(context, {**settings, "model": {"width": 8, "heads": 2}}, "another")
    assert other.folder != first.folder
    assert len(log) == 2


def test_training_and_test_pairs_do_not_overlap(tmp_path: Path) -> None:
    data = translation_data(LabContext("quick", tmp_path))
    assert not {pair.source for pair in data.train} & {pair.source for pair in data.test}


def test_labels_of_delayed_copy_are_earlier_symbols() -> None:
    batch = next(delayed_copy_task(symbols=5, delay=2, length=6, batch=3, seed=1))
    assert torch.equal(batch.labels[:, 2:], batch.inputs[:, :-2])
    assert batch.label_mask.tolist() == [[False, False, True, True, True, True]] * 3


@pytest.mark.slow
def test_model_is_trained_again_on_other_data(tmp_path: Path) -> None:
    context = LabContext("quick", tmp_path)
    settings = {"model": {"width": 8}, "training": training_settings(2)}
    all_pairs, few_pairs = translation_data(context), translation_data(context, max_train=60)
    assert all_pairs.digest != few_pairs.digest
    assert len(few_pairs.train) == 60
    first = train_translator(context, settings, "a model")
    assert first.folder != train_translator(context, settings, "another", few_pairs).folder


def test_changed_data_files_are_written_again(tmp_path: Path) -> None:
    context = LabContext("quick", tmp_path)
    file = Path(translation_data(context).files["train"])
    content = file.read_text("utf-8")
    file.write_text("old\tvecchio\n", "utf-8")
    assert file.read_text("utf-8") != content
    translation_data(context)
    assert file.read_text("utf-8") == content


@pytest.mark.slow
def test_labs_that_compare_models_share_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translators, "comparison_steps", lambda context: 2)
    log: list[str] = []
    context = LabContext("quick", tmp_path, log.append)
    base = train_for_comparison(context, {"model": {"width": 8}}, "base")
    assert train_for_comparison(context, {"model": {"width": 8, "heads": 4}}, "4 heads").folder == base.folder
    same = train_translator(context, {"model": {"width": 8}, "training": training_settings(2)}, "tied")
    assert same.folder == base.folder
    assert train_for_comparison(context, {"model": {"width": 8}}, "base", seed=2).folder != base.folder
    assert len(log) == 2
