"""Examples as readers yield them, the base class of readers, the checks that readers share, and the plain text reader.

A reader reads one file format. A new format takes one file, in this package or in another one:

    from regard.data.readers.base import READERS, Reader

    @READERS.register("subtitles")
    class SubtitleReader(Reader):
        suffixes = (".srt",)

        def documents(self, file, invalid): ...

It may be registered by an entry point instead: `[project.entry-points."regard.readers"]`,
`subtitles = "my_package:SubtitleReader"`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

from regard.data.lines import InvalidLines, check_compression_on_error, read_lines
from regard.data.remote import without_compression
from regard.data.syntax import Parse
from regard.registry import ExampleType, Registry

NO_COLUMNS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation, with a dependency parse of the source if there is one."""

    source: str
    target: str
    parse: Parse | None = field(default=None, kw_only=True, repr=False)


@dataclass(frozen=True)
class LabeledExample:
    """A text, or a pair of texts, with its label."""

    label: str
    text: str
    second: str | None = None
    location: str = field(default="", compare=False)  # file:line

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or both texts."""
        return (self.text,) if self.second is None else (self.text, self.second)

    @property
    def labels(self) -> tuple[str, ...]:
        """The label, as a tuple."""
        return (self.label,)


@dataclass(frozen=True)
class TaggedExample:
    """The words of a sentence, with one tag per word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    location: str = field(default="", compare=False)  # file:line of the first word

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentence: its words, separated by spaces. Spaces inside words become no-break spaces."""
        return (" ".join(word.replace(" ", "\u00a0") for word in self.words),)

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags."""
        return self.tags


class Reader:
    """Reader of one file format. Subclasses override the methods of the example types that the format holds."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    """File name suffixes in lower case, without that of a compression."""
    fingerprint_name: ClassVar[str | None] = None
    """Name of the format in the key of prepared data, if not that of the registry."""
    has_columns: ClassVar[bool] = False
    """Whether the user can choose columns, or keys, of the format; they are then in `columns`."""
    columns: Mapping[str, str] = NO_COLUMNS
    """Columns set by the user, by role (`source`, `target`, `text`, `label`): a name, or a number counted from 1."""

    def pairs(self, file: str, invalid: InvalidLines) -> Iterator[Pair]:
        """Yield sentence pairs."""
        raise NotImplementedError

    def documents(self, file: str, invalid: InvalidLines) -> Iterator[Iterator[str]]:
        """Yield documents, each as a stream of text."""
        raise NotImplementedError

    def texts(self, file: str, invalid: InvalidLines) -> Iterator[str]:
        """Yield separate texts: by default one per document."""
        return ("".join(document) for document in self.documents(file, invalid))

    def labeled(self, file: str, invalid: InvalidLines) -> Iterator[LabeledExample]:
        """Yield labeled texts."""
        raise NotImplementedError

    def tagged(self, file: str, invalid: InvalidLines, column: int | None = None) -> Iterator[TaggedExample]:
        """Yield tagged sentences; `column` is the column of the tag, counted from 1."""
        raise NotImplementedError

    @classmethod
    def matches(cls, file: str) -> bool:
        """Return whether a file name indicates this format."""
        return without_compression(file).lower().endswith(cls.suffixes) if cls.suffixes else False

    @classmethod
    def yields(cls, examples: ExampleType) -> bool:
        """Return whether the format holds examples of this type."""
        methods = ("texts", "documents") if examples == "texts" else (examples,)
        return any(getattr(cls, name) is not getattr(Reader, name) for name in methods)


READERS: Registry[type[Reader]] = Registry("readers", package="regard.data.readers")


@READERS.register("text")
class TextReader(Reader):
    """Reader of plain text, the default for documents."""

    suffixes = (".txt",)

    def documents(self, file: str, invalid: InvalidLines) -> Iterator[Iterator[str]]:
        """Yield the file as one document, with its line ends."""
        yield self._lines(file, invalid)

    def texts(self, file: str, invalid: InvalidLines) -> Iterator[str]:
        """Yield each line as a text."""
        return (line.text for line in read_lines(file, invalid) if line.text is not None)

    def _lines(self, file: str, invalid: InvalidLines) -> Iterator[str]:
        with check_compression_on_error(file):
            yield from (line.text + "\n" for line in read_lines(file, invalid) if line.text is not None)


def check_pair(
    source: str | None,
    target: str | None,
    locations: tuple[str, str],
    invalid: InvalidLines,
    parse: Parse | None = None,
) -> Iterator[Pair]:
    """Yield the pair if both sides have text; a side that is None was reported before."""
    if source is None or target is None:
        return
    for text, location, side in ((source, locations[0], "source"), (target, locations[1], "target")):
        if not text.strip():
            invalid.add("empty", f"{location}: empty {side}; fill it in")
            return
    yield Pair(source.strip(), target.strip(), parse=parse)


def check_labeled(
    label: str, text: str, second: str | None, location: str, invalid: InvalidLines
) -> Iterator[LabeledExample]:
    """Yield the labeled text if its label and texts are not empty."""
    fields = {"label": label.strip(), "text": text.strip()}
    if second is not None:
        fields["second text"] = second.strip()
    for name, value in fields.items():
        if not value:
            invalid.add("empty", f"{location}: empty {name}; fill it in")
            return
    if any(map(has_surrogate, fields.values())):
        invalid.add("broken Unicode", f"{location}: half of a character (a lone surrogate); fix it")
        return
    yield LabeledExample(fields["label"], fields["text"], fields.get("second text"), location)


def has_surrogate(text: str) -> bool:
    """Return whether a text has a lone surrogate, which JSON can express but UTF-8 cannot."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def count_columns(cells: list[str]) -> str:
    """Return `1 column` or `n columns`.

    >>> count_columns(["a"]), count_columns(["a", "b"])
    ('1 column', '2 columns')
    """
    return f"{len(cells)} column{'s' if len(cells) > 1 else ''}"
