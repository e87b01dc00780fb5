"""Settings of word vectors (Mikolov et al. 2013). The defaults are those of word2vec."""

from typing import Annotated, Literal

from pydantic import Field

from regard.config.base import BaseConfig, Size
from regard.config.data import CorpusConfig


class Word2VecConfig(BaseConfig):
    """How word vectors are trained."""

    method: Literal["skip-gram", "cbow"] = "skip-gram"
    """`skip-gram`: a word predicts each context word; `cbow`: the mean of the context words predicts the word."""
    width: Size = 100
    """Vector size."""
    window: Size = 5
    """Maximum distance of a context word, in words on each side."""
    negative_samples: Annotated[int, Field(gt=0, le=1000)] = 5
    """Random words per context word that serve as negative examples."""
    min_count: Size = 5
    """Words with fewer occurrences have no vector."""
    subsample: Annotated[float, Field(ge=0, lt=1)] = 1e-3
    """Words with a higher relative frequency are randomly downsampled; 0 turns it off."""
    epochs: Annotated[int, Field(gt=0, le=100_000)] = 5
    """Passes over the text."""
    lowercase: bool = False
    """Whether text is lowercased."""
    nfkc: bool = False
    """Whether text is normalized with Unicode NFKC."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Seed of all random numbers."""
    threads: Annotated[int, Field(gt=0, le=1024)] = 1
    """Number of CPU threads; with more than one, results are not reproducible."""


class Word2VecDataConfig(BaseConfig):
    """Which text word vectors are trained on."""

    train: CorpusConfig = CorpusConfig()
    """Training text: plain files or JSON Lines."""
    skip_invalid: bool = False
    """Whether invalid lines are skipped and counted; otherwise the first one is an error."""


class Word2VecRunConfig(BaseConfig):
    """All settings of `regard train word2vec`."""

    word2vec: Word2VecConfig = Word2VecConfig()
    """How word vectors are trained."""
    data: Word2VecDataConfig = Word2VecDataConfig()
    """Which text word vectors are trained on."""
