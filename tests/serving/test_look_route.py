"""`/v1/look`: traces over HTTP equal those of the Python API; invalid requests get a message."""

from typing import Any

import numpy as np
import pytest

from regard.interpret.interventions import Intervention
from regard.interpret.trace import Trace
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel
from regard.serving.service import Service
from servers import RunningServer, run_server

TEXT = "w5 w9 w12"


@pytest.fixture(scope="module")
def trace(loaded_models: list[LoadedModel]) -> Trace:
    return loaded_models[0].model.look(TEXT, beam=4)


@pytest.fixture(scope="module")
def outline(server: RunningServer) -> dict[str, Any]:
    response: dict[str, Any] = server.post("/v1/look", {"text": TEXT}).json()
    return response


def read(server: RunningServer, outline: dict[str, Any], what: str, **fields: Any) -> Any:
    """Read from the trace of an outline."""
    response = server.post(f"/v1/look/{what}", {"trace": outline["id"], **fields})
    assert response.is_success, response.text
    return response.json()


def test_the_outline_equals_the_traces(outline: dict[str, Any], trace: Trace) -> None:
    expected = trace.outline()
    assert outline["output"] == trace.output
    assert [step["token"] for step in outline["steps"]] == [step.token for step in trace.steps]
    assert outline["points"] == expected["points"]
    assert outline["model"]["name"] == "en-it", "the served name, not the folder"


def test_equal_requests_have_equal_ids(server: RunningServer, outline: dict[str, Any]) -> None:
    assert server.post("/v1/look", {"text": TEXT}).json()["id"] == outline["id"]
    assert server.post("/v1/look", {"text": TEXT, "beam": 1}).json()["id"] != outline["id"]


class TestSentences:
    """`/v1/look/sentences`: parts of a text that `/v1/look` accepts."""

    def test_texts_of_translators_are_split(self, server: RunningServer) -> None:
        parts = server.post("/v1/look/sentences", {"text": " W5 w6. W7!\n\nw8 "}).json()
        assert [part["text"] for part in parts["sentences"]] == ["W5 w6.", "W7!", "w8"]
        assert parts["whole"] == {"text": "W5 w6. W7!\n\nw8", "shortened": False, "characters": 14}

    def test_texts_of_other_models_stay_whole(self, server: RunningServer, loaded_models: list[LoadedModel]) -> None:
        fields = {"text": "W5 w6. W7!", "model": loaded_models[2].name}
        parts = server.post("/v1/look/sentences", fields).json()
        assert [part["text"] for part in parts["sentences"]] == ["W5 w6. W7!"]

    @pytest.mark.slow
    @pytest.mark.parametrize("model", [0, 2])
    def test_the_beginning_of_a_long_text_can_be_traced(
        self, server: RunningServer, loaded_models: list[LoadedModel], model: int
    ) -> None:
        fields = {"text": "w5 w16 " * 200, "model": loaded_models[model].name}
        (part,) = server.post("/v1/look/sentences", fields).json()["sentences"]
        assert (part["shortened"], part["characters"]) == (True, 1399)
        assert set(part["text"].split(" ")) == {"w5", "w16"}, "no word is cut"
        assert server.post("/v1/look", {**fields, "text": part["text"]}).is_success

    def test_one_long_word_is_cut(self, server: RunningServer) -> None:
        (part,) = server.post("/v1/look/sentences", {"text": "w" * 700}).json()["sentences"]
        assert part["text"] == "w" * 600

    def test_the_text_is_limited(self, server: RunningServer) -> None:
        response = server.post("/v1/look/sentences", {"text": "w" * 20_001})
        assert response.status_code == 400
        assert "characters: 20,001 exceeds this server's limit of 20,000" in response.text


def test_tensors_are_read_by_address(server: RunningServer, outline: dict[str, Any], trace: Trace) -> None:
    at = "decoder.1.cross_attention.weights[2]"
    response = read(server, outline, "tensor", at=at)
    expected: dict[str, Any] = {**trace.tensor(at).as_dict()}
    assert response["labels"] == expected["labels"]
    assert np.allclose(response["values"], expected["values"])
    part = read(server, outline, "tensor", at=at, rows=[0, 1], columns=[1, 3])
    assert part["values"] == [response["values"][0][1:3]]


def test_masked_values_are_null(server: RunningServer, outline: dict[str, Any]) -> None:
    masked = read(server, outline, "tensor", at="decoder.0.attention.masked[0]")["values"]
    assert [masked[row][column] is None for row in range(2) for column in range(2)] == [False, True, False, False]


