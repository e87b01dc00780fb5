"""`/v1/look`: what a trace says in Python, it says over HTTP; and it says no more than can be looked at."""

from typing import Any

import numpy as np
import pytest

from regard.decoding.options import SearchOptions, TranslationOptions
from regard.interpret.interventions import Intervention
from regard.interpret.trace import Trace
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.service import Service
from servers import Running, running

TEXT = "w5 w9 w12"


@pytest.fixture(scope="module")
def trace(models: list[LoadedModel]) -> Trace:
    return models[0].model.look(TEXT, TranslationOptions(SearchOptions(width=4)))


@pytest.fixture(scope="module")
def outline(server: Running) -> dict[str, Any]:
    found: dict[str, Any] = server.post("/v1/look", {"text": TEXT}).json()
    return found


def asked(server: Running, outline: dict[str, Any], what: str, **fields: Any) -> Any:
    found = server.post(f"/v1/look/{what}", {"trace": outline["id"], **fields})
    assert found.is_success, found.text
    return found.json()


def test_the_outline_is_the_traces(outline: dict[str, Any], trace: Trace) -> None:
    theirs = trace.outline()
    assert outline["output"] == trace.output
    assert [step["token"] for step in outline["steps"]] == [step.token for step in trace.steps]
    assert outline["points"] == theirs["points"]
    assert outline["model"]["name"] == "en-it", "a folder of the server is nobody's business"


def test_the_same_question_has_the_same_id(server: Running, outline: dict[str, Any]) -> None:
    assert server.post("/v1/look", {"text": TEXT}).json()["id"] == outline["id"]
    assert server.post("/v1/look", {"text": TEXT, "beam": 1}).json()["id"] != outline["id"]


def test_tensors_come_by_address(server: Running, outline: dict[str, Any], trace: Trace) -> None:
    at = "decoder.1.cross_attention.weights[2]"
    found = asked(server, outline, "tensor", at=at)
    theirs = trace.tensor(at).as_dict()
    assert found["labels"] == theirs["labels"]
    assert np.allclose(found["values"], theirs["values"])
    part = asked(server, outline, "tensor", at=at, rows=[0, 1], columns=[1, 3])
    assert part["values"] == [found["values"][0][1:3]]


def test_what_may_not_be_looked_at_is_null(server: Running, outline: dict[str, Any]) -> None:
    masked = asked(server, outline, "tensor", at="decoder.0.attention.masked[0]")["values"]
    assert [masked[row][column] is None for row in range(2) for column in range(2)] == [False, True, False, False]


def test_matrices_products_and_the_tree_are_the_traces(server: Running, outline: dict[str, Any], trace: Trace) -> None:
    weight = asked(server, outline, "weight", name="encoder.0.attention.W_q", head=1, columns=[0, 2])
    assert weight["values"] == trace.weight("encoder.0.attention.W_q", head=1, columns=(0, 2)).as_dict()["values"]
    product = asked(server, outline, "product", at="encoder.0.attention.q[1]", row=2, column=3)
    assert sum(term["product"] for term in product["terms"]) == pytest.approx(product["value"], abs=1e-5)
    tree = asked(server, outline, "tree")
    assert trace.tree is not None
    assert [node["token_id"] for node in tree["nodes"]] == [node.token_id for node in trace.tree.nodes]


def test_every_node_of_the_tree_can_be_looked_into(server: Running, outline: dict[str, Any], trace: Trace) -> None:
    assert trace.tree is not None
    for node in trace.tree.nodes[1:8]:
        found = asked(server, outline, "node", node=node.number, at="decoder.1.cross_attention")
        assert found["tokens"] == trace.model.target_tokenizer.ids_to_tokens(trace.tree.path(node))
        assert [sum(row) for row in found["attention"]["values"]] == pytest.approx([1.0] * 4)
    best = [node for node in trace.tree.nodes if node.on_best_path][2]
    taken = asked(server, outline, "node", node=best.number, at="decoder.1.cross_attention")["attention"]["values"]
    assert np.allclose(taken, trace.activation("decoder.1.cross_attention.weights")[:, 1], atol=1e-5)


