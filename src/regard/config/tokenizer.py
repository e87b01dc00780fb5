"""The settings of a tokenizer."""

from typing import Literal

from regard.config.model import Settings, Size


class TokenizerConfig(Settings):
    """How text becomes ids."""

    kind: Literal["bpe", "unigram", "byte-level", "character", "word"] = "bpe"
    """Sub-words joined from frequent pairs (`bpe`), chosen by likelihood (`unigram`), or joined from bytes
    (`byte-level`); single characters; whole words."""
    vocabulary: Size = 8000
    """At most so many tokens, the special ones included; `character` has as many as the text has characters."""
    lowercase: bool = False
    """Make everything lower case."""
    nfkc: bool = False
    """Unicode compatibility normalisation: ﬁ becomes fi, ① becomes 1, full-width letters become ordinary ones."""
    file: str | None = None
    """A `tokenizer.json` to use as it is, instead of learning one from the text."""
