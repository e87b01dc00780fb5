"""Labs that need translation models run, and a broken model, search or input makes their verdicts fail.

The models of one folder are trained once for all tests.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lab_runs import TRANSLATION_LABS, assert_lab_is_complete
from regard.api import Model
from regard.labs import LABS, LabContext, LabResult, ablations, alignment, beams, diagonal, heads, sharing
from regard.labs.sharing import CONTROL, TIED, UNTIED, TyingScores
from regard.labs.translators import train_translator

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("labs")


@pytest.fixture(scope="module")
def models(out: Path) -> Path:
    return out / "models"


@pytest.mark.parametrize("name", TRANSLATION_LABS)
def test_numbers_support_the_claim(name: str, out: Path) -> None:
    assert_lab_is_complete(name, out)


def run(name: str, models: Path) -> LabResult:
    return LABS[name].experiment.run(LabContext("quick", models))


def verdicts(result: LabResult) -> list[bool]:
    return [verdict.holds for verdict in result.verdicts]


def change_model(module: Any, change: Callable[[Model], None]) -> Callable[[Patch], None]:
    """Change the weights of the models that a lab trains."""

    def train(*arguments: Any, original: Any = module.train_translator, **options: Any) -> Model:
        model: Model = original(*arguments, **options)
        with torch.no_grad():
            change(model)
        return model

    return lambda patch: patch.setattr(module, "train_translator", train)


# --- beams ------------------------------------------------------------------------------------------------------------


def test_search_that_ignores_the_width_is_not_better_than_greedy(models: Path, monkeypatch: Patch) -> None:
    original = beams.search
    monkeypatch.setattr(beams, "search", lambda model, pairs, width, alpha: original(model, pairs, 1, alpha))
    result = run("beams", models)
    assert not result.holds
    assert verdicts(result) == [False] * 4


def test_search_whose_wide_beams_are_greedy_is_less_probable(models: Path, monkeypatch: Patch) -> None:
    """Greedy decoding and the paper's beam change places, so that the first gives the better translations."""
    original, widths = beams.search, {1: 4, 4: 1}

    def swapped(model: Model, pairs: Any, width: int, alpha: float) -> beams.SearchMeasurement:
        return original(model, pairs, widths.get(width, width), alpha)

    monkeypatch.setattr(beams, "search", swapped)
    assert verdicts(run("beams", models))[:2] == [False, False]


def measurement(width: int, log_probability: float, counts: list[list[int]]) -> beams.SearchMeasurement:
    import numpy as np

    ngrams = np.array(counts)
    return beams.SearchMeasurement(width, log_probability, float(beams.corpus_bleu(ngrams.sum(0))), 0, 1, 0, ngrams)


def test_interval_of_a_change_that_few_sentences_cause_contains_zero() -> None:
    good, bad = [9, 8, 7, 6, 9, 8, 7, 6, 9, 9], [5, 3, 2, 1, 9, 8, 7, 6, 9, 9]
    worse = [[measurement(1, 0.0, [good] * 40), measurement(4, 0.0, [bad] * 40)]]
    change = beams.bleu_change(worse, 0, 1)
    assert change.high < -50
    mixed = [[measurement(1, 0.0, [good, bad] * 20), measurement(4, 0.0, [bad, good] * 20)]]
    change = beams.bleu_change(mixed, 0, 1)
    assert change.low < 0 < change.high
    assert change.mean == pytest.approx(0)


def test_bleu_from_counts_is_that_of_sacrebleu() -> None:
    from regard.evaluation.metrics import score_translations

    outputs = ["Ti amo molto, davvero.", "Il gatto dorme sul tappeto rosso."]
    references = ["Ti amo davvero molto, cara.", "Il gatto dorme sul tappeto verde."]
    expected = score_translations(outputs, [[text] for text in references]).values["bleu"]
    assert float(beams.corpus_bleu(beams.ngram_counts(outputs, references).sum(0))) == pytest.approx(expected)


# --- heads, alignment, diagonal ---------------------------------------------------------------------------------------


def uniform_self_attention(model: Model) -> None:
    for name, weight in model.network.named_parameters():
        if "query_key_value" in name or "cross_attention.query" in name:
            weight[: weight.size(1)] = 0  # queries


def test_heads_that_all_attend_alike_fail(models: Path, monkeypatch: Patch) -> None:
    change_model(heads, uniform_self_attention)(monkeypatch)
    monkeypatch.setattr(heads, "two_position_accuracy", lambda context, count, seed: {1: 0.5, 4: 1.0}[count])
    assert not run("heads", models).holds