def test_hidden_units_that_are_on_are_counted(server: Running, outline: dict[str, Any], trace: Trace) -> None:
    found = asked(server, outline, "units", layer="decoder.1")
    active = (trace.activation("decoder.1.feed_forward.hidden") > 0).sum(-1).tolist()
    assert found == {"layer": "decoder.1", "units": 20, "active": active}


def test_heads_can_be_switched_off(server: Running, outline: dict[str, Any], trace: Trace) -> None:
    found = asked(server, outline, "changed", changes=["decoder.1.cross_attention[2]", "encoder.0"])
    theirs = trace.intervene(Intervention.parse("decoder.1.cross_attention[2]"), Intervention.parse("encoder.0"))
    assert (found["before"], found["after"], found["first_difference"]) == (
        theirs.before,
        theirs.after,
        theirs.first_difference,
    )
    assert found["cost"] == pytest.approx(theirs.cost, abs=1e-4)
    heads = asked(server, outline, "heads")
    assert len(heads) == len(trace.head_costs())
    assert heads[0]["name"] == "encoder.0.attention[0]"


def test_attention_can_be_told_a_weight_for_each_key_of_a_long_text(server: Running, models: list[LoadedModel]) -> None:
    text = " ".join(f"w{4 + n % 25}" for n in range(59))
    found = server.post("/v1/look", {"text": text, "target": "w20 w21"}).json()
    weights = ",".join(["0.0166667"] * 60)  # of its words, and its end
    change = f"decoder.1.cross_attention={weights}"
    assert len(change) > 600
    told = asked(server, found, "changed", changes=[change])
    theirs = (
        models[0]
        .model.look(text, target="w20 w21")
        .intervene(Intervention("decoder", 1, "cross_attention", None, "even"))
    )
    assert told["cost"] == pytest.approx(theirs.cost, abs=1e-3)
    assert told["cost"] != 0


def test_gradients_are_the_traces(server: Running, outline: dict[str, Any], trace: Trace) -> None:
    found, theirs = asked(server, outline, "gradients"), trace.gradient_norms()
    assert [part["module"] for part in found["modules"]] == [part.module for part in theirs.modules]
    assert [part["grad_norm"] for part in found["modules"]] == pytest.approx(
        [part.grad_norm for part in theirs.modules], rel=1e-3
    )
    assert (found["loss"], found["grad_norm"]) == pytest.approx((theirs.loss, theirs.grad_norm), rel=1e-3)


def test_words_are_aligned(server: Running, outline: dict[str, Any], trace: Trace) -> None:
    found = asked(server, outline, "alignment")
    theirs = trace.alignment()
    assert found["source"] == [word.text for word in theirs.source]
    assert [(pair["target"], pair["source"]) for pair in found["pairs"]] == [pair[:2] for pair in theirs.pairs]


def test_a_target_can_be_forced(server: Running, models: list[LoadedModel]) -> None:
    found = server.post("/v1/look", {"text": TEXT, "target": "w20 w21"}).json()
    assert (found["forced"], found["forced_target"]) == (True, "w20 w21")
    assert found["target"]["tokens"] == ["w20", "w21", "[EOS]"]
    assert asked(server, found, "tree") is None
    refused = server.post("/v1/look/node", {"trace": found["id"], "node": 1})
    sentence = "This trace has no search tree; trace a translation without a forced target."
    assert (refused.status_code, refused.json()) == (400, {"error": sentence})


def test_a_writer_can_be_looked_into(server: Running) -> None:
    found = server.post("/v1/look", {"text": "w4 w5", "model": "writer", "max_length": 3}).json()
    assert found["kind"] == "continuation"
    assert asked(server, found, "tree") is None
    refused = server.post("/v1/look/alignment", {"trace": found["id"]})
    sentence = "This network has no cross-attention, so there is nothing to align."
    assert (refused.status_code, refused.json()) == (400, {"error": sentence})


