"""Syntax positions: distances equal those of walking up the tree, and networks learn from the tree."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from regard.config import Config, EncoderDecoderConfig, SyntaxPositionsConfig
from regard.data import syntax as trees
from regard.data.batching import pad_features
from regard.errors import InputError
from regard.models import build
from regard.nn import FusedSyntaxPositions, Positions, SinusoidalPositions, make_layout, sinusoidal_table
from regard.nn import SyntaxPositions as SyntaxScheme
from regard.nn.positions import RelativeVectors
from regard.nn.syntax import TREE_FEATURES, TreeVectors, tree_distance
from toy_trees import distance, random_heads, up


def features(heads: list[int], words: list[int]) -> dict[str, list[int]]:
    """Return the features of tokens that belong to these words, numbered from 1."""
    tree = trees.tree_positions(heads)
    return {name: [tree[word - 1][n] for word in words] for n, name in enumerate(TREE_FEATURES)}


def as_tensors(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(values) for name, values in pad_features(rows).items()}


@st.composite
def sentences(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Draw a tree, and for each token its word: every word has one token or more."""
    seed, count = draw(st.integers(0, 2**31)), draw(st.integers(1, 9))
    heads = random_heads(count, random.Random(seed))
    pieces = draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    return heads, [word for word, times in enumerate(pieces, start=1) for _ in range(times)]


@pytest.mark.parametrize("edges_only", [False, True])
@given(rows=st.lists(sentences(), min_size=1, max_size=3))
def test_distances_equal_those_of_walking_up_the_tree(
    edges_only: bool, rows: list[tuple[list[int], list[int]]]
) -> None:
    token_features = as_tensors([features(heads, words) for heads, words in rows])
    lengths = [len(words) + 1 for _, words in rows]
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    distances = tree_distance(make_layout(mask.long(), mask, features=token_features), edges_only=edges_only)
    for row, (heads, words) in enumerate(rows):
        root = heads.index(0) + 1
        tree, tokens = [*heads, root], [*words, len(heads) + 1]  # the end token depends on the root
        expected = [[distance(tree, i, j, edges_only=edges_only) for j in tokens] for i in tokens]
        assert distances[row, 0, : len(tokens), : len(tokens)].tolist() == expected
        assert token_features["depth"][row, : len(tokens)].tolist() == [len(up(tree, word)) - 1 for word in tokens]


def test_distances_of_an_example() -> None:
    """Bush held a talk: `held` is the root, `a` depends on `talk`."""
    token_features = as_tensors([features([2, 0, 4, 2], [1, 2, 3, 4])])
    distances = tree_distance(make_layout(torch.ones(1, 5).long(), features=token_features))[0, 0].tolist()
    assert distances[0] == [
        0,
        1,
        -3,
        -2,
        -2,
    ]  # Bush: held is its head; the others are later, through the root
    assert distances[1] == [-1, 0, -2, -1, -1]  # held: all others are below
    assert distances[2] == [3, 2, 0, 1, -3]  # a: talk is one step toward the root


def test_the_two_readings_of_the_relative_rule_differ_for_a_distant_ancestor() -> None:
    """In "Bush held a talk", `held` is the head of the head of `a`."""
    layout = make_layout(torch.ones(1, 5).long(), features=as_tensors([features([2, 0, 4, 2], [1, 2, 3, 4])]))
    path, edge = (tree_distance(layout, edges_only=edges_only)[0, 0].tolist() for edges_only in (False, True))
    assert (path[1][2], edge[1][2]) == (-2, -2)  # from the root, both readings give the depth: `a` comes later
    deeper = make_layout(torch.ones(1, 5).long(), features=as_tensors([features([0, 1, 2, 3], [1, 2, 3, 4])]))
    path, edge = (tree_distance(deeper, edges_only=edges_only)[0, 0].tolist() for edges_only in (False, True))
    assert (path[3][1], edge[3][1]) == (2, 4)  # the fourth word has depth 3, the second is its head's head, depth 1
    assert (path[3][2], edge[3][2]) == (1, 1)  # its head


def test_the_readings_are_not_mixed_up_between_networks_or_layers() -> None:
    layout = make_layout(torch.ones(1, 5).long(), features=as_tensors([features([0, 1, 2, 3], [1, 2, 3, 4])]))
    vectors = [
        TreeVectors(max_distance=9, per_head=False, heads=2, key_width=4, value_width=4, scale=1.0, edges_only=edges)
        for edges in (False, True)
    ]
    q = torch.randn(1, 2, 5, 4)
    vectors[1].load_state_dict(vectors[0].state_dict())
    path, edge = (part.bias(q, layout) for part in vectors)
    assert torch.equal(path[..., 3, 2], edge[..., 3, 2])
    assert not torch.equal(path[..., 3, 1], edge[..., 3, 1])