def test_matrices_products_and_the_tree_equal_the_traces(
    server: RunningServer, outline: dict[str, Any], trace: Trace
) -> None:
    weight = read(server, outline, "weight", name="encoder.0.attention.W_q", head=1, columns=[0, 2])
    assert weight["values"] == trace.weight("encoder.0.attention.W_q", head=1, columns=(0, 2)).as_dict()["values"]
    product = read(server, outline, "product", at="encoder.0.attention.q[1]", row=2, column=3)
    assert sum(term["product"] for term in product["terms"]) == pytest.approx(product["value"], abs=1e-5)
    tree = read(server, outline, "tree")
    assert trace.tree is not None
    assert [node["token_id"] for node in tree["nodes"]] == [node.token_id for node in trace.tree.nodes]


def test_nodes_of_the_tree_have_tokens_and_attention(
    server: RunningServer, outline: dict[str, Any], trace: Trace
) -> None:
    assert trace.tree is not None
    for node in trace.tree.nodes[1:8]:
        response = read(server, outline, "node", node=node.number, at="decoder.1.cross_attention")
        assert response["tokens"] == trace.model.target_tokenizer.ids_to_tokens(trace.tree.path(node))
        assert [sum(row) for row in response["attention"]["values"]] == pytest.approx([1.0] * 4)
    best = [node for node in trace.tree.nodes if node.on_best_path][2]
    taken = read(server, outline, "node", node=best.number, at="decoder.1.cross_attention")["attention"]["values"]
    assert np.allclose(taken, trace.activation("decoder.1.cross_attention.weights")[:, 1], atol=1e-5)


def test_active_hidden_units_are_counted(server: RunningServer, outline: dict[str, Any], trace: Trace) -> None:
    response = read(server, outline, "units", layer="decoder.1")
    active = (trace.activation("decoder.1.feed_forward.hidden") > 0).sum(-1).tolist()
    assert response == {"layer": "decoder.1", "units": 20, "active": active}


def test_heads_can_be_switched_off(server: RunningServer, outline: dict[str, Any], trace: Trace) -> None:
    response = read(server, outline, "intervene", interventions=["decoder.1.cross_attention[2]", "encoder.0"])
    expected = trace.intervene(Intervention.parse("decoder.1.cross_attention[2]"), Intervention.parse("encoder.0"))
    assert (response["before"], response["after"], response["first_difference"]) == (
        expected.before,
        expected.after,
        expected.first_difference,
    )
    assert response["cost"] == pytest.approx(expected.cost, abs=1e-4)
    heads = read(server, outline, "heads")
    assert len(heads) == len(trace.head_costs())
    assert heads[0]["name"] == "encoder.0.attention[0]"


def test_attention_can_be_overridden_with_a_weight_for_each_key_of_a_long_text(
    server: RunningServer, loaded_models: list[LoadedModel]
) -> None:
    text = " ".join(f"w{4 + n % 25}" for n in range(59))
    response = server.post("/v1/look", {"text": text, "target": "w20 w21"}).json()
    weights = ",".join(["0.0166667"] * 60)  # of its words and its end
    change = f"decoder.1.cross_attention={weights}"
    assert len(change) > 600
    result = read(server, response, "intervene", interventions=[change])
    expected = (
        loaded_models[0]
        .model.look(text, target="w20 w21")
        .intervene(Intervention("decoder", 1, "cross_attention", None, "even"))
    )
    assert result["cost"] == pytest.approx(expected.cost, abs=1e-3)
    assert result["cost"] != 0


def test_gradients_equal_the_traces(server: RunningServer, outline: dict[str, Any], trace: Trace) -> None:
    response, expected = read(server, outline, "gradients"), trace.gradient_norms()
    assert [part["module"] for part in response["modules"]] == [part.module for part in expected.modules]
    assert [part["grad_norm"] for part in response["modules"]] == pytest.approx(
        [part.grad_norm for part in expected.modules], rel=1e-3
    )
    assert (response["loss"], response["grad_norm"]) == pytest.approx((expected.loss, expected.grad_norm), rel=1e-3)


def test_words_are_aligned(server: RunningServer, outline: dict[str, Any], trace: Trace) -> None:
    response = read(server, outline, "alignment")
    expected = trace.alignment()
    assert response["source"] == [word.text for word in expected.source]
    assert [(pair["target"], pair["source"]) for pair in response["pairs"]] == [pair[:2] for pair in expected.pairs]


