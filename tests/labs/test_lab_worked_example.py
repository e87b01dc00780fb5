"""The worked example has the expected numbers."""

import torch
from torch import Tensor

from regard.labs.worked_example import causal_attention, self_attention, worked_text


def assert_equal(actual: Tensor, expected: list[list[float]]) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float32), atol=5e-5, rtol=0)


def test_keys_queries_values_and_scores() -> None:
    example = self_attention()
    assert_equal(example["K"], [[0, 1, 1], [4, 4, 0], [2, 3, 1]])
    assert_equal(example["Q"], [[1, 0, 2], [2, 2, 2], [2, 1, 3]])
    assert_equal(example["V"], [[1, 2, 3], [2, 8, 0], [2, 6, 3]])
    assert_equal(example["scores"], [[2, 4, 4], [4, 16, 12], [4, 12, 10]])


def test_outputs_without_and_with_scaling() -> None:
    unscaled = [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]]
    scaled = [[1.8639, 6.3194, 1.7042], [1.9991, 7.8141, 0.2735], [1.9926, 7.4796, 0.7359]]
    assert_equal(self_attention(scaled=False)["output"], unscaled)
    assert_equal(self_attention()["output"], scaled)


def test_causal_weights() -> None:
    expected: list[list[float]] = [
        [1, 0, 0, 0],
        [0.3775, 0.6225, 0, 0],
        [0.2584, 0.3156, 0.4260, 0],
        [0.2144, 0.2619, 0.2619, 0.2619],
    ]
    assert_equal(causal_attention()["weights"], expected)
    assert (causal_attention()["weights"].triu(1) == 0).all()


def test_every_step_is_on_the_worked_text() -> None:
    text = worked_text()
    for line in (
        "   X = ⎢ 0  2  0  2 ⎥",
        "   ⎣ 1  1  1  1 ⎦   ⎢ 0  0  1 ⎥   ⎣ 2  1  3 ⎦",
        "   ⎢ 2  2  2 ⎥ · ⎢ 1  4  3 ⎥ = ⎢ 4  16  12 ⎥",
        "   scaled = ⎢ 2.3094  9.2376  6.9282 ⎥",
        "   weights = ⎢ 0.0009  0.9088  0.0903 ⎥",
        "   ⎢ 0.0009  0.9088  0.0903 ⎥ · ⎢ 2  8  0 ⎥ = ⎢ 1.9991  7.8141  0.2735 ⎥",
        "         I ⎢  0.3775  0.6225       0       0 ⎥",
    ):
        assert line in text