def test_one_head_in_place_of_several_fails(models: Path, monkeypatch: Patch) -> None:
    original = heads.two_position_accuracy
    monkeypatch.setattr(heads, "two_position_accuracy", lambda context, count, seed: original(context, 1, seed))
    assert not run("heads", models).holds


def test_attention_to_the_wrong_words_fails(models: Path, monkeypatch: Patch) -> None:
    original = alignment.merge_tokens
    monkeypatch.setattr(alignment, "merge_tokens", lambda *parts: original(*parts).roll(2, dims=1))
    assert not run("alignment", models).holds


def test_output_that_depends_on_its_only_attention_fails(models: Path, monkeypatch: Patch) -> None:
    """A recurrent model in place of the Transformer: without its single attention most translations change."""
    original = train_translator

    def train(context: LabContext, settings: Any, name: str) -> Model:
        return original(context, {"model": alignment._bahdanau(32), **settings}, name)

    monkeypatch.setattr(alignment, "train_translator", train)
    assert not run("alignment", models).holds


def identity_projections(model: Model) -> None:
    for name, weight in model.network.named_parameters():
        if name.endswith("attention.query_key_value.weight"):
            width = weight.size(1)
            weight[: 2 * width] = 3 * torch.eye(width).repeat(2, 1)


def parallel_embeddings(model: Model) -> None:
    weight = model.network.get_parameter("encoder.embedding.weight")
    weight.copy_(torch.arange(len(weight))[:, None] * torch.ones(weight.size(1)))


def test_heads_without_projections_attend_to_the_diagonal(models: Path, monkeypatch: Patch) -> None:
    change_model(diagonal, identity_projections)(monkeypatch)
    result = run("diagonal", models)
    assert verdicts(result) == [True, True]
    assert not result.holds


def test_inputs_of_different_norm_do_not(models: Path, monkeypatch: Patch) -> None:
    change_model(diagonal, parallel_embeddings)(monkeypatch)
    result = run("diagonal", models)
    assert not verdicts(result)[0]
    assert not result.holds


# --- sharing, ablations -----------------------------------------------------------------------------------------------


def fake_scores(**changed: tuple[float, float, float]) -> dict[str, tuple[float, float, float]]:
    return {"tied": (1.12, 99.0, 1.12), "untied": (1.12, 99.0, 1.12), "control": (1.12, 99.0, 1.12), **changed}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, [True, True, True]),
        ({"tied": (1.4, 99.0, 1.12)}, [True, False, True]),
        ({"tied": (1.12, 80.0, 1.12)}, [True, False, True]),
        ({"control": (1.4, 99.0, 1.12)}, [True, True, False]),
        ({"untied": (1.12, 99.0, 1.3)}, [False, True, True]),
    ],
)
def test_verdict_of_sharing_compares_converged_models(
    changed: dict[str, tuple[float, float, float]], expected: list[bool], models: Path, monkeypatch: Patch
) -> None:
    keys = {TIED: "tied", UNTIED: "untied", CONTROL: "control"}

    def train(context: LabContext, variant: Any, name: str, steps: int, seed: int) -> TyingScores:
        perplexity, bleu, fit = fake_scores(**changed)[keys[name.removeprefix("a translation model, ")]]
        parameters = 30_000 if name.endswith(UNTIED) else 20_000
        return TyingScores(parameters, perplexity + seed / 1000, bleu + seed / 10, fit)

    monkeypatch.setattr(sharing, "_train", train)
    result = run("sharing", models)
    assert verdicts(result) == expected
    assert result.holds == all(expected)


def test_tied_model_that_has_not_converged_fails(models: Path, monkeypatch: Patch) -> None:
    original = sharing._train

    def train(context: LabContext, variant: Any, name: str, steps: int, seed: int) -> TyingScores:
        return original(context, variant, name, 20 if name.endswith(TIED) else steps, seed)

    monkeypatch.setattr(sharing, "_train", train)
    result = run("sharing", models)
    assert verdicts(result)[:2] == [False, False]


def test_control_has_as_many_parameters_as_the_untied_model(models: Path) -> None:
    numbers = run("sharing", models).numbers["scores"]
    tied, untied, control = (numbers[name][0]["parameters"] for name in (TIED, UNTIED, CONTROL))
    assert tied < 0.9 * untied
    assert 0.99 * untied < control <= untied


@pytest.mark.parametrize("name", list(ablations.EXPECTED_SIGNS))
def test_ablation_without_its_change_fails(name: str, models: Path, monkeypatch: Patch) -> None:
    original = ablations.variants
    monkeypatch.setattr(ablations, "variants", lambda context: {**original(context), name: {}})
    assert not run("ablations", models).holds
