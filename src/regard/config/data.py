"""The settings of the data: which files, and what is left out of them."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from regard.config.base import BaseConfig, Rate, Size


def _several(value: Any) -> Any:
    """A single file may be given without brackets."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Files = Annotated[tuple[str, ...], BeforeValidator(_several)]


class CorpusConfig(BaseConfig):
    """Where examples come from: aligned files, or files that hold everything; `.gz` or not, `-` for standard input."""

    source: Files = ()
    """Sentences, one a line."""
    target: Files = ()
    """Their translations, line by line; one file for each of `source`."""
    parses: Files = ()
    """Dependency parses of `source` in CoNLL-U, sentence by line; one file for each of `source`."""
    files: Files = ()
    """Pairs as TSV or JSON Lines; for a language model, plain text or JSON Lines; or `builtin:phrasebook` and such.
    For a classifier, labels and texts as TSV or JSON Lines; for a tagger, words and tags in columns."""

    @property
    def has_files(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.source or self.target or self.files)

    @property
    def file_names(self) -> tuple[str, ...]:
        """Every file, whatever its part."""
        return (*self.source, *self.target, *self.parses, *self.files)


class DataConfig(BaseConfig):
    """What is read, and how."""

    train: CorpusConfig = CorpusConfig()
    """What the network learns from."""
    valid: CorpusConfig = CorpusConfig()
    """What it is measured on while it trains; without it, a share of `train` is held out."""
    test: CorpusConfig = CorpusConfig()
    """What the best network is measured on at the end."""
    store: str | None = None
    """A folder that keeps prepared data for several runs; without it, each run keeps its own."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """The share of `train` that is kept for validation where `valid` is not given; equal pairs stay on one side."""
    skip_invalid: bool = False
    """Skip and count lines that cannot be used, rather than stop at the first."""
    max_length: Size = 256
    """Pairs with more tokens on a side are left out, and counted; texts to classify are cut there, sentences to tag
    divided."""
    max_length_ratio: Annotated[float, Field(ge=1)] = 3.0
    """Pairs whose one side has more tokens than this many times the other's are left out, and counted."""
    context_length: Size | None = None
    """Tokens that a language model reads at once; without it, as many as it learns positions for, or 256."""
    documents: Literal["concatenated", "separate"] = "concatenated"
    """Language models: `concatenated`, one stream in blocks; `separate`, documents do not attend to each other."""
    tag_column: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Taggers: which column has the tag, counted from 1; without it the last, and of CoNLL-U the fourth."""

    @property
    def splits(self) -> tuple[CorpusConfig, CorpusConfig, CorpusConfig]:
        """Training, validation and test."""
        return (self.train, self.valid, self.test)

    @property
    def file_names(self) -> tuple[str, ...]:
        """Every file of every part."""
        return tuple(name for part in self.splits for name in part.file_names)


class TokenizerConfig(BaseConfig):
    """How text becomes ids. `model.vocab_size` says how many there are at most."""

    kind: Literal["bpe", "unigram", "byte-level", "character", "word"] = "bpe"
    """Sub-words joined from frequent pairs (`bpe`), chosen by likelihood (`unigram`), or joined from bytes
    (`byte-level`); single characters; whole words."""
    lowercase: bool = False
    """Make everything lower case."""
    nfkc: bool = False
    """Unicode compatibility normalisation: ﬁ becomes fi, ① becomes 1, full-width letters become ordinary ones."""
    file: str | None = None
    """A `tokenizer.json` to use as it is, instead of learning one from the text."""
    dropout: Rate = 0.0
    """BPE-dropout while training (Provilkov et al. 2020): merges left out at random, so that words vary in pieces."""
