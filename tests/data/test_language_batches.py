"""Batches for language models: every token is predicted once per epoch."""

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
from regard.data.batching import CorpusWeights, DataPosition
from regard.data.language_batches import (
    BlockBatches,
    LanguageBatch,
    PackedBatches,
    TokenStream,
    pack_sequences,
    validation_source,
)
from regard.data.store import TokenColumn
from regard.errors import DataError

SPECIAL = SpecialTokensConfig()
BATCH_TYPES = [BlockBatches, PackedBatches]
LENGTHS = st.lists(st.integers(0, 30), min_size=1, max_size=12)
BatchType = type[BlockBatches] | type[PackedBatches]


def column(lengths: list[int]) -> TokenColumn:
    """Return documents of these lengths, in which every token is different."""
    return TokenColumn(np.arange(4, 4 + sum(lengths), dtype=np.uint16), np.array(list(accumulate(lengths)), np.int64))


def documents(of: TokenColumn) -> list[list[int]]:
    return [of[n].tolist() for n in range(len(of.ends))]


def predictions(batches: Iterator[LanguageBatch]) -> Counter[tuple[int, int]]:
    """Count pairs of input token and label, without padding."""
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


@pytest.mark.parametrize("batch_type", BATCH_TYPES)
@given(lengths=LENGTHS, length=st.integers(1, 40), tokens=st.integers(1, 100), epoch=st.integers(0, 3))
def test_every_token_is_predicted_once_per_epoch(
    batch_type: BatchType, lengths: list[int], length: int, tokens: int, epoch: int
) -> None:
    batches = list(batch_type(column(lengths), length, tokens, SPECIAL).epoch(epoch))
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
    batches = list(validation_source(column(lengths), length, tokens, SPECIAL, separate=separate).epoch(0))
    assert predictions(iter(batches)) == expected(column(lengths))
    if not separate:
        read = [n for batch in batches for n in batch.labels[... if batch.mask is None else batch.mask].ravel()]
        assert read == [n for text in documents(column(lengths)) for n in [*text, 3]]


@given(lengths=LENGTHS, data=st.data())
def test_spans_equal_the_documents(lengths: list[int], data: st.DataObject) -> None:
    stream = TokenStream(column(lengths), SPECIAL)
    read = [n for text in documents(stream.column) for n in [2, *text]]
    predicted = [n for text in documents(stream.column) for n in [*text, 3]]
    assert len(stream) == len(read)
    start = data.draw(st.integers(0, len(stream) - 1))
    end = data.draw(st.integers(start + 1, len(stream)))
    assert [ids.tolist() for ids in stream.read(start, end)] == [read[start:end], predicted[start:end]]


@given(lengths=LENGTHS, length=st.integers(1, 40), tokens=st.integers(1, 100), epoch=st.integers(0, 3))
def test_packed_documents_are_separate(lengths: list[int], length: int, tokens: int, epoch: int) -> None:
    texts = column(lengths)
    owner = {token: n for n, text in enumerate(documents(texts)) for token in text}
    for batch in PackedBatches(texts, length, tokens, SPECIAL).epoch(epoch):
        assert batch.document_ids is not None
        mask = np.ones_like(batch.ids, np.bool_) if batch.mask is None else batch.mask
        assert ((batch.document_ids > 0) == mask).all()
        for ids, predicted, numbers in zip(batch.ids, batch.labels, batch.document_ids, strict=True):
            for number in range(1, numbers.max() + 1):
                (positions,) = np.nonzero(numbers == number)
                assert positions.tolist() == list(range(positions[0], positions[-1] + 1))
                own = [n for n in [*ids[positions].tolist(), *predicted[positions].tolist()] if n > 3]
                assert len({owner[n] for n in own}) <= 1
                assert ids[positions][1:].tolist() == predicted[positions][:-1].tolist()
                assert set(ids[positions][1:].tolist()).isdisjoint({2, 3})


@given(st.lists(st.integers(1, 20), min_size=1, max_size=60))
def test_packing_respects_the_capacity(lengths: list[int]) -> None:
    rows = pack_sequences(np.array(lengths), 20)
    filled = np.bincount(rows, lengths)
    assert filled.max() <= 20
    assert filled.min() > 0
    assert np.sort(filled)[:2].sum() > 20 or len(filled) == 1  # no two rows fit into one


