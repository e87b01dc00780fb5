"""Analyses of encoders: gradients, head costs and interventions on head predictions."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import regard
from family import ENCODERS
from random_models import SMALL, random_network, saved
from regard.config import Config, EncoderOnlyConfig, SpecialTokensConfig, TokenHeadConfig
from regard.config.data import TokenizerConfig
from regard.data.tokenizer import train_tokenizer
from regard.errors import InputError
from regard.interpret.decode import TracedModel
from regard.interpret.interventions import Intervention, apply_interventions
from regard.interpret.trace import Trace, look
from regard.models.network import EncoderNetwork
from regard.models.recurrent import BidirectionalLanguageModel
from traces import TEXT, make_trace

PREDICTING = [name for name, config in ENCODERS.items() if config.task]


def expected_predictions(trace: Trace) -> tuple[Tensor, list[int]]:
    """The log-probabilities (N, V) of all that the head predicts, and the id that the trace is about in each row."""
    network, ids = trace.model.network, torch.tensor([trace.decoded.source_ids])
    assert isinstance(network, EncoderNetwork)
    memory = network.encode(ids)
    if "head.forwards.logits" in trace.points:
        assert isinstance(network, BidirectionalLanguageModel)
        both = network.logits(network.bidirectional_states(ids[:, :-1], ids[:, 1:]))[0]  # (S − 1, 2, V)
        rows = torch.cat([both[:, 0], both[:, 1]])
        return rows.log_softmax(-1), [*ids[0, 1:].tolist(), *ids[0, :-1].tolist()]
    if "label" in trace.points["head.logits"].axes:
        whole = trace.points["head.logits"].axes == ("label",)
        rows = network.logits(network.pool(memory)) if whole else network.logits(memory.states)[0, 1:-1]
        return rows.log_softmax(-1), rows.argmax(-1).tolist()
    return network.logits(memory.states)[0, 1:-1].log_softmax(-1), ids[0, 1:-1].tolist()


@pytest.mark.parametrize("name", PREDICTING)
def test_gradients_are_those_of_the_head_predictions(name: str) -> None:
    trace = make_trace(name)
    gradients = trace.gradient_norms()
    network = trace.model.network
    assert all(parameter.grad is None for parameter in network.parameters())
    rows, ids = expected_predictions(trace)
    loss = -rows[torch.arange(len(rows)), torch.tensor(ids)].mean()
    loss.backward()
    assert gradients.loss == pytest.approx(float(loss.detach()), abs=1e-4)
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in network.parameters() if p.grad is not None))
    assert gradients.grad_norm == pytest.approx(norm, rel=1e-4)
    assert sum(part.parameters for part in gradients.modules) == sum(p.numel() for p in network.parameters())
    assert gradients.grad_norm > 0


def test_gradient_modules_are_named_by_address() -> None:
    assert [part.module for part in make_trace("bidirectional, classes").gradient_norms().modules] == [
        "encoder.embedding",
        "encoder.0.forwards",
        "encoder.1.forwards",
        "encoder.0.backwards",
        "encoder.1.backwards",
        "encoder.mixing",
        "head",
    ]


@pytest.mark.parametrize("name", ["encoder-only, classes", "encoder-only, tags", "encoder-only, hidden tokens"])
def test_head_cost_of_an_encoder_is_the_drop_of_its_predictions(name: str) -> None:
    trace = make_trace(name)
    before, ids = expected_predictions(trace)
    before = before.detach()
    for head in trace.head_costs()[::3]:
        with apply_interventions(trace, [head.intervention]):
            after = expected_predictions(trace)[0].detach()
        index = torch.arange(len(before)), torch.tensor(ids)
        assert head.cost == pytest.approx(float((before[index] - after[index]).sum()), abs=1e-4)
        assert (head.prediction_without is None) == torch.equal(before.argmax(-1), after.argmax(-1))
        result = trace.intervene(head.intervention)
        assert result.cost == pytest.approx(head.cost, abs=1e-4)
        assert result.same == (head.prediction_without is None)


def test_label_changes_without_the_layers() -> None:
    for seed in range(9):
        trace = make_trace("encoder-only, classes", seed=seed)
        result = trace.intervene(Intervention.parse("encoder.0"), Intervention.parse("encoder.1"))
        if not result.same:
            break
    assert trace.head_predictions is not None
    assert (result.kind, result.first_difference) == ("classes", 0)
    assert result.before == trace.head_predictions.predictions[0].best.token != result.after == result.tokens[0]
    assert [(step.token, step.source_token) for step in result.steps] == [(result.before, None)]
    assert result.as_dict()["cost"] == result.cost > 0


def test_source_tokens_name_the_direction() -> None:
    predictions = make_trace("bidirectional, LSTM").predictions
    assert predictions is not None
    ahead, back = ["w5", "w9", "w12", "w7", "[EOS]"], ["[SOS]", "w5", "w9", "w12", "w7"]
    assert predictions.source_tokens == [
        *(f"{token} forwards" for token in ahead),
        *(f"{token} backwards" for token in back),
    ]


def test_result_shows_both_directions_separately() -> None:
    trace = make_trace("bidirectional, LSTM")
    result = trace.intervene(Intervention.parse("encoder.0.backwards"))
    decode = trace.model.target_tokenizer.decode
    ahead, back = (trace.activation(f"head.{way}.logits").argmax(-1).tolist() for way in ("forwards", "backwards"))
    assert result.before == f"forwards: {decode(ahead[:-1])}; backwards: {decode(back[1:])}"
    assert result.after.startswith(f"forwards: {decode(ahead[:-1])}; backwards: "), (
        "only the other direction is changed"
    )
    assert result.after != result.before
    assert result.first_difference is not None
    assert result.first_difference >= len(ahead) - 1


def test_target_can_be_a_label() -> None:
    trace = make_trace("encoder-only, classes")
    assert trace.head_predictions is not None
    for candidate in trace.head_predictions.predictions[0].candidates:
        forced = make_trace("encoder-only, classes", target=candidate.token)
        assert forced.gradient_norms().loss == pytest.approx(-math.log(candidate.probability), abs=1e-5)
        assert forced.output == ""
        assert forced.intervene(Intervention("encoder", 0)).steps[0].token == candidate.token


def test_target_can_be_tags() -> None:
    trace = make_trace("encoder-only, tags", target="noun verb noun noun")
    rows = trace.activation("head.probabilities")[1:-1].log()
    assert trace.log_probability == pytest.approx(float(rows[[0, 1, 2, 3], [0, 1, 0, 0]].sum()), abs=1e-4)


def test_predictions_are_about_masked_tokens(tmp_path: Path) -> None:
    saved(tmp_path / "m", EncoderOnlyConfig(**SMALL, head=TokenHeadConfig()), mask=4)
    model = regard.load(tmp_path / "m")
    trace = model.look("w5 [MASK] w12")
    assert trace.predictions is not None
    assert trace.head_predictions is not None
    assert (trace.predictions.rows, trace.predictions.source_tokens) == (
        [2],
        ["w4"],
    )  # whose id is that of the mask here
    assert trace.predictions.ids == [trace.head_predictions.predictions[2].best.id]
    forced = model.look("w5 [MASK] w12", target="w7")
    expected = trace.activation("head.probabilities")[2, 7].log()
    assert forced.log_probability == pytest.approx(float(expected), abs=1e-4)
    for text, message in {
        "w5 w9 w12": "The text has no [MASK] that the target could fill; leave the target out.",
        "w5 [MASK] [MASK]": "The target has 1 tokens for the 2 [MASK] of the text; give one token for each.",
    }.items():
        with pytest.raises(InputError) as error:
            model.look(text, target="w7")
        assert str(error.value) == message


def test_target_tokens_are_those_that_fit_the_mask() -> None:
    tokenizer = train_tokenizer(["the dog saw a dog"] * 3, TokenizerConfig(kind="byte-level"), 300, mask_token=True)
    model = EncoderOnlyConfig(**{**SMALL, "vocab_size": len(tokenizer)}, head=TokenHeadConfig())
    config = Config(model=model, tokens=SpecialTokensConfig(mask=4))
    traced_model = TracedModel(random_network(model), config, tokenizer, tokenizer, "bytes")
    for text, target, expected in (
        ("the [MASK] saw a dog", "dog", ["Ġdog"]),
        ("[MASK] dog saw a [MASK]", "the dog", ["the", "Ġdog"]),
    ):
        trace = look(traced_model, text, target=target)
        assert trace.predictions is not None
        assert tokenizer.ids_to_tokens(trace.predictions.ids) == expected
        rows = [n for n, token in enumerate(trace.decoded.source_ids or []) if token == 4]
        ids = [tokenizer.token_id(piece) for piece in expected]
        probabilities = trace.activation("head.probabilities")[rows, ids]
        assert trace.log_probability == pytest.approx(float(probabilities.log().sum()), abs=1e-4)


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        (
            "encoder-only, classes",
            "godo",
            "'godo' is not a label (did you mean good?); the labels are bad, good, so-so.",
        ),
        (
            "encoder-only, tags",
            "noun",
            "The target has 1 tags for the 4 tokens of the text; give one tag for each token.",
        ),
        (
            "encoder-only",
            "w4",
            "random: models of the kind encoder-only Transformer generate no text; leave the target out.",
        ),
        (
            "bidirectional, LSTM",
            "w4",
            "random: models of the kind bidirectional language model generate no text; leave the target out.",
        ),
    ],
)
def test_invalid_target_is_an_error(name: str, target: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        make_trace(name, TEXT, target=target)
    assert str(error.value) == message
