"""From labelled files to what training reads: a tokenizer, the labels, and stores of framed texts with their labels.

Of a classifier, a store has three columns: the framed text, its label, and how many of its last tokens are of a second
text. Of a tagger, two: the framed sentence, and for each token 0, or 1 + the number of the tag of the word that begins
with it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from regard.config import ClassHeadConfig, Config, CorpusConfig, EncoderConfig, TagHeadConfig
from regard.data.corpus import Pair
from regard.data.encoder_inputs import InputTemplate, word_texts
from regard.data.fast_encoder import fast_encoder
from regard.data.fingerprint import store_for
from regard.data.held_out import is_held_out
from regard.data.labelled import LabeledExample, read_labeled
from regard.data.lines import InvalidLines
from regard.data.preparation import (
    CUT,
    DIVIDED,
    PreparedData,
    PreparedSplit,
    check_not_empty,
    load_or_train_tokenizer,
    save_texts,
    validation_fraction,
)
from regard.data.readers.conll import TaggedExample, read_tagged
from regard.data.stats import CorpusStats, ReportProgress
from regard.data.store import chunked, write_store
from regard.data.tokenizer import Tokenizer
from regard.errors import DataError

Numbers = Mapping[str, int]  # of labels
Row = Sequence[Sequence[int]]  # an example's ids, column by column


class _Example(Protocol):
    """What a labelled text and a tagged sentence have in common."""

    @property
    def texts(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def location(self) -> str: ...


E = TypeVar("E", bound=_Example)
Read = Callable[[Iterable[str], InvalidLines], Iterator[E]]


@dataclass(frozen=True)
class _Form(Generic[E]):
    """How examples are read, and what a store keeps of them."""

    read: Read[E]
    rows: Callable[[Iterable[E], Tokenizer, Numbers, InputTemplate, Counter[str]], Iterator[Row]]
    columns: int
    needs: str  # what there must be two of


def labeled_stats(corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
    """Read all labelled texts once."""
    return _scan(read_labeled(corpus.files, InvalidLines(skip_invalid)), report)


def tagged_stats(corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
    """Read all tagged sentences once."""
    return _scan(read_tagged(corpus.files, None, InvalidLines(skip_invalid)), report)


def _scan(examples: Iterable[_Example], report: ReportProgress) -> CorpusStats:
    count = characters = 0
    for count, example in enumerate(examples, start=1):
        characters += sum(map(len, example.texts))
        if count % 10_000 == 0:
            report("reading", count)
    return CorpusStats(count, characters)


def prepare_labeled(folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
    """Tokenizer, labels and stores for a classifier."""
    return _prepare(folder, key, config, report, _Form(read_labeled, _text_rows, 3, "a classifier needs two labels"))


def prepare_tagged(folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
    """Tokenizer, tags and stores for a tagger."""

    def read(files: Iterable[str], faults: InvalidLines) -> Iterator[TaggedExample]:
        return read_tagged(files, config.data.tag_column, faults)

    def rows(
        sentences: Iterable[TaggedExample],
        tokenizer: Tokenizer,
        numbers: Numbers,
        frame: InputTemplate,
        counts: Counter[str],
    ) -> Iterator[Row]:
        return _word_rows(sentences, tokenizer, numbers, frame, counts, config.tokens.unknown)

    return _prepare(folder, key, config, report, _Form(read, rows, 2, "a tagger needs two tags"))


def _text_rows(
    texts: Iterable[LabeledExample], tokenizer: Tokenizer, numbers: Numbers, frame: InputTemplate, counts: Counter[str]
) -> Iterator[Row]:
    encode = fast_encoder(tokenizer)
    for chunk in chunked(texts, 4096):
        firsts = encode([one.text for one in chunk])
        seconds = iter(encode([one.second for one in chunk if one.second is not None]))
        for one, first in zip(chunk, firsts, strict=True):
            framed = frame.wrap(first, next(seconds) if one.second is not None else None)
            if framed.truncated:
                counts[CUT] += 1
            yield framed.ids, [numbers[one.label]], [framed.second_length]


def _word_rows(
    sentences: Iterable[TaggedExample],
    tokenizer: Tokenizer,
    numbers: Numbers,
    frame: InputTemplate,
    counts: Counter[str],
    unknown: int,
) -> Iterator[Row]:
    encode = fast_encoder(tokenizer)
    for chunk in chunked(sentences, 1024):
        pieces = iter(encode([text for one in chunk for text in word_texts(one.words)]))
        for one in chunk:
            tags, rows = iter(one.tags), list(frame.wrap_words([next(pieces) for _ in one.words], unknown))
            if len(rows) > 1:
                counts[DIVIDED] += 1
            for ids, places in rows:
                marks = [0] * len(ids)
                for place in places:
                    marks[place] = 1 + numbers[next(tags)]
                yield ids, marks


def _prepare(folder: Path, key: str, config: Config, report: ReportProgress, form: _Form[E]) -> PreparedData:
    data, share = config.data, validation_fraction(config)

    def training(faults: InvalidLines) -> Iterator[E]:
        return (one for one in form.read(data.train.files, faults) if not is_held_out(_by_text(one), share))

    def validation(faults: InvalidLines) -> Iterator[E]:
        if data.valid.has_files:
            return form.read(data.valid.files, faults)
        counted = InvalidLines(data.skip_invalid)  # with the training data already
        return (one for one in form.read(data.train.files, counted) if is_held_out(_by_text(one), share))

    def texts() -> Iterator[str]:
        for number, one in enumerate(training(InvalidLines(data.skip_invalid)), start=1):
            if number % 10_000 == 0:
                report("learning the tokenizer", number)
            yield from one.texts

    def labels() -> list[str]:
        """Those of all training data, the held-out part included, which is of the same kind."""
        asked = config.model.head if isinstance(config.model, EncoderConfig) else None
        if isinstance(asked, ClassHeadConfig | TagHeadConfig) and asked.labels:
            return list(asked.labels)
        found = {label for one in form.read(data.train.files, InvalidLines(data.skip_invalid)) for label in one.labels}
        if len(found) == 1:
            names = ", ".join(data.train.file_names)
            raise DataError(f"{names}: has no other label than {found.pop()!r}; {form.needs} at least.")
        return sorted(found)

    tokenizer = load_or_train_tokenizer(folder, key, config, texts)
    readable = config.model.max_length
    shorter = min(data.max_length, readable or data.max_length)

    def part(
        name: str, examples: Callable[[InvalidLines], Iterator[E]], longest: int | None, known: list[str] | None
    ) -> PreparedSplit:
        kept = folder / f"{name}.jsonl" if name != "train" else None

        def build(place: Path) -> None:
            numbers = {label: n for n, label in enumerate(labels() if known is None else known)}
            faults, counts = InvalidLines(data.skip_invalid), Counter[str](read=0)
            about = {  # filled as it reads
                "key": key,
                "counts": counts,
                "skipped": faults.counts,
                "examples_of": faults.examples,
                "labels": list(numbers),
            }
            fit = _with_known_labels(examples(faults), numbers, faults)
            seen = _noted_examples(_counted(fit, counts, lambda n: report(f"tokenising {name}", n)), kept)
            rows = form.rows(seen, tokenizer, numbers, InputTemplate.for_model(config.tokens, longest), counts)
            write_store(place, rows, form.columns, max(len(tokenizer), len(numbers) + 1), about)

        store = store_for(folder / name, key, build)
        if len(store) == 0 and name == "valid" and not data.valid.has_files:
            raise DataError(
                "no text was held out for validation, because there are too few different ones; "
                f"raise data.validation_fraction, which is {share:g}, or give --valid."
            )
        return PreparedSplit(check_not_empty(store, name), kept)

    train = part("train", training, shorter, None)
    known = list(train.store.metadata["labels"])
    return PreparedData(
        tokenizer,
        train,
        part("valid", validation, readable, known),
        part("test", lambda faults: form.read(data.test.files, faults), readable, known)
        if data.test.has_files
        else None,
        tuple(known),
    )


def _by_text(one: _Example) -> Pair:
    """What decides whether an example is held out: equal texts are on the same side, however they are labelled."""
    return Pair("\t".join(one.texts), "")


def _with_known_labels(examples: Iterable[E], numbers: Numbers, faults: InvalidLines) -> Iterator[E]:
    for one in examples:
        unknown = next((label for label in one.labels if label not in numbers), None)
        if unknown is None:
            yield one
        else:
            listed = ", ".join(list(numbers)[:8]) + (", …" if len(numbers) > 8 else "")
            faults.add(
                "unknown label",
                f"{one.location}: has the label {unknown!r}, which is none of those to learn ({listed}); correct it",
            )


def _counted(examples: Iterable[E], counts: Counter[str], report: Callable[[int], None]) -> Iterator[E]:
    for one in examples:
        counts["read"] += 1
        counts["kept"] += 1
        if counts["read"] % 4096 == 0:
            report(counts["read"])
        yield one


def _noted_examples(examples: Iterable[E], path: Path | None) -> Iterator[E]:
    """The examples, each written down as it passes, where there is a place for it."""
    if path is None:
        yield from examples
        return
    passed: list[E] = []

    def shown() -> Iterator[Pair]:
        for one in examples:
            passed.append(one)
            yield Pair("\t".join(one.texts), " ".join(one.labels))

    for _ in save_texts(shown(), path):
        yield passed.pop()
