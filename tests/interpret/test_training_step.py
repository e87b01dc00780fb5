"""A training step, position by position: its loss is the one that the trainer minimizes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from family import FAMILY
from regard.data.batching import encode_parsed, pair_batch_from_ids
from regard.data.language_batches import validation_source
from regard.data.readers.base import Pair
from regard.data.store import open_store, write_document_store
from regard.errors import InputError
from regard.interpret.trace import Trace, look
from regard.tasks import language_modeling
from regard.training.batches import BidirectionalBatch, LabelBatch, MaskedBatch, pair_tensors
from regard.training.losses import (
    BidirectionalLMObjective,
    CausalLMObjective,
    LabelObjective,
    MaskedLMObjective,
    Objective,
)
from traces import LANGUAGE_MODELS, TRANSLATION_MODELS, make_parse, make_traced_model

SOURCE, TARGET = "w5 w9 w12 w7", "w4 w20 w8"


def make_trace(name: str, text: str = SOURCE, target: str | None = TARGET, smoothing: float = 0.1) -> Trace:
    model = make_traced_model(FAMILY[name])
    training = model.config.training.model_copy(update={"label_smoothing": smoothing})
    model = replace(model, config=model.config.model_copy(update={"training": training}))
    parse = make_parse(text) if model.config.model.needs_parses else None
    return look(model, text, None, target, parse)


def batch_loss(objective: Objective[Any], batch: object) -> tuple[float, float]:
    """The mean loss and cross entropy of a batch, as the trainer computes them."""
    with torch.no_grad():
        loss = objective(batch)
    return float(loss.loss) / loss.targets, float(loss.cross_entropy) / loss.targets


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", TRANSLATION_MODELS)
def test_loss_of_a_pair_is_that_of_the_trainer(name: str, smoothing: float) -> None:
    trace = make_trace(name, smoothing=smoothing)
    step, model = trace.training_step(), trace.model
    pair = Pair(SOURCE, TARGET, parse=trace.parse)
    if trace.parse is not None:
        sources, features = encode_parsed([pair], model.source_tokenizer)
    else:
        sources, features = [model.source_tokenizer.encode(SOURCE)], []
    targets = [np.array(model.target_tokenizer.encode(TARGET))]
    batch = pair_batch_from_ids([np.array(ids) for ids in sources], targets, model.config.tokens, features)
    objective = CausalLMObjective(model.network, smoothing)
    assert (step.loss, step.cross_entropy) == pytest.approx(batch_loss(objective, pair_tensors(batch)), rel=1e-6)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_loss_of_a_text_is_that_of_the_trainer(name: str, tmp_path: Path) -> None:
    trace = make_trace(name, target="")
    model = trace.model
    ids = model.target_tokenizer.encode(SOURCE)
    write_document_store(tmp_path / "store", [(ids, True)], len(model.target_tokenizer), {})
    store = open_store(tmp_path / "store")
    assert store is not None
    (batch,) = validation_source(store.columns[0], 16, 64, model.config.tokens).epoch(0)
    step = trace.training_step()
    losses = batch_loss(CausalLMObjective(model.network, 0.1), language_modeling.token_batch(batch))
    assert (step.loss, step.cross_entropy) == pytest.approx(losses, rel=1e-6)
    assert step == make_trace(name, target=None).training_step()  # what the model would generate does not matter


def test_input_is_the_target_shifted_right_and_labels_end_with_the_end_token() -> None:
    step = make_trace("encoder-decoder").training_step()
    assert step.source == [*SOURCE.split(), "[EOS]"]
    assert step.decoder_input == ["[SOS]", *TARGET.split()]
    assert [position.input_token for position in step.positions] == step.decoder_input
    assert [position.label for position in step.positions] == [*TARGET.split(), "[EOS]"]


def test_numbers_of_a_position_follow_from_the_logits() -> None:
    trace = make_trace("encoder-decoder", smoothing=0.2)
    logits: Tensor = trace.recording.logits()
    for position, row, target in zip(trace.training_step().positions, logits, trace.decoded.target_ids, strict=True):
        log_p = row.log_softmax(-1)
        assert position.probability == pytest.approx(float(row.softmax(-1)[target]))
        assert position.cross_entropy == pytest.approx(-float(log_p[target]))
        assert position.smoothing == pytest.approx(-float(log_p.mean()))
        smoothed = 0.8 * -float(log_p[target]) + 0.2 * -float(log_p.mean())
        assert position.loss == pytest.approx(smoothed)
        assert trace.model.target_tokenizer.ids_to_tokens([int(row.argmax())]) == [position.best]


def test_language_model_learns_text_and_target_as_one_document() -> None:
    step = make_trace("decoder-only").training_step()
    assert step.decoder_input == ["[SOS]", *SOURCE.split(), *TARGET.split()]
    assert [position.label for position in step.labels] == [*SOURCE.split(), *TARGET.split(), "[EOS]"]


def encoder_trace(name: str, text: str = SOURCE, target: str | None = None) -> Trace:
    model = make_traced_model(FAMILY[name])
    tokens = model.config.tokens.model_copy(update={"mask": 4})  # w4
    return look(replace(model, config=model.config.model_copy(update={"tokens": tokens})), text, None, target)


def encoder_ids(trace: Trace) -> tuple[Tensor, Tensor]:
    ids = torch.tensor([trace.decoded.source_ids])
    return ids, torch.ones_like(ids, dtype=torch.bool)


def test_only_masked_tokens_have_labels() -> None:
    trace = encoder_trace("encoder-only, hidden tokens", "w5 [MASK] w12 [MASK]", "w6 w13")
    step, (ids, mask) = trace.training_step(), encoder_ids(trace)
    assert [position.label for position in step.positions] == [None, None, "w6", None, "w13", None]
    batch = MaskedBatch(ids, torch.tensor([[2, 5, 6, 12, 13, 3]]), ids == 4, mask)
    losses = batch_loss(MaskedLMObjective(trace.model.network, 0.1), batch)  # type: ignore[arg-type]
    assert (step.loss, step.cross_entropy) == pytest.approx(losses, rel=1e-6)
    assert "4 positions have no label and add nothing to the loss." in step.notes


def test_text_label_is_one_prediction() -> None:
    trace = encoder_trace("encoder-only, classes", target="good")
    step, (ids, mask) = trace.training_step(), encoder_ids(trace)
    assert [(position.position, position.label) for position in step.positions] == [(None, "good")]
    objective = LabelObjective(trace.model.network, 0.1, per_word=False)  # type: ignore[arg-type]
    losses = batch_loss(objective, LabelBatch(ids, mask, torch.tensor([[1]])))
    assert (step.loss, step.cross_entropy) == pytest.approx(losses, rel=1e-6)


def test_start_and_end_have_no_tag() -> None:
    trace = encoder_trace("encoder-only, tags", target="noun verb verb noun")
    step, (ids, mask) = trace.training_step(), encoder_ids(trace)
    assert [position.label for position in step.positions] == [None, "noun", "verb", "verb", "noun", None]
    objective = LabelObjective(trace.model.network, 0.1, per_word=True)  # type: ignore[arg-type]
    losses = batch_loss(objective, LabelBatch(ids, mask, torch.tensor([[-1, 0, 1, 1, 0, -1]])))
    assert (step.loss, step.cross_entropy) == pytest.approx(losses, rel=1e-6)


def test_bidirectional_model_predicts_in_both_directions() -> None:
    trace = encoder_trace("bidirectional, LSTM")
    step, (ids, _) = trace.training_step(), encoder_ids(trace)
    objective = BidirectionalLMObjective(trace.model.network, 0.1)  # type: ignore[arg-type]
    losses = batch_loss(objective, BidirectionalBatch(target=ids[:, :-1], labels=ids[:, 1:]))
    assert (step.loss, step.cross_entropy) == pytest.approx(losses, rel=1e-6)
    assert {position.direction for position in step.labels} == {"forwards", "backwards"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("encoder-decoder", "A training step needs the translation to learn; pass it as the target (--target)."),
        ("encoder-only", "This network predicts nothing, so there is nothing to train it on."),
        ("encoder-only, classes", "A training step needs the label of the text; pass it as the target (--target)."),
        ("encoder-only, tags", "A training step needs a tag for each token; pass it as the target (--target)."),
        ("encoder-only, hidden tokens", "A training step needs a token per [MASK]; pass it as the target (--target)."),
    ],
)
def test_missing_labels_are_an_error(name: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        make_trace(name, target=None).training_step()
    assert str(error.value) == message


def test_dict_has_the_loss_and_the_number_of_labels() -> None:
    step = make_trace("encoder-decoder").training_step()
    fields = step.as_dict()
    assert (fields["loss"], fields["num_labels"]) == (step.loss, 4)
    positions = fields["positions"]
    assert isinstance(positions, list)
    assert positions[0] == vars(step.positions[0])
