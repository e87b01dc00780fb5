"""Batches for language models: every token is predicted once an epoch, from what it may see."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import SpecialTokensConfig
from regard.data.batching import DataPosition
from regard.data.language_batches import (
    BlockBatches,
    LanguageBatch,
    PackedBatches,
    TokenStream,
    pack_sequences,
    validation_batches,
)
from regard.data.store import TokenColumn
from regard.errors import DataError

SPECIAL = SpecialTokensConfig()
KINDS = [BlockBatches, PackedBatches]
LENGTHS = st.lists(st.integers(0, 30), min_size=1, max_size=12)
Kind = type[BlockBatches] | type[PackedBatches]


def column(lengths: list[int]) -> TokenColumn:
    """Documents of these lengths in which no token comes twice."""
    return TokenColumn(np.arange(4, 4 + sum(lengths), dtype=np.uint16), np.array(list(accumulate(lengths)), np.int64))


def documents(of: TokenColumn) -> list[list[int]]:
    return [of[n].tolist() for n in range(len(of.ends))]


def predictions(batches: Iterator[LanguageBatch]) -> Counter[tuple[int, int]]:
    """What is read and what is predicted from it, wherever something is."""
    return Counter(
        pair
        for batch in batches
        for pair in zip(
            batch.ids[... if batch.mask is None else batch.mask].ravel().tolist(),
            batch.labels[... if batch.mask is None else batch.mask].ravel().tolist(),
            strict=True,
        )
    )


def expected(of: TokenColumn) -> Counter[tuple[int, int]]:
    return Counter(pair for text in documents(of) for pair in zip([2, *text], [*text, 3], strict=True))


@pytest.mark.parametrize("kind", KINDS)
@given(lengths=LENGTHS, length=st.integers(1, 40), tokens=st.integers(1, 100), epoch=st.integers(0, 3))
def test_every_token_is_predicted_once_an_epoch(
    kind: Kind, lengths: list[int], length: int, tokens: int, epoch: int
) -> None:
    batches = list(kind(column(lengths), length, tokens, SPECIAL).epoch(epoch))
    assert predictions(iter(batches)) == expected(column(lengths))
    for batch in batches:
        assert batch.ids.shape == batch.labels.shape
        assert batch.ids.shape[1] <= length
        assert batch.ids.size <= tokens or batch.ids.shape[0] == 1
        if batch.mask is not None:
            assert not batch.mask.all()
            assert (batch.ids[~batch.mask] == SPECIAL.pad).all()
            assert (batch.labels[~batch.mask] == SPECIAL.pad).all()


@pytest.mark.parametrize("separate", [False, True])
@given(lengths=LENGTHS, length=st.integers(1, 40), tokens=st.integers(1, 100))
def test_validation_predicts_every_token_once(separate: bool, lengths: list[int], length: int, tokens: int) -> None:
    batches = list(validation_batches(column(lengths), length, tokens, SPECIAL, separate=separate))
    assert predictions(iter(batches)) == expected(column(lengths))
    if not separate:
        read = [n for batch in batches for n in batch.labels[... if batch.mask is None else batch.mask].ravel()]
        assert read == [n for text in documents(column(lengths)) for n in [*text, 3]]


@given(lengths=LENGTHS, data=st.data())
def test_a_span_of_the_stream_is_what_the_documents_say(lengths: list[int], data: st.DataObject) -> None:
    stream = TokenStream(column(lengths), SPECIAL)
    read = [n for text in documents(stream.column) for n in [2, *text]]
    predicted = [n for text in documents(stream.column) for n in [*text, 3]]
    assert len(stream) == len(read)
    start = data.draw(st.integers(0, len(stream) - 1))
    end = data.draw(st.integers(start + 1, len(stream)))
    assert [ids.tolist() for ids in stream.read(start, end)] == [read[start:end], predicted[start:end]]


@given(lengths=LENGTHS, length=st.integers(1, 40), tokens=st.integers(1, 100), epoch=st.integers(0, 3))
def test_packed_documents_never_mix(lengths: list[int], length: int, tokens: int, epoch: int) -> None:
    texts = column(lengths)
    owner = {token: n for n, text in enumerate(documents(texts)) for token in text}
    for batch in PackedBatches(texts, length, tokens, SPECIAL).epoch(epoch):
        assert batch.document_ids is not None
        real = np.ones_like(batch.ids, np.bool_) if batch.mask is None else batch.mask
        assert ((batch.document_ids > 0) == real).all()
        for ids, predicted, numbers in zip(batch.ids, batch.labels, batch.document_ids, strict=True):
            for number in range(1, numbers.max() + 1):
                (places,) = np.nonzero(numbers == number)
                assert places.tolist() == list(range(places[0], places[-1] + 1))
                own = [n for n in [*ids[places].tolist(), *predicted[places].tolist()] if n > 3]
                assert len({owner[n] for n in own}) <= 1
                assert ids[places][1:].tolist() == predicted[places][:-1].tolist()
                assert set(ids[places][1:].tolist()).isdisjoint({2, 3})


@given(st.lists(st.integers(1, 20), min_size=1, max_size=60))
def test_packing_keeps_the_capacity(lengths: list[int]) -> None:
    rows = pack_sequences(np.array(lengths), 20)
    filled = np.bincount(rows, lengths)
    assert filled.max() <= 20
    assert filled.min() > 0
    assert np.sort(filled)[:2].sum() > 20 or len(filled) == 1  # no two rows would have fitted one


def test_few_tokens_of_packed_rows_are_pads() -> None:
    lengths = np.random.default_rng(0).gamma(2, 60, 5_000).astype(np.int64) % 400
    batches = list(PackedBatches(column(lengths.tolist()), 512, 8192, SPECIAL).epoch(0))
    size = sum(batch.ids.size for batch in batches)
    assert 1 - (lengths.sum() + len(lengths)) / size < 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_epochs_differ_and_seeds_differ_and_each_repeats(kind: Kind) -> None:
    texts = column([7, 30, 0, 12, 90, 3] * 5)

    def order(seed: int, epoch: int) -> list[object]:
        return [batch.ids.tolist() for batch in kind(texts, 16, 64, SPECIAL, seed).epoch(epoch)]

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)


def test_the_borders_of_blocks_move() -> None:
    texts = column([1000])
    first = [
        {int(row[0]) for b in BlockBatches(texts, 50, 100, SPECIAL).epoch(epoch) for row in b.ids} for epoch in (0, 1)
    ]
    assert not first[0] & first[1] - {SPECIAL.start}


def test_records_of_one_width_are_met_at_many_places_in_one_epoch() -> None:
    width, length = 16, 64
    places = np.arange(200_000) % width  # each token is its place in its record
    texts = TokenColumn(places.astype(np.uint16), np.array([200_000]))
    for epoch in range(2):
        first = [int(row[0]) for batch in BlockBatches(texts, length, 1024, SPECIAL).epoch(epoch) for row in batch.ids]
        met = np.bincount(first, minlength=width)
        assert met.min() > 0
        assert met.max() < 0.2 * len(first)


def test_segments_do_not_cost_a_block() -> None:
    texts = column([50_000])
    rows = [row for batch in BlockBatches(texts, 64, 1024, SPECIAL).epoch(0) for row in batch.ids]
    assert len(rows) == -(-50_001 // 64)


@pytest.mark.parametrize("kind", KINDS)
@given(start=st.integers(0, 40))
def test_a_place_is_enough_to_go_on(kind: Kind, start: int) -> None:
    batches = kind(column([7, 30, 0, 12, 90, 3]), 16, 40, SPECIAL, seed=3)
    whole = list(islice(batches.iterate(), 50))
    place = whole[start - 1][0] if start else DataPosition()
    assert whole[-1][0].epoch > 1
    for (here, expected), (there, resumed) in zip(whole[start:], batches.iterate(place), strict=False):
        assert here == there
        assert expected.ids.tolist() == resumed.ids.tolist()
        assert expected.labels.tolist() == resumed.labels.tolist()


def test_one_large_document() -> None:
    texts = column([10_000])
    blocks = list(BlockBatches(texts, 64, 1024, SPECIAL).epoch(0))
    assert [batch.ids.shape for batch in blocks[:-1]] == [(16, 64)] * 9
    assert predictions(iter(blocks)) == expected(texts)
    packed = list(PackedBatches(texts, 64, 1024, SPECIAL).epoch(0))
    assert predictions(iter(packed)) == expected(texts)


def test_a_text_that_is_shorter_than_a_block_is_read_whole() -> None:
    for kind in KINDS:
        for epoch in range(3):
            (batch,) = kind(column([5]), 64, 1024, SPECIAL).epoch(epoch)
            assert batch.ids.tolist() == [[2, 4, 5, 6, 7, 8]]
            assert batch.labels.tolist() == [[4, 5, 6, 7, 8, 3]]
            assert batch.mask is None


def test_empty_documents_still_end() -> None:
    (batch,) = PackedBatches(column([0, 2, 0]), 8, 8, SPECIAL).epoch(0)
    assert batch.ids.tolist() == [[2, 2, 2, 4, 5]]
    assert batch.labels.tolist() == [[3, 3, 4, 5, 3]]
    assert batch.document_ids is not None
    assert batch.document_ids.tolist() == [[1, 2, 3, 3, 3]]


def test_processes_share_the_rows_of_a_batch() -> None:
    (batch,) = PackedBatches(column([3, 5, 2, 5]), 6, 100, SPECIAL).epoch(0)
    shares = [batch.rows(rank, 2) for rank in range(2)]
    assert batch.mask is not None
    for name in ("ids", "labels", "mask", "document_ids"):
        whole = getattr(batch, name)
        assert [row.tolist() for row in getattr(shares[0], name)] == whole[0::2].tolist()
        assert [row.tolist() for row in getattr(shares[1], name)] == whole[1::2].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_gets_a_sentence(kind: Kind) -> None:
    with pytest.raises(DataError) as error:
        next(kind(column([]), 8, 8, SPECIAL).iterate())
    assert str(error.value) == "there is no text to make batches of; pass some."


def test_a_thousand_million_tokens_fit_a_small_memory() -> None:
    program = """
import resource
from itertools import islice
import numpy as np
from regard.config import SpecialTokensConfig
from regard.data.language_batches import BlockBatches
from regard.data.store import TokenColumn
ids = np.broadcast_to(np.uint16(7), 10**9)  # takes no memory
blocks = BlockBatches(TokenColumn(ids, np.arange(1, 1001) * 10**6), 1024, 16384, SpecialTokensConfig())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for place, batch in islice(blocks.iterate(), 100):
    assert batch.ids.shape == (16, 1024)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 200_000, grown
"""
    subprocess.run([sys.executable, "-c", program], check=True)
