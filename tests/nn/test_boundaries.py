"""Long rows, growing caches and shared tables: cases beyond the small sizes of the property tests."""

import pytest
import torch

from family import DECODERS, VOCABULARY, make
from regard.config import DecoderOnlyConfig, WindowAttentionConfig
from regard.models import Memory, Network
from regard.nn.cpu.functional import gather_heads
from regard.nn.layout import Layout, Tokens, make_layout
from regard.nn.positions import SinusoidalPositions
from regard.nn.rotary import RotaryPositions
from regard.nn.syntax import tree_distance

GENERATING = [name for name, config in DECODERS.items() if config.generates]
LENGTHS = (39, 3, 30, 25)  # 97 tokens: more than the 64 keys of the path for short rows, and not whole blocks of 32


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", GENERATING)
def test_documents_of_a_long_row_are_independent(name: str, padded: bool) -> None:
    network = make(DECODERS[name])
    texts = [torch.randint(0, VOCABULARY, (length,)) for length in LENGTHS]
    pads = torch.zeros(5 if padded else 0).long()
    row = torch.cat([*texts, pads])[None]
    # the padding has the number of the first document, so that only the mask can exclude it
    documents = torch.cat([torch.full((length,), n) for n, length in enumerate(LENGTHS)] + [pads])[None]
    mask = torch.arange(row.size(1))[None] < sum(LENGTHS)
    together = network.decode(row, mask=mask, features={"document_ids": documents})
    alone = torch.cat([network.decode(text[None]) for text in texts], dim=1)
    torch.testing.assert_close(together[mask], alone[0], atol=1e-9, rtol=0)


def _memory(network: Network) -> Memory | None:
    return network.encode(torch.randint(0, VOCABULARY, (2, 9))) if network.encodes else None


@pytest.mark.parametrize("pieces", [[1] * 38, [2, 18, 17, 1], [20, 18], [1, 1, 36]])
@pytest.mark.parametrize("name", [name for name in DECODERS if "syntax" not in name])  # those need trees
def test_a_cache_grows_by_any_number_of_tokens(name: str, pieces: list[int]) -> None:
    network = make(DECODERS[name])
    memory, target = _memory(network), torch.randint(0, VOCABULARY, (2, sum(pieces)))
    whole = network.decode(target, memory)
    cache = network.new_cache()
    states = [network.decode(piece, memory, cache) for piece in target.split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(states, dim=1), whole, atol=1e-9, rtol=0)


def test_rotations_of_different_bases_are_not_shared() -> None:
    x, tokens = torch.randn(1, 2, 6, 8), Tokens(torch.arange(6)[None])
    near, far = RotaryPositions(100.0), RotaryPositions(10_000.0)
    first = near.rotate(x, tokens)
    assert not torch.equal(first, far.rotate(x, tokens))
    assert torch.equal(far.rotate(x, tokens), far.rotate(x, Tokens(torch.arange(6)[None])))


def test_rotations_of_different_widths_and_types_are_not_shared() -> None:
    tokens, scheme = Tokens(torch.arange(6)[None]), RotaryPositions()
    for x in (torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 8).double()):
        expected = scheme.rotate(x, Tokens(torch.arange(6)[None]))
        assert torch.equal(scheme.rotate(x, tokens), expected)


def test_head_indexes_of_different_batches_are_not_shared() -> None:
    tokens = Tokens(torch.arange(5)[None])
    for batch in (3, 1, 2):
        x = torch.randn(batch, 5, 12)
        (heads,) = gather_heads(x, tokens, heads=4)
        assert torch.equal(heads, x.unflatten(-1, (4, 3)).transpose(1, 2))


def test_the_sinusoidal_table_follows_the_type_of_its_input() -> None:
    scheme, tokens = SinusoidalPositions(8), Tokens(torch.arange(5)[None])
    single = scheme.embed(torch.zeros(1, 5, 8), tokens)
    double = scheme.embed(torch.zeros(1, 5, 8).double(), tokens)
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    exact = SinusoidalPositions(8).embed(torch.zeros(1, 5, 8).double(), tokens)
    assert torch.equal(double, exact)  # not the single-precision table, converted
    assert not torch.equal(double, single.double())


def test_a_table_made_during_inference_serves_training() -> None:
    scheme, tokens = SinusoidalPositions(8), Tokens(torch.arange(5)[None])
    with torch.inference_mode():
        scheme.embed(torch.zeros(1, 5, 8), tokens)
    x = torch.zeros(1, 5, 8, requires_grad=True)
    weight = torch.nn.Parameter(torch.ones(8))
    (scheme.embed(x, tokens) * weight).sum().backward()
    assert weight.grad is not None


def _tree_layout(depth: list[int], preorder: list[int], last: list[int]) -> Layout:
    features = {
        name: torch.tensor([values])
        for name, values in {"depth": depth, "preorder": preorder, "last_descendant": last}.items()
    }
    return make_layout(torch.zeros(1, len(depth)).long(), features=features)


def test_two_tokens_of_a_word_have_tree_distance_zero() -> None:
    """Word 1 is a child of word 0 and has two tokens; word 2 is its sibling."""
    distance = tree_distance(_tree_layout([0, 1, 1, 1], [0, 1, 1, 2], [2, 1, 1, 2]))[0, 0]
    assert distance[1, 2] == distance[2, 1] == 0
    assert distance[0].tolist() == [0, -1, -1, -1]  # the root is above all, including its last descendant
    assert distance[3].tolist() == [1, 2, 2, 0]


def test_documents_are_independent_in_a_window_around_padding() -> None:
    """Padding between two documents: blocks are made of the tokens alone, so documents must move with them."""
    window = WindowAttentionConfig(window=5)
    network = make(
        DecoderOnlyConfig(vocab_size=VOCABULARY, width=16, layers=1, heads=4, feed_forward=8, attention=window)
    )
    texts = [torch.randint(0, VOCABULARY, (1, length)) for length in (40, 57)]
    row = torch.cat([texts[0], torch.zeros(1, 3).long(), texts[1]], dim=1)
    mask = torch.ones_like(row).bool()
    mask[:, 40:43] = False
    documents = (torch.arange(row.size(1)) >= 43).long()[None]  # the padding has the number of the first document
    together = network.decode(row, mask=mask, features={"document_ids": documents})
    alone = torch.cat([network.decode(text) for text in texts], dim=1)
    torch.testing.assert_close(together[mask], alone[0], atol=1e-9, rtol=0)


@pytest.mark.parametrize("length", [33, 64, 65, 97])
def test_a_window_over_several_blocks_equals_its_mask(length: int) -> None:
    window = WindowAttentionConfig(window=3)
    network = make(
        DecoderOnlyConfig(vocab_size=VOCABULARY, width=16, layers=1, heads=4, feed_forward=8, attention=window)
    )
    ids = torch.randint(0, VOCABULARY, (2, length))
    documents = (torch.arange(length) >= length - 2).long().expand(2, length)  # the last document ends with the row
    blocks = network.decode(ids, features={"document_ids": documents})
    taps = [tap.register_forward_hook(lambda *_: None) for tap in network.taps.values()]  # open taps: the mask is used
    masked = network.decode(ids, features={"document_ids": documents})
    for tap in taps:
        tap.remove()
    torch.testing.assert_close(blocks, masked, atol=1e-9, rtol=0)