def test_packed_rows_have_little_padding() -> None:
    lengths = np.random.default_rng(0).gamma(2, 60, 5_000).astype(np.int64) % 400
    batches = list(PackedBatches(column(lengths.tolist()), 512, 8192, SPECIAL).epoch(0))
    size = sum(batch.ids.size for batch in batches)
    assert 1 - (lengths.sum() + len(lengths)) / size < 0.01


@pytest.mark.parametrize("batch_type", BATCH_TYPES)
def test_order_follows_from_seed_and_epoch(batch_type: BatchType) -> None:
    texts = column([7, 30, 0, 12, 90, 3] * 5)

    def order(seed: int, epoch: int) -> list[object]:
        return [batch.ids.tolist() for batch in batch_type(texts, 16, 64, SPECIAL, seed).epoch(epoch)]

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)


def test_block_boundaries_differ_by_epoch() -> None:
    texts = column([1000])
    first_tokens = [
        {int(row[0]) for b in BlockBatches(texts, 50, 100, SPECIAL).epoch(epoch) for row in b.ids} for epoch in (0, 1)
    ]
    assert not first_tokens[0] & first_tokens[1] - {SPECIAL.start}


def test_blocks_of_an_epoch_begin_at_many_offsets() -> None:
    width, length = 16, 64
    positions = np.arange(200_000) % width  # each token is its position in its record
    texts = TokenColumn(positions.astype(np.uint16), np.array([200_000]))
    for epoch in range(2):
        first_tokens = [
            int(row[0]) for batch in BlockBatches(texts, length, 1024, SPECIAL).epoch(epoch) for row in batch.ids
        ]
        counts = np.bincount(first_tokens, minlength=width)
        assert counts.min() > 0
        assert counts.max() < 0.2 * len(first_tokens)


