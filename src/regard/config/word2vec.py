"""The settings of word vectors (Mikolov et al. 2013). The defaults are those of word2vec itself."""

from typing import Annotated, Literal

from pydantic import Field

from regard.config.base import BaseConfig, Size
from regard.config.data import CorpusConfig


class Word2VecConfig(BaseConfig):
    """How words become vectors."""

    method: Literal["skip-gram", "cbow"] = "skip-gram"
    """`skip-gram`: a word predicts each of its neighbours; `cbow`: the mean of the neighbours predicts the word."""
    width: Size = 100
    """Numbers in a vector."""
    window: Size = 5
    """How far a neighbour may be, in words to each side."""
    negative_samples: Annotated[int, Field(gt=0, le=1000)] = 5
    """Words drawn at random for each neighbour, to be told from it."""
    min_count: Size = 5
    """Words that come less often have no vector."""
    subsample: Annotated[float, Field(ge=0, lt=1)] = 1e-3
    """Words that make up more than this share of the text are often passed over; 0 passes over none."""
    epochs: Annotated[int, Field(gt=0, le=100_000)] = 5
    """Passes over the text."""
    lowercase: bool = False
    """Make everything lower case."""
    nfkc: bool = False
    """Unicode compatibility normalisation, as a tokenizer's."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Everything random follows from it."""
    threads: Annotated[int, Field(gt=0, le=1024)] = 1
    """Processor cores to use. With more than one, the same settings no longer give the same vectors."""


class Word2VecDataConfig(BaseConfig):
    """What is read."""

    train: CorpusConfig = CorpusConfig()
    """The text: plain files or JSON Lines."""
    skip_invalid: bool = False
    """Skip and count lines that cannot be used, rather than stop at the first."""


class Word2VecRunConfig(BaseConfig):
    """Everything that can be set where word vectors are trained."""

    word2vec: Word2VecConfig = Word2VecConfig()
    data: Word2VecDataConfig = Word2VecDataConfig()
