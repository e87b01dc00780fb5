"""The first reading of a corpus: its size, and what preparation needs, so that it reads the corpus only once more.

A scan collects digests of the files, the labels, and a sample of the texts from which the tokenizer is trained. The
sample is uniform over the whole corpus: each example gets a pseudo-random priority from its number, and those with the
lowest are kept. A corpus that is smaller than the sample is kept completely and in order.
"""

import heapq
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from regard.config import CorpusConfig
from regard.data.digests import file_digests
from regard.data.lines import InvalidLines
from regard.data.readers import read_documents, read_labeled, read_pairs, read_tagged
from regard.files import atomic_file, explain_write_errors

MAX_TOKENIZER_TEXTS = 2_000_000  # to train a tokenizer on; more would not change it
SCAN_FILE = "scan.jsonl"
REPORT_INTERVAL = 10_000  # examples
ReportProgress = Callable[[str, int], None]  # called with what is being done, and how many examples are done
_BITS = 2**64 - 1


@dataclass(frozen=True)
class CorpusStats:
    """Size of a corpus."""

    examples: int  # pairs, texts or sentences; lines of documents
    characters: int
    labels: Mapping[str, int] = field(default_factory=dict)  # of classifiers: how often each occurs


def pair_stats(corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
    """Count sentence pairs."""
    pairs = read_pairs(corpus, InvalidLines(skip_invalid))
    return _count(((pair.source, pair.target) for pair in pairs), report)


def document_stats(corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
    """Count lines of documents."""
    documents = read_documents(corpus.files, InvalidLines(skip_invalid), corpus.columns)
    return _count(((text,) for text in chain.from_iterable(documents)), report)


def labeled_stats(corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
    """Count labeled texts."""
    labels = Counter[str]()

    def texts() -> Iterator[tuple[str, ...]]:
        for example in read_labeled(corpus.files, InvalidLines(skip_invalid), corpus.columns):
            labels[example.label] += 1
            yield example.texts

    stats = replace(_count(texts(), report), labels=labels)
    observe_labels(labels)
    return stats


def tagged_stats(corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
    """Count tagged sentences."""
    labels = set[str]()

    def texts() -> Iterator[tuple[str, ...]]:
        for example in read_tagged(corpus.files, InvalidLines(skip_invalid), columns=corpus.columns):
            labels.update(example.labels)
            yield example.texts

    stats = _count(texts(), report)
    observe_labels(labels)
    return stats


def _count(examples: Iterable[tuple[str, ...]], report: ReportProgress) -> CorpusStats:
    count = characters = 0
    for count, texts in enumerate(observed(examples), start=1):
        characters += sum(map(len, texts))
        if count % REPORT_INTERVAL == 0:
            report("reading", count)
    return CorpusStats(count, characters)


def priority(number: int) -> int:
    """Return 64 pseudo-random bits for a number (SplitMix64).

    >>> priority(0) != priority(1), priority(5) == priority(5)
    (True, True)
    """
    bits = (number + 1) * 0x9E3779B97F4A7C15 & _BITS
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & _BITS
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & _BITS
    return bits ^ (bits >> 31)


class TextSample:
    """A uniform sample of at most `limit` texts of all examples that are added; an example has one or more texts.

    >>> sample = TextSample(limit=3)
    >>> sample.extend([[str(n)] for n in range(2)])
    >>> list(sample)
    [['0'], ['1']]
    """

    def __init__(self, limit: int = MAX_TOKENIZER_TEXTS) -> None:
        self._limit = limit
        self._kept: list[tuple[int, int, Sequence[str]]] = []  # a heap by falling priority once it is full
        self._seen = 0
        self._is_heap = False

    def add(self, texts: Sequence[str]) -> None:
        """Add the texts of one example."""
        entry = (-priority(self._seen), self._seen, texts)
        self._seen += 1
        if (len(self._kept) + 1) * len(texts) <= self._limit:
            self._kept.append(entry)
        elif self._kept:
            if not self._is_heap:
                heapq.heapify(self._kept)
                self._is_heap = True
            heapq.heappushpop(self._kept, entry)

    def extend(self, examples: Iterable[Sequence[str]]) -> None:
        """Add the texts of several examples."""
        for texts in examples:
            self.add(texts)

    def __iter__(self) -> Iterator[Sequence[str]]:
        return (texts for _, texts in sorted((number, texts) for _, number, texts in self._kept))


@dataclass
class CorpusScan:
    """What one reading of a corpus has found."""

    digests: MutableMapping[str, str] = field(default_factory=dict)  # of the content of files, by name
    sample: TextSample | None = None
    labels: set[str] = field(default_factory=set)

    @contextmanager
    def sampling(self, *, keep_texts: bool = True) -> Iterator[None]:
        """Add the examples that statistics read in the body to the sample, or only their labels."""
        self.sample = TextSample() if keep_texts else TextSample(0)
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def save(self, folder: Path, key: str) -> None:
        """Write labels and sample for the preparation in this folder."""
        if self.sample is None:
            return
        with explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_file(folder / SCAN_FILE) as file:
                file.write(json.dumps({"key": key, "labels": sorted(self.labels)}).encode() + b"\n")
                for texts in self.sample:
                    file.write(json.dumps(texts, ensure_ascii=False).encode() + b"\n")
        self.sample = None  # it may be large


_current: ContextVar[CorpusScan | None] = ContextVar("scan", default=None)


@contextmanager
def corpus_scan() -> Iterator[CorpusScan]:
    """Yield a scan that hashes all files which the body reads to their end."""
    with file_digests() as digests:
        yield CorpusScan(digests)


def observed(examples: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield the texts of examples, and add them to the sample of the current scan, if there is one."""
    scan = _current.get()
    if scan is None or scan.sample is None:
        yield from examples
        return
    for texts in examples:
        scan.sample.add(texts)
        yield texts


def observe_labels(labels: Iterable[str]) -> None:
    """Add labels to the current scan, if there is one."""
    scan = _current.get()
    if scan is not None:
        scan.labels.update(labels)


def saved_sample(folder: Path, key: str) -> Iterator[list[str]] | None:
    """Return the texts of each example of the sample that a scan saved with this key; None if there is none."""
    if saved_labels(folder, key) is None:
        return None

    def examples() -> Iterator[list[str]]:
        with open(folder / SCAN_FILE, encoding="utf-8") as file:
            next(file)
            yield from map(json.loads, file)

    return examples()


def saved_labels(folder: Path, key: str) -> list[str] | None:
    """Return the labels that a scan saved with this key; None if there is no such scan."""
    try:
        with open(folder / SCAN_FILE, encoding="utf-8") as file:
            header = json.loads(next(file))
        return list(header["labels"]) if header["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return None


def discard_scan(folder: Path) -> None:
    """Remove what a scan saved, once everything is prepared."""
    with suppress(OSError):
        (folder / SCAN_FILE).unlink(missing_ok=True)