def test_segments_add_no_blocks() -> None:
    texts = column([50_000])
    rows = [row for batch in BlockBatches(texts, 64, 1024, SPECIAL).epoch(0) for row in batch.ids]
    assert len(rows) == -(-50_001 // 64)


@pytest.mark.parametrize("batch_type", BATCH_TYPES)
@given(start=st.integers(0, 40))
def test_iteration_resumes_at_a_position(batch_type: BatchType, start: int) -> None:
    batches = batch_type(column([7, 30, 0, 12, 90, 3]), 16, 40, SPECIAL, seed=3)
    whole = list(islice(batches.iterate(), 50))
    position = whole[start - 1][0] if start else DataPosition()
    assert whole[-1][0].epoch > 1
    for (expected_position, expected), (resumed_position, resumed) in zip(
        whole[start:], batches.iterate(position), strict=False
    ):
        assert expected_position == resumed_position
        assert expected.ids.tolist() == resumed.ids.tolist()
        assert expected.labels.tolist() == resumed.labels.tolist()


def test_one_long_document() -> None:
    texts = column([10_000])
    blocks = list(BlockBatches(texts, 64, 1024, SPECIAL).epoch(0))
    assert [batch.ids.shape for batch in blocks[:-1]] == [(16, 64)] * 9
    assert predictions(iter(blocks)) == expected(texts)
    packed = list(PackedBatches(texts, 64, 1024, SPECIAL).epoch(0))
    assert predictions(iter(packed)) == expected(texts)


def test_text_shorter_than_a_block() -> None:
    for batch_type in BATCH_TYPES:
        for epoch in range(3):
            (batch,) = batch_type(column([5]), 64, 1024, SPECIAL).epoch(epoch)
            assert batch.ids.tolist() == [[2, 4, 5, 6, 7, 8]]
            assert batch.labels.tolist() == [[4, 5, 6, 7, 8, 3]]
            assert batch.mask is None


def test_empty_documents_have_an_end_token() -> None:
    (batch,) = PackedBatches(column([0, 2, 0]), 8, 8, SPECIAL).epoch(0)
    assert batch.ids.tolist() == [[2, 2, 2, 4, 5]]
    assert batch.labels.tolist() == [[3, 3, 4, 5, 3]]
    assert batch.document_ids is not None
    assert batch.document_ids.tolist() == [[1, 2, 3, 3, 3]]


def test_processes_divide_the_rows_of_a_batch() -> None:
    (batch,) = PackedBatches(column([3, 5, 2, 5]), 6, 100, SPECIAL).epoch(0)
    parts = [batch.rows(rank, 2) for rank in range(2)]
    assert batch.mask is not None
    for name in ("ids", "labels", "mask", "document_ids"):
        whole = getattr(batch, name)
        assert [row.tolist() for row in getattr(parts[0], name)] == whole[0::2].tolist()
        assert [row.tolist() for row in getattr(parts[1], name)] == whole[1::2].tolist()


@pytest.mark.parametrize("batch_type", BATCH_TYPES)
def test_empty_corpus_is_an_error(batch_type: BatchType) -> None:
    with pytest.raises(DataError) as error:
        next(batch_type(column([]), 8, 8, SPECIAL).iterate())
    assert str(error.value) == "there is no text to make batches of; pass some."


@pytest.mark.slow
def test_memory_with_a_billion_tokens() -> None:
    program = """
import resource
from itertools import islice
import numpy as np
from regard.config import SpecialTokensConfig
from regard.data.language_batches import BlockBatches
from regard.data.store import TokenColumn
ids = np.broadcast_to(np.uint16(7), 10**9)  # without memory
blocks = BlockBatches(TokenColumn(ids, np.arange(1, 1001) * 10**6), 1024, 16384, SpecialTokensConfig())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for place, batch in islice(blocks.iterate(), 100):
    assert batch.ids.shape == (16, 1024)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 200_000, grown
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# --- weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_type", BATCH_TYPES)
@given(lengths=LENGTHS, length=st.integers(1, 40), epoch=st.integers(0, 3), first=st.integers(0, 12))
def test_documents_occur_as_often_as_their_corpus_weighs(
    batch_type: BatchType, lengths: list[int], length: int, epoch: int, first: int
) -> None:
    texts, first = column(lengths), min(first, len(lengths))
    weights = CorpusWeights([first, len(lengths)], [1.0, 2.0])
    batches = batch_type(texts, length, 100, SPECIAL, weights=weights).epoch(epoch)
    both = column(lengths)
    later = Counter[tuple[int, int]]()
    for text in documents(both)[first:]:
        later.update(zip([2, *text], [*text, 3], strict=True))
    assert predictions(batches) == expected(both) + later


@pytest.mark.parametrize("batch_type", BATCH_TYPES)
def test_fractions_are_drawn_again_in_each_epoch_and_part_by_part(batch_type: BatchType) -> None:
    texts = column([6000, 3, 3, 3, 3, 3, 3, 3, 3])
    source = batch_type(texts, 8, 64, SPECIAL, seed=1, weights=CorpusWeights([9], [0.5]))
    counts = [sum(predictions(source.epoch(epoch)).values()) for epoch in range(20)]
    assert len(set(counts)) > 10
    assert abs(np.mean(counts) / sum(expected(texts).values()) - 0.5) < 0.1
    assert min(counts) > 1500  # the long document is never left out as a whole
    (position, _), *_ = [item for item in islice(source.iterate_spans(), 12) if item[0].epoch == 0][4:]
    resumed = [spans.tolist() for _, spans in islice(source.iterate_spans(position), 7)]
    assert resumed == [spans.tolist() for _, spans in islice(source.iterate_spans(), 12)][5:]


def test_copies_of_a_document_are_far_apart() -> None:
    source = BlockBatches(column([4] * 100), 10, 50, SPECIAL, weights=CorpusWeights([100], [2.0]))
    for batch in source.epoch(0):
        for row in batch.labels:
            texts = row[row > 3].tolist()
            assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("batch_type", BATCH_TYPES)
def test_an_epoch_may_have_no_document(batch_type: BatchType) -> None:
    source = batch_type(column([5]), 8, 64, SPECIAL, weights=CorpusWeights([1], [0.3]))
    counts = [source.num_batches(epoch) for epoch in range(20)]
    assert set(counts) == {0, 1}
    assert next(source.iterate_spans())[0] == DataPosition(counts.index(1), 1)
