"""A first look at a corpus: how much there is, and whether all of it can be read, before anything long begins."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from regard.config import CorpusConfig
from regard.data.corpus import Pair, aligned_pairs, documents, table_pairs
from regard.data.lines import Faults

Report = Callable[[str, int], None]  # what is being done, and how many examples of it are done


@dataclass(frozen=True)
class Scan:
    """A first look at a corpus."""

    examples: int  # pairs, or lines of text
    characters: int


def pairs_of(corpus: CorpusConfig, faults: Faults) -> Iterator[Pair]:
    """All pairs of a corpus, in order."""
    aligned = aligned_pairs(corpus.source, corpus.target, faults, corpus.parses)
    return chain(aligned, table_pairs(corpus.files, faults))


def scan_pairs(corpus: CorpusConfig, skip_invalid: bool, report: Report) -> Scan:
    """Read all pairs once, so that whatever is wrong is known before anything long begins."""
    faults, count, characters = Faults(skip_invalid), 0, 0
    for count, pair in enumerate(pairs_of(corpus, faults), start=1):
        characters += len(pair.source) + len(pair.target)
        if count % 10_000 == 0:
            report("reading", count)
    return Scan(count, characters)


def scan_documents(corpus: CorpusConfig, skip_invalid: bool, report: Report) -> Scan:
    """Read all text once."""
    faults, count, characters = Faults(skip_invalid), 0, 0
    for count, text in enumerate(chain.from_iterable(documents(corpus.files, faults)), start=1):
        characters += len(text)
        if count % 10_000 == 0:
            report("reading", count)
    return Scan(count, characters)
