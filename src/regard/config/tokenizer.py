"""The settings of a tokenizer."""

from typing import Literal

from regard.config.settings import BaseConfig, Rate


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
