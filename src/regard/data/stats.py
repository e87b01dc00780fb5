"""A first look at a corpus: how much there is, and whether all of it can be read, before anything long begins."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from regard.config import CorpusConfig
from regard.data.corpus import Pair, read_aligned, read_documents, read_pair_files
from regard.data.lines import InvalidLines

ReportProgress = Callable[[str, int], None]  # what is being done, and how many examples of it are done


@dataclass(frozen=True)
class CorpusStats:
    """A first look at a corpus."""

    examples: int  # pairs, or lines of text
    characters: int


def read_pairs(corpus: CorpusConfig, faults: InvalidLines) -> Iterator[Pair]:
    """All pairs of a corpus, in order."""
    aligned = read_aligned(corpus.source, corpus.target, faults, corpus.parses)
    return chain(aligned, read_pair_files(corpus.files, faults))


def pair_stats(corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
    """Read all pairs once, so that whatever is wrong is known before anything long begins."""
    faults, count, characters = InvalidLines(skip_invalid), 0, 0
    for count, pair in enumerate(read_pairs(corpus, faults), start=1):
        characters += len(pair.source) + len(pair.target)
        if count % 10_000 == 0:
            report("reading", count)
    return CorpusStats(count, characters)


def document_stats(corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
    """Read all text once."""
    faults, count, characters = InvalidLines(skip_invalid), 0, 0
    for count, text in enumerate(chain.from_iterable(read_documents(corpus.files, faults)), start=1):
        characters += len(text)
        if count % 10_000 == 0:
            report("reading", count)
    return CorpusStats(count, characters)
