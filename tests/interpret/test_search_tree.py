"""The search tree compared with the search itself."""

import pytest

from regard.decoding.engines import SearchRequest
from regard.decoding.engines.pytorch import TorchEngine
from regard.decoding.options import OutputConstraints, SearchOptions
from regard.interpret.decode import SearchNode, SearchTree
from regard.interpret.trace import Trace
from traces import SHORT, TRANSLATION_MODELS, make_trace


def tree_of(trace: Trace) -> SearchTree:
    assert trace.tree is not None
    return trace.tree


def best_leaf(tree: SearchTree) -> SearchNode:
    return next(node for node in reversed(tree.nodes) if node.on_best_path)


@pytest.mark.parametrize("name", TRANSLATION_MODELS)
@pytest.mark.parametrize("width", [1, 3])
def test_best_leaf_equals_the_search_without_observer(name: str, width: int) -> None:
    search = SearchOptions(beam=width, constraints=SHORT.constraints)
    trace = make_trace(name, search=search)
    tree, subject = tree_of(trace), trace.model
    source = subject.source_tokenizer.encode(trace.text)
    facts = [{key: fact[:-1] for key, fact in trace.decoded.features.items()}] if trace.parse is not None else []
    (hypothesis,) = TorchEngine([subject.network], subject.config).search(
        SearchRequest([source], search, features=facts)
    )[0]
    path = tree.path(best_leaf(tree))
    assert path == trace.decoded.target_ids
    assert (path[:-1] if hypothesis.ended else path) == hypothesis.ids
    assert best_leaf(tree).score == pytest.approx(hypothesis.score)
    assert best_leaf(tree).log_probability == pytest.approx(hypothesis.log_probability)


def test_log_probabilities_add_up_and_scores_have_the_length_penalty() -> None:
    tree = tree_of(make_trace("encoder-decoder"))
    assert len(tree.nodes) > 20
    for node in tree.nodes[1:]:
        assert node.parent is not None
        parent = tree.nodes[node.parent]
        assert node.step == parent.step + 1
        assert node.log_probability == pytest.approx(parent.log_probability + node.token_log_probability, abs=1e-5)
        assert node.score == pytest.approx(node.log_probability / ((5 + node.step + 1) / 6) ** 0.6)


def test_each_step_keeps_one_node_per_beam_and_prunes_the_rest() -> None:
    tree = tree_of(make_trace("encoder-decoder"))
    last = max(node.step for node in tree.nodes)
    for step in range(last + 1):
        states = [node.state for node in tree.nodes if node.step == step]
        assert sum(state in ("kept", "open", "cut") for state in states) == 4
        assert len(states) == 8
    parents = {node.parent for node in tree.nodes}
    for node in tree.nodes:
        if node.state in ("pruned", "finished", "open", "cut"):
            assert node.number not in parents


def test_unfinished_hypotheses_are_cut() -> None:
    trace = make_trace(
        "encoder-decoder", search=SearchOptions(constraints=OutputConstraints(min_tokens=3, max_tokens=3))
    )
    leaves = [node for node in tree_of(trace).nodes if node.state == "cut"]
    ended = [node for node in tree_of(trace).nodes if node.state == "finished"]
    assert bool(leaves) != bool(ended)


def test_score_of_a_finished_hypothesis_includes_the_coverage_penalty() -> None:
    search = SearchOptions(coverage_penalty=0.5, constraints=SHORT.constraints)
    trace = make_trace("encoder-decoder", search=search)
    assert trace.decoded.hypothesis is not None
    assert best_leaf(tree_of(trace)).score == pytest.approx(trace.decoded.hypothesis.score)
