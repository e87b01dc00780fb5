"""Examples as readers yield them: sentence pairs, labeled texts and tagged sentences."""

from dataclasses import dataclass, field

from regard.data.syntax import Parse


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
