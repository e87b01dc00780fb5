"""Settings of data and tokenizers."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from regard.config.base import BaseConfig, Probability, Size, Strings


def _as_name(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_numbers(value: object) -> object:
    return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, int | float) else value


PositiveWeight = Annotated[float, Field(gt=0, le=1000)]
Column = Annotated[str | None, Field(min_length=1), BeforeValidator(_as_name)]


class CorpusConfig(BaseConfig):
    """Files of one split: aligned files, or files with complete examples; `.gz` is decompressed, `-` is stdin."""

    source: Strings = ()
    """Source sentences, one per line."""
    target: Strings = ()
    """Translations, aligned with `source` line by line; one file for each file of `source`."""
    parses: Strings = ()
    """Dependency parses of `source` in CoNLL-U, one per line; one file for each file of `source`."""
    files: Strings = ()
    """Files with complete examples (pairs, text, labeled texts, tagged words), or a built-in corpus such as
    `builtin:phrasebook`."""

    weights: Annotated[tuple[PositiveWeight, ...], BeforeValidator(_as_numbers)] = ()
    """Weight of each name in `source` and then in `files`; a pattern or folder has one. An example of a corpus of
    weight 2 is seen twice per epoch, with 0.5 in every other epoch on average; the default is 1. Long documents have
    weights part by part. Only of `train`."""

    source_column: Column = None
    """Column of the source in TSV and CSV, or key in JSON Lines: a name in the header, or a number counted from 1."""
    target_column: Column = None
    """Column of the target."""
    text_column: Column = None
    """Column of the text of documents or labeled texts."""
    label_column: Column = None
    """Column of the label."""

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are set, by role: source, target, text, label."""
        roles = ("source", "target", "text", "label")
        chosen = {role: getattr(self, f"{role}_column") for role in roles}
        return {role: column for role, column in chosen.items() if column is not None}

    @field_validator("weights")
    @classmethod
    def _check_weights(cls, weights: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        names = len(info.data.get("source", ())) + len(info.data.get("files", ()))
        if weights and len(weights) != names:
            raise ValueError(f"has {len(weights)} weights, but source and files have {names} names: pass one for each")
        return weights

    @property
    def num_parts(self) -> int:
        """Number of parts with a weight of their own; 1 without weights."""
        return len(self.weights) or 1

    @property
    def parts(self) -> "list[CorpusConfig]":
        """The corpus of each weight, in order; the corpus itself without weights."""
        if not self.weights:
            return [self]
        none: dict[str, object] = {"source": (), "target": (), "parses": (), "files": (), "weights": ()}
        aligned = [
            {"source": (source,), "target": self.target[n : n + 1], "parses": self.parses[n : n + 1]}
            for n, source in enumerate(self.source)
        ]
        columns = {f"{role}_column": None for role in self.columns}  # are for `files`
        return [
            *(self.model_copy(update={**none, **columns, **files}) for files in aligned),
            *(self.model_copy(update={**none, "files": (file,)}) for file in self.files),
        ]

    @property
    def has_files(self) -> bool:
        """Whether the split has any file."""
        return bool(self.source or self.target or self.files)

    @property
    def file_names(self) -> tuple[str, ...]:
        """All files of the split."""
        return (*self.source, *self.target, *self.parses, *self.files)


class DataConfig(BaseConfig):
    """Which data is used, and which examples are left out."""

    train: CorpusConfig = Field(default_factory=CorpusConfig)
    """Training data."""
    valid: CorpusConfig = Field(default_factory=CorpusConfig)
    """Validation data; by default a fraction of `train` is held out."""
    test: CorpusConfig = Field(default_factory=CorpusConfig)
    """Test data, on which the best model is evaluated at the end."""
    description: Annotated[str, Field(max_length=1000)] = ""
    """What the data cover, in words; translators store it, and the web page shows it."""
    mix: CorpusConfig = Field(default_factory=CorpusConfig)
    """Fine-tuning: old data, such as the training data of the base model, mixed in so that less is forgotten."""
    mix_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Fraction of the training examples, or of the tokens of language models, that is drawn from `mix`."""
    store: str | None = None
    """Folder of prepared data shared by several runs; by default each run has its own."""
    workers: Size | None = None
    """Processes that tokenize a large corpus; the default is the number of cores."""
    cluster: Literal["local", "ray"] = "local"
    """Where a large corpus is tokenized: on this machine, or by Ray on all machines of its cluster."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Fraction of `train` held out for validation if `valid` is not set; equal pairs stay on the same side."""
    skip_invalid: bool = False
    """Whether invalid lines are skipped and counted; otherwise the first one is an error."""
    max_length: Size = 256
    """Maximum number of tokens: longer pairs are left out, longer texts truncated, longer tagged sentences split."""
    max_length_ratio: Annotated[float, Field(ge=1)] = 3.0
    """Pairs whose longer side has more than this many times the tokens of the other are left out."""
    context_length: Size | None = None
    """Context length of language models in tokens; the default is the number of learned positions, or 256."""
    trained_tokens: Size | None = None
    """Translators: texts of up to this many source tokens are not split into sentences; by default a length that 99 of
    100 training sources do not exceed."""
    trained_sentences: Size | None = None
    """Translators: the same for the number of sentences; by default the most that 1 in 500 training sources has."""
    documents: Literal["concatenated", "separate"] = "concatenated"
    """Language models: `concatenated` cuts one stream of text into blocks; `separate` masks other documents."""
    tag_column: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Taggers: column of the tag, counted from 1; the default is the last column, and the fourth of CoNLL-U."""

    @property
    def splits(self) -> tuple[CorpusConfig, CorpusConfig, CorpusConfig]:
        """Training, validation and test data."""
        return (self.train, self.valid, self.test)

    @property
    def file_names(self) -> tuple[str, ...]:
        """All files of all splits."""
        return tuple(name for split in self.splits for name in split.file_names)


class TokenizerConfig(BaseConfig):
    """How text is tokenized; `model.vocab_size` is the maximum number of tokens."""

    kind: Literal["bpe", "unigram", "byte-level", "character", "word"] = "bpe"
    """`bpe`, `unigram` and `byte-level` (BPE on bytes) learn subwords; `character` and `word` do not."""
    lowercase: bool = False
    """Whether text is lowercased."""
    nfkc: bool = False
    """Whether text is normalized with Unicode NFKC: ﬁ becomes fi, ① becomes 1, full-width letters become ASCII."""
    split_punctuation: bool = True
    """Whether `bpe` and `unigram` separate letters from punctuation, symbols and line ends before they learn subwords:
    `much.` becomes `▁much` and `.`; otherwise `▁much.` may become a token. The other kinds always do."""
    byte_fallback: bool = True
    """Whether `character` and `word` spell what they have no token for in bytes of UTF-8, as the other kinds always do;
    otherwise it becomes `[UNK]`, and is lost."""
    file: str | None = None
    """Existing `tokenizer.json` to use; by default a tokenizer is trained on the training data."""
    dropout: Probability = 0.0
    """BPE-dropout during training (Provilkov et al. 2020): probability of skipping a merge."""
