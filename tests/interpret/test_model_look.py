"""`Model.look` compared with `translate` and `score`; gradients; notes."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from family import DECODERS
from random_models import SMALL, saved
from regard.config import DecoderOnlyConfig, EncoderDecoderConfig, RecurrentEncoderDecoderConfig
from regard.decoding.options import OutputConstraints, SearchOptions
from regard.errors import ConfigError, InputError
from traces import make_trace, trace_features

RECURRENT = RecurrentEncoderDecoderConfig(vocab_size=29, width=24, layers=1)


@pytest.mark.parametrize("model", [EncoderDecoderConfig(**SMALL), RECURRENT], ids=["transformer", "recurrent"])
def test_output_equals_translate(tmp_path: Path, model: EncoderDecoderConfig) -> None:
    saved(tmp_path / "m", model)
    loaded = regard.load(tmp_path / "m")
    for text in ("w5 w9 w12", "w20", "w7 w7 w8 w9 w28"):
        assert loaded.look(text).output == loaded.translate([text], engine="torch")[0]


def test_forced_target_has_the_log_probabilities_of_score(tmp_path: Path) -> None:
    saved(tmp_path / "m", EncoderDecoderConfig(**SMALL))
    loaded = regard.load(tmp_path / "m")
    trace = loaded.look("w5 w9 w12", target="w4 w4 w20")
    (score,) = loaded.score_detailed("w5 w9 w12", "w4 w4 w20")
    assert [step.log_probability for step in trace.steps] == pytest.approx(score.log_probabilities, abs=1e-4)
    assert all(step.forced for step in trace.steps)
    assert trace.tree is None
    assert trace.output == "w4 w4 w20"


def test_forced_text_has_the_log_probabilities_of_score(tmp_path: Path) -> None:
    saved(tmp_path / "m", DecoderOnlyConfig(**SMALL))
    loaded = regard.load(tmp_path / "m")
    trace = loaded.look("", target="w4 w4 w20")
    (score,) = loaded.score_detailed("w4 w4 w20")
    assert [step.log_probability for step in trace.steps] == pytest.approx(score.log_probabilities, abs=1e-4)


def test_ensemble_has_no_trace(tmp_path: Path) -> None:
    for name in "ab":
        saved(tmp_path / name, EncoderDecoderConfig(**SMALL))
    with pytest.raises(ConfigError) as error:
        regard.load(tmp_path / "a", tmp_path / "b").look("w5")
    assert str(error.value) == "a trace is of one network, not of an ensemble; load one of the models."


@pytest.mark.parametrize("name", DECODERS)
def test_gradient_norms_equal_backward_and_leave_no_gradients(name: str) -> None:
    trace = make_trace(name)
    gradients = trace.gradient_norms()
    assert gradients.loss == pytest.approx(-trace.log_probability / len(trace.steps), abs=1e-4)
    assert sum(part.parameters for part in gradients.modules) == sum(
        p.numel() for p in trace.model.network.parameters()
    )
    assert all(parameter.grad is None for parameter in trace.model.network.parameters())
    loss = -sum(step.log_probability for step in trace.steps) / len(trace.steps)
    network, written = trace.model.network, trace.decoded
    source = written.source_ids
    memory = None if source is None else network.encode(torch.tensor([source]), features=trace_features(trace))
    rows = network.logits(network.decode(torch.tensor([written.input_ids]), memory))[0].log_softmax(-1)
    total = -rows[torch.arange(len(rows)), torch.tensor(written.target_ids)].mean()
    assert float(total.detach()) == pytest.approx(loss, abs=1e-4)
    total.backward()
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in network.parameters() if p.grad is not None))
    assert gradients.grad_norm == pytest.approx(norm, rel=1e-4)


def test_encoder_without_head_has_no_gradients() -> None:
    with pytest.raises(InputError) as error:
        make_trace("encoder-only").gradient_norms()
    assert str(error.value) == "This network predicts nothing, so it has no loss and no gradients."


def test_numpy_reads_a_tensor_of_a_trace() -> None:
    tensor = make_trace("encoder-decoder").tensor("encoder.0.attention.weights")
    array = np.asarray(tensor)
    assert array.dtype == tensor.values.dtype
    np.testing.assert_array_equal(array, tensor.values)
    assert np.asarray(tensor, dtype=np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(tensor), tensor.values)


def test_notes_name_differences_from_translate() -> None:
    assert make_trace("encoder-decoder", target="w4 w5").notes == []
    assert make_trace("decoder-only").notes == []
    trace = make_trace(
        "encoder-decoder",
        "W5 w9. W7 w12.",
        search=SearchOptions(constraints=OutputConstraints(min_tokens=3, max_tokens=3)),
    )
    assert trace.notes[0] == "`regard translate` would split this text into 2 parts; the trace treats it as one."
    assert trace.decoded.finished or trace.notes[1] == "The output reached the maximum length before its end token."
