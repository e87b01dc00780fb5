"""Size of a corpus, counted by reading it once, which also finds invalid lines before anything long begins."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

from regard.config import CorpusConfig
from regard.data.lines import InvalidLines
from regard.data.readers import read_documents, read_labeled, read_pairs, read_tagged

ReportProgress = Callable[[str, int], None]  # called with what is being done, and how many examples are done
REPORT_INTERVAL = 10_000  # examples


@dataclass(frozen=True)
class CorpusStats:
    """Size of a corpus."""

    examples: int  # pairs, texts or sentences; lines of documents
    characters: int


def pair_stats(corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
    """Count sentence pairs."""
    pairs = read_pairs(corpus, InvalidLines(skip_invalid))
    return _count(((pair.source, pair.target) for pair in pairs), report)


def document_stats(corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
    """Count lines of documents."""
    documents = read_documents(corpus.files, InvalidLines(skip_invalid))
    return _count(((text,) for text in chain.from_iterable(documents)), report)


def labeled_stats(corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
    """Count labeled texts."""
    return _count((example.texts for example in read_labeled(corpus.files, InvalidLines(skip_invalid))), report)


def tagged_stats(corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
    """Count tagged sentences."""
    return _count((example.texts for example in read_tagged(corpus.files, InvalidLines(skip_invalid))), report)


def _count(examples: Iterable[tuple[str, ...]], report: ReportProgress) -> CorpusStats:
    count = characters = 0
    for count, texts in enumerate(examples, start=1):
        characters += sum(map(len, texts))
        if count % REPORT_INTERVAL == 0:
            report("reading", count)
    return CorpusStats(count, characters)