def test_few_traces_are_kept(models: list[LoadedModel]) -> None:
    with running(Service(models[:1], Limits(traces=2))) as small:
        ids = [small.post("/v1/look", {"text": text}).json()["id"] for text in ("w4", "w5", "w4", "w6")]
        assert ids[0] == ids[2]
        assert small.post("/v1/look/tree", {"trace": ids[0]}).is_success, "it was asked again in between"
        found = small.post("/v1/look/tree", {"trace": ids[1]})
        sentence = f"The trace {ids[1]!r} is not kept here; ask /v1/look for it again."
        assert (found.status_code, found.json()) == (404, {"error": sentence})


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "text is missing."),
        ({"text": ""}, "The text is empty; give at least one word."),
        ({"text": "w4", "target": " "}, "The target is empty; give at least one word."),
        ({"text": "w" * 601}, "characters: 601 is more than this server's limit of 600; ask for less."),
        (
            {"text": "w4", "target": "w" * 601},
            "characters: 601 is more than this server's limit of 600; ask for less.",
        ),
        (
            {"text": "w4", "max_length": 1001},
            "max_length: 1,001 is more than this server's limit of 1,000; ask for less.",
        ),
        ({"text": "w4", "beam": 17}, "beam: 17 is more than this server's limit of 16; ask for less."),
        ({"text": "w4", "beem": 1}, "beem is not known here (did you mean beam?)."),
    ],
)
def test_what_cannot_be_looked_into_gets_a_sentence(server: Running, fields: Any, sentence: str) -> None:
    found = server.post("/v1/look", fields)
    assert (found.status_code, found.json()) == (400, {"error": sentence})


@pytest.mark.parametrize(
    ("what", "fields", "sentence"),
    [
        ("tensor", {"at": "encoder.0"}, "There is no point 'encoder.0' in this network"),
        (
            "tensor",
            {"at": "encoder.states", "rows": [0, 99]},
            "encoder.states: has rows 0 to 4, which does not contain",
        ),
        ("tensor", {"at": "encoder.states", "rows": [0]}, "rows = [0] List should have at least 2 items"),
        ("weight", {"name": "W"}, "There is no matrix 'W'"),
        ("product", {"at": "encoder.states", "row": 0, "column": 0}, "encoder.states: is not a matrix product"),
        ("product", {"at": "encoder.states", "row": -1, "column": 0}, "row = -1 should be greater than or equal to 0."),
        (
            "units",
            {"layer": "encoder.7"},
            "encoder.7: has no hidden units; the layers that have are encoder.0, encoder.1, decoder.0, decoder.1.",
        ),
        ("node", {"node": 0}, "There is no node 0; the nodes after the root are 1 to"),
        ("changed", {"changes": ["everything"]}, "There is no everything to change"),
        ("changed", {"changes": ["decoder.1.cross_attention=99"]}, "decoder.1.cross_attention=99: there is no key 99"),
        ("changed", {"changes": []}, "changes = [] List should have at least 1 item"),
        (
            "changed",
            {"changes": [f"encoder.0.attention={'0,' * 3989}00"]},  # 8,000 characters
            f"encoder.0.attention={'0,' * 49}0…: has 3990 weights for 4 keys; give one weight for each key.",
        ),
        (
            "changed",
            {"changes": [f"encoder.0.attention={'x' * 400}"]},
            f"'encoder.0.attention={'x' * 99}…' names no part to change; write",
        ),
        (
            "changed",
            {"changes": [f"encoder.0.attention={'0,' * 3990}0"]},
            f'changes.0 = "encoder.0.attention={"0," * 19}… String should have at most 8000 characters.',
        ),
    ],
)
def test_what_is_not_there_gets_a_sentence(
    server: Running, outline: dict[str, Any], what: str, fields: Any, sentence: str
) -> None:
    found = server.post(f"/v1/look/{what}", {"trace": outline["id"], **fields})
    assert found.status_code == 400
    assert found.json()["error"].startswith(sentence)


def test_what_is_served_is_told_with_its_card(server: Running) -> None:
    found = server.get("/v1/about").json()
    assert [model["name"] for model in found["models"]] == ["en-it", "it-en", "writer"]
    first = found["models"][0]
    assert (first["source"]["name"], first["target"]["name"]) == ("English", "Italian")
    assert "Encoder-decoder" in first["card"]
    assert first["settings"]["width"] == 24
