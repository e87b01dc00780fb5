"""The variants of the lab `modern` have equal parameters, and its verdict follows from losses and parameters."""

from pathlib import Path
from typing import Any

import pytest

from regard.config import DecoderOnlyConfig
from regard.labs import LabContext, LabResult, modern
from regard.labs.modern import BASE, EXPERTS, PARTS, TOGETHER, Difference, Size
from regard.models.assembly import build_meta
from regard.models.summary import summarize

SIZE = Size(width=64, layers=2, length=64, steps=1, characters=1000, learning_rate=1e-3)
Patch = pytest.MonkeyPatch


def test_every_variant_has_the_parameters_of_the_base() -> None:
    configs = modern.variants(SIZE, 100)
    assert list(configs) == [BASE, *PARTS, TOGETHER, EXPERTS]
    expected = summarize(build_meta(configs[BASE])).parameters
    for name, config in configs.items():
        routers = 0 if name != EXPERTS else 2 * 64 * 8
        assert summarize(build_meta(config)).active_parameters - routers == pytest.approx(expected, rel=0.005), name
    assert summarize(build_meta(configs[EXPERTS])).parameters > 1.5 * expected
    assert configs[TOGETHER].norm == "rms"
    assert configs[TOGETHER].qk_norm
    assert (configs[TOGETHER].kv_heads, configs[TOGETHER].activation) == (2, "swiglu")
    assert configs[TOGETHER].positions.kind == "rotary"


def run_with(losses: dict[str, list[float]], folder: Path, patch: Patch) -> LabResult:
    """Run the lab with these losses of each variant, by seed; others have that of the base."""
    names = {repr(config): name for name, config in modern.variants(modern.SIZES["quick"], 100).items()}

    def train(config: DecoderOnlyConfig, size: Size, corpus: Any, seed: int) -> float:
        return losses.get(names[repr(config)], losses[BASE])[seed]

    patch.setattr(modern, "_train", train)
    patch.setattr(modern, "python_docs", lambda characters: type("Corpus", (), {"vocab_size": 100}))
    return modern.run(LabContext("quick", folder))


@pytest.mark.parametrize(
    ("together", "holds"), [([1.5, 1.6], True), ([1.9, 2.2], False), ([2.5, 2.6], False), ([1.0, 2.2], False)]
)
def test_the_verdict_needs_a_difference_beyond_the_deviations(
    together: list[float], holds: bool, tmp_path: Path, monkeypatch: Patch
) -> None:
    result = run_with({BASE: [2.0, 2.1], TOGETHER: together}, tmp_path, monkeypatch)
    assert result.holds is holds
    assert [verdict.holds for verdict in result.verdicts] == [False]  # rotary positions, as good as the base


def test_the_verdict_needs_equal_parameters(tmp_path: Path, monkeypatch: Patch) -> None:
    losses = {BASE: [2.0, 2.1], TOGETHER: [1.0, 1.1]}
    assert run_with(losses, tmp_path, monkeypatch).holds
    monkeypatch.setattr(
        modern,
        "_matched",
        lambda size, vocabulary, change, base: modern._config(
            size, vocabulary, change, base.feed_forward * (2 if change else 1)
        ),
    )
    assert not run_with(losses, tmp_path, monkeypatch).holds


def test_differences_are_clear_beyond_two_standard_errors() -> None:
    assert Difference(-0.21, 0.1).is_better
    assert not Difference(-0.19, 0.1).is_better
    assert Difference(0.21, 0.1).is_worse
    assert not Difference(0.19, 0.1).is_worse
