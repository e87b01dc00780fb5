"""Preparation of documents: tokenizer and token stores for language models and encoders that learn from text.

No text is lost, line ends included. A document may be larger than the memory: it is tokenized in pieces that are cut at
line ends. Only there can tokens differ from those of the whole document; the text that they decode to does not.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import Config, CorpusConfig
from regard.data.corpus_scan import ReportProgress
from regard.data.lines import InvalidLines
from regard.data.preparation import (
    PreparedData,
    PreparedSplit,
    check_not_empty,
    load_or_build_store,
    load_or_train_tokenizer,
    num_workers,
    store_metadata,
)
from regard.data.readers import read_documents, read_parts
from regard.data.shards import SHARDS_FOLDER, Chunk, Encoded, EncodedRows, ShardedBuild, SplitTarget
from regard.data.store import TokenColumn, TokenStore, chunked, id_type, write_document_store
from regard.data.tokenizer import Tokenizer
from regard.data.word_tokens import Encode, fast_encoder
from regard.errors import ConfigError

LOSSLESS_TOKENIZERS = ("byte-level", "character")
PIECE_CHARACTERS = 2**14  # about; large enough that cuts are rare
PIECES_PER_CHUNK = 64  # that are tokenized at once


def check_lossless_tokenizer(kind: str) -> None:
    """Raise an error for a kind of tokenizer that drops line ends and indentation."""
    if kind not in LOSSLESS_TOKENIZERS:
        raise ConfigError(
            f"tokenizer.kind = {kind!r} loses line ends; use 'byte-level' or 'character' for a language model."
        )


def prepare_documents(
    folder: Path,
    key: str,
    config: Config,
    report: ReportProgress,
    *,
    single_spaces: bool = False,
    mask_token: bool = False,
) -> PreparedData:
    """Prepare the tokenizer and the token stores for a model that is trained on documents.

    Without validation data, the end of the training data is held out.

    Args:
        folder: where prepared data is saved.
        key: its key.
        config: the config.
        report: called with what is being done, and how far it is.
        single_spaces: replace each run of white space, line ends included, by one space.
        mask_token: add `[MASK]` to the vocabulary of a new tokenizer.
    """
    data = config.data

    def lines() -> Iterator[tuple[str]]:
        documents = read_documents(data.train.files, InvalidLines(data.skip_invalid), data.train.columns)
        return ((line,) for line in chain.from_iterable(documents))

    def texts(line: Sequence[str]) -> Iterable[str]:
        return map(_with_single_spaces, line) if single_spaces else line

    tokenizer = load_or_train_tokenizer(folder, key, config, lines, texts, mask_token=mask_token)

    def prepare_split(name: str, corpus: CorpusConfig) -> PreparedSplit:
        def progress(count: int) -> None:
            report(f"tokenizing {name}", count)

        invalid = InvalidLines(data.skip_invalid)
        split = prepare_document_split(
            folder / name,
            corpus,
            tokenizer,
            invalid,
            progress,
            key=key,
            single_spaces=single_spaces,
            workers=num_workers(config),
            cluster=data.cluster,
        )
        check_not_empty(split.store, name)
        return split

    train = prepare_split("train", data.train)
    if data.valid.has_files:
        valid = prepare_split("valid", data.valid)
    else:
        first, last = split_tail(train.store, data.validation_fraction)
        train, valid = replace(train, store=first), PreparedSplit(last)
    test = prepare_split("test", data.test) if data.test.has_files else None
    return PreparedData(tokenizer, train, valid, test)


def prepare_document_split(
    folder: Path,
    corpus: CorpusConfig,
    tokenizer: Tokenizer,
    invalid: InvalidLines,
    progress: Callable[[int], None],
    *,
    key: str = "",
    single_spaces: bool = False,
    workers: int = 1,
    cluster: str = "local",
) -> PreparedSplit:
    """Tokenize the documents of a corpus into a store with this key, unless it exists."""

    def build(place: Path) -> None:
        counts: Counter[str] = Counter(read=0, kept=0)
        job = ShardedBuild(
            place.parent / SHARDS_FOLDER / place.name,
            key,
            DocumentEncoder(tokenizer, place.name, corpus.num_parts),
            {place.name: SplitTarget(place, 1, len(tokenizer))},
            lambda piece: len(piece[0]),
            workers,
            cluster,
        )
        documents = read_parts(corpus, lambda part: _read(part, invalid, single_spaces=single_spaces))
        job.run(
            ((number, piece) for number, document in documents for piece in _pieces([document], counts)),
            lambda name: {**store_metadata(key, invalid), "counts": counts},
            progress,
        )

    return PreparedSplit(load_or_build_store(folder, key, build))


@dataclass
class DocumentEncoder:
    """Tokenizes a shard of pieces of documents."""

    tokenizer: Tokenizer
    split: str
    corpora: int = 1

    def __call__(self, chunk: Chunk[tuple[str, bool]]) -> Encoded:
        """Return the ids of the pieces; the last document may be continued by the next shard."""
        ids: list[Sequence[int]] = []
        for pieces in chunked((piece for _, piece in chunk), PIECES_PER_CHUNK):
            ids += self._encode([text for text, _ in pieces])
        lengths: list[int] = []
        corpora = [0] * self.corpora
        continued = False
        for row, (corpus, (_, last)) in zip(ids, chunk, strict=True):
            if continued:
                lengths[-1] += len(row)
            else:
                lengths.append(len(row))
            continued = not last
            corpora[corpus] += last
        flat = np.fromiter(chain.from_iterable(ids), id_type(len(self.tokenizer)), sum(lengths))
        rows = EncodedRows([(flat, np.array(lengths, np.int64))], corpora=corpora, complete=not continued)
        return {self.split: rows}

    @cached_property
    def _encode(self) -> Encode:
        return fast_encoder(self.tokenizer)


def store_documents(
    folder: Path,
    documents: Iterable[Iterable[str]],
    tokenizer: Tokenizer,
    metadata: Mapping[str, Any],
    progress: Callable[[int], None] | None = None,
) -> None:
    """Tokenize documents and write each as an example of one column, without shards and workers.

    Empty documents are left out and counted.

    Args:
        folder: the folder of the store.
        documents: the documents, each as a stream of text.
        tokenizer: the tokenizer.
        metadata: what is saved with the store.
        progress: called with the number of tokens so far.
    """
    counts: Counter[str] = Counter(read=0, kept=0)
    encode = fast_encoder(tokenizer)

    def parts() -> Iterator[tuple[list[int], bool]]:
        tokens = 0
        for chunk in chunked(_pieces(documents, counts), PIECES_PER_CHUNK):
            encoded = encode([text for text, _ in chunk])
            for ids, (_, last) in zip(encoded, chunk, strict=True):
                yield ids, last
                tokens += len(ids)
            if progress is not None:
                progress(tokens)

    write_document_store(folder, parts(), len(tokenizer), {"counts": counts, **metadata})


def split_tail(store: TokenStore, fraction: float) -> tuple[TokenStore, TokenStore]:
    """Split a store of one column in two, so that the second has the last `fraction` of all tokens."""
    (column,) = store.columns
    cut = round(len(column.ids) * (1 - fraction))
    complete = int((column.ends <= cut).sum())  # documents that end before the cut
    first, last = column.ends[:complete].tolist(), column.ends[complete:] - cut
    if len(last) and cut > (first[-1] if first else 0):
        first.append(cut)  # the document at the cut is in both stores
    metadata = dict(store.metadata)
    if "corpora" in metadata:  # documents of each
        ends = np.minimum(np.cumsum(metadata["corpora"]), len(first))
        metadata["corpora"] = np.diff(ends, prepend=0).tolist()
    return (
        replace(store, columns=(TokenColumn(column.ids[:cut], np.asarray(first, np.int64)),), metadata=metadata),
        replace(store, columns=(TokenColumn(column.ids[cut:], np.asarray(last, np.int64)),)),
    )


def _read(corpus: CorpusConfig, invalid: InvalidLines, *, single_spaces: bool) -> Iterator[Iterator[str]]:
    documents = read_documents(corpus.files, invalid, corpus.columns)
    return (map(_with_single_spaces, document) for document in documents) if single_spaces else documents


def _with_single_spaces(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def _pieces(documents: Iterable[Iterable[str]], counts: Counter[str]) -> Iterator[tuple[str, bool]]:
    """Yield pieces of text, and whether each ends its document."""
    for document in documents:
        counts["read"] += 1
        pending: list[str] = []
        size = 0
        for text in filter(None, document):
            if size >= PIECE_CHARACTERS:  # now that more text follows, the piece is known not to be the last
                yield "".join(pending), False
                pending, size = [], 0
            pending.append(text)
            size += len(text)
        counts["kept" if pending else "empty"] += 1
        if pending:
            yield "".join(pending), True