def test_a_target_can_be_forced(server: RunningServer, loaded_models: list[LoadedModel]) -> None:
    response = server.post("/v1/look", {"text": TEXT, "target": "w20 w21"}).json()
    assert (response["forced"], response["forced_target"]) == (True, "w20 w21")
    assert response["target"]["tokens"] == ["w20", "w21", "[EOS]"]
    assert read(server, response, "tree") is None
    refused = server.post("/v1/look/node", {"trace": response["id"], "node": 1})
    message = "This trace has no search tree; trace a translation without a forced target."
    assert (refused.status_code, refused.json()) == (400, {"error": message})


def test_a_language_model_can_be_traced(server: RunningServer) -> None:
    response = server.post("/v1/look", {"text": "w4 w5", "model": "writer", "max_tokens": 3}).json()
    assert response["kind"] == "continuation"
    assert read(server, response, "tree") is None
    refused = server.post("/v1/look/alignment", {"trace": response["id"]})
    message = "This network has no cross-attention, so there is nothing to align."
    assert (refused.status_code, refused.json()) == (400, {"error": message})


@pytest.mark.slow
def test_the_least_recently_used_trace_is_dropped(loaded_models: list[LoadedModel]) -> None:
    with run_server(Service(loaded_models[:1], Limits(max_traces=2))) as small:
        ids = [small.post("/v1/look", {"text": text}).json()["id"] for text in ("w4", "w5", "w4", "w6")]
        assert ids[0] == ids[2]
        assert small.post("/v1/look/tree", {"trace": ids[0]}).is_success, "it was used in between"
        response = small.post("/v1/look/tree", {"trace": ids[1]})
        message = f"The trace {ids[1]!r} is no longer stored; request it again from /v1/look."
        assert (response.status_code, response.json()) == (404, {"error": message})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "text is missing."),
        ({"text": ""}, "The text is empty; give at least one word."),
        ({"text": "w4", "target": " "}, "The target is empty; give at least one word."),
        ({"text": "w" * 601}, "characters: 601 exceeds this server's limit of 600; reduce it."),
        (
            {"text": "w4", "target": "w" * 601},
            "characters: 601 exceeds this server's limit of 600; reduce it.",
        ),
        (
            {"text": "w4", "max_tokens": 1001},
            "max_tokens: 1,001 exceeds this server's limit of 1,000; reduce it.",
        ),
        ({"text": "w4", "beam": 17}, "beam: 17 exceeds this server's limit of 16; reduce it."),
        ({"text": "w4", "beem": 1}, "Unknown field beem (did you mean beam?)."),
    ],
)
def test_texts_that_cannot_be_traced_get_a_message(server: RunningServer, fields: Any, message: str) -> None:
    response = server.post("/v1/look", fields)
    assert (response.status_code, response.json()) == (400, {"error": message})


@pytest.mark.parametrize(
    ("what", "fields", "message"),
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
            "encoder.7: has no hidden units; layers with hidden units are encoder.0, encoder.1, decoder.0, decoder.1.",
        ),
        ("node", {"node": 0}, "There is no node 0; the nodes after the root are 1 to"),
        ("intervene", {"interventions": ["everything"]}, "There is no everything to change"),
        (
            "intervene",
            {"interventions": ["decoder.1.cross_attention=99"]},
            "decoder.1.cross_attention=99: there is no key 99",
        ),
        ("intervene", {"interventions": []}, "interventions = [] List should have at least 1 item"),
        (
            "intervene",
            {"interventions": [f"encoder.0.attention={'0,' * 3989}00"]},  # 8,000 characters
            f"encoder.0.attention={'0,' * 49}0…: has 3990 weights for 4 keys; give one weight for each key.",
        ),
        (
            "intervene",
            {"interventions": [f"encoder.0.attention={'x' * 400}"]},
            f"'encoder.0.attention={'x' * 99}…' names no part to change; write",
        ),
        (
            "intervene",
            {"interventions": [f"encoder.0.attention={'0,' * 3990}0"]},
            f'interventions.0 = "encoder.0.attention={"0," * 19}… String should have at most 8000 characters.',
        ),
    ],
)
def test_invalid_reads_get_a_message(
    server: RunningServer, outline: dict[str, Any], what: str, fields: Any, message: str
) -> None:
    response = server.post(f"/v1/look/{what}", {"trace": outline["id"], **fields})
    assert response.status_code == 400
    assert response.json()["error"].startswith(message)


def test_models_are_described_with_their_cards(server: RunningServer) -> None:
    response = server.get("/v1/about").json()
    assert [model["name"] for model in response["models"]] == ["en-it", "it-en", "writer"]
    first = response["models"][0]
    assert (first["source"]["name"], first["target"]["name"]) == ("English", "Italian")
    assert "Encoder-decoder" in first["card"]
    assert first["settings"]["width"] == 24