def test_fused_positions_equal_the_formula() -> None:
    scheme = FusedSyntaxPositions(SinusoidalPositions(4), width=4, max_depth=2, max_distance=0)
    layout = make_layout(torch.ones(1, 3).long(), features={"depth": torch.tensor([[1, 0, 7]])})
    x = torch.randn(1, 3, 4)
    order, weight, bias = sinusoidal_table(3, 4).float(), scheme.fusion.weight, scheme.fusion.bias
    assert scheme.weight is not None
    depth = scheme.weight[[1, 0, 2]]
    expected = x + torch.tanh(order @ weight[:, :4].T + depth @ weight[:, 4:].T + bias)
    torch.testing.assert_close(scheme.embed(x, layout.queries), expected)


def test_feature_names_are_the_same_in_data_and_nn() -> None:
    assert TREE_FEATURES == trees.SYNTAX_FEATURES


def test_a_missing_parse_is_an_error() -> None:
    network = build(EncoderDecoderConfig(vocab_size=9, width=8, heads=2, layers=1, positions=SyntaxPositionsConfig()))
    with pytest.raises(InputError) as error:
        network.encode(torch.ones(1, 3).long())
    assert str(error.value) == (
        "This network uses the dependency tree of each sentence (syntax positions), but no parse was given: "
        "provide a parse for every sentence."
    )


def test_depths_are_clipped() -> None:
    scheme = SyntaxScheme(Positions(), width=4, max_depth=2, max_distance=0)
    layout = make_layout(torch.ones(1, 4).long(), features={"depth": torch.tensor([[1, 2, 3, 9]])})
    added = scheme.embed(torch.zeros(1, 4, 4), layout.queries)[0]
    assert torch.equal(added[1], added[2])
    assert torch.equal(added[1], added[3])
    assert not torch.equal(added[0], added[1])


def test_depth_or_distance_can_be_turned_off() -> None:
    def parts(**settings: bool) -> tuple[bool, bool]:
        config = EncoderDecoderConfig(
            vocab_size=9, width=8, heads=2, layers=1, positions=SyntaxPositionsConfig.model_validate(settings)
        )
        network = build(config)
        vectors = any(isinstance(part, RelativeVectors) for part in network.modules())
        return "encoder.embedding.positions.weight" in dict(network.named_parameters()), vectors

    assert parts() == (True, True)
    assert parts(distance=False) == (True, False)
    assert parts(depth=False) == (False, True)


def test_the_decoder_has_sinusoidal_positions() -> None:
    network = build(EncoderDecoderConfig(vocab_size=9, width=8, heads=2, layers=1, positions=SyntaxPositionsConfig()))
    learned = [name for name, _ in network.named_parameters() if "positions" in name]
    assert all(name.startswith("encoder.") for name in learned)
    assert "decoder.embedding.positions.vectors" in network.taps


def accuracy(positions: SyntaxPositionsConfig | str, steps: int = 150) -> float:
    """Return how often a network predicts the head of the marked word, on unseen trees after a short training."""
    torch.manual_seed(0)
    draw = random.Random(0)
    words, length = 8, 6
    config = EncoderDecoderConfig.model_validate(
        {"vocab_size": 2 * words + 2, "width": 32, "heads": 4, "layers": 2, "feed_forward": 64, "dropout": 0.0}
        | {"positions": positions}
    )
    network = build(config).train()
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)

    def predict(rows: int) -> tuple[Tensor, Tensor]:
        ids = torch.stack([torch.tensor(draw.sample(range(words), length)) for _ in range(rows)])
        trees_of = [random_heads(length, draw) for _ in range(rows)]
        marked = [draw.choice([n for n, head in enumerate(heads) if head]) for heads in trees_of]
        heads = torch.tensor([heads[n] - 1 for heads, n in zip(trees_of, marked, strict=True)])
        answer = ids.gather(1, heads[:, None])[:, 0]
        token_features = as_tensors([features(heads, list(range(1, length + 1))) for heads in trees_of])
        ids[torch.arange(rows), torch.tensor(marked)] += words  # a marked word has a token of its own
        source = torch.cat([ids, torch.full((rows, 1), 2 * words)], dim=1)
        return network(source, torch.full((rows, 1), 2 * words + 1), source_features=token_features)[:, 0], answer

    for _ in range(steps):
        logits, answer = predict(32)
        optimizer.zero_grad()
        F.cross_entropy(logits, answer).backward()
        optimizer.step()
    with torch.no_grad():
        logits, answer = predict(300)
    return (logits.argmax(-1) == answer).float().mean().item()


@pytest.mark.slow
def test_a_network_learns_what_only_the_tree_contains() -> None:
    """The head of a marked word: nearly always right with the tree, hardly better than chance without."""
    assert accuracy(SyntaxPositionsConfig(max_distance=8)) > 0.9
    assert accuracy(SyntaxPositionsConfig(max_distance=12, fusion="nonlinear", relation="edge")) > 0.9
    assert accuracy("sinusoidal", steps=100) < 0.4


def test_syntax_positions_need_parses() -> None:
    assert Config(model=EncoderDecoderConfig(positions=SyntaxPositionsConfig())).model.needs_parses
    assert not Config().model.needs_parses
