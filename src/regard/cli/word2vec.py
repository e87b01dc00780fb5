"""`regard train word2vec`: from text to word vectors."""

import sys
from pathlib import Path
from typing import Any

SHOWN = 5  # words whose neighbours are printed


def run(data: dict[str, Any], others: dict[str, Any], settings: list[str], out: Path | None, quiet: bool) -> None:
    """Train word vectors; `others` are options of `regard train` that mean nothing here, with what they were given."""
    from regard.config import ConfigSource, load_sources
    from regard.config.sources import validate_sources
    from regard.config.word2vec import Word2VecRunConfig
    from regard.errors import ConfigError
    from regard.training.display import ResilientDisplay, display_for
    from regard.training.word2vec import FILE, train_word2vec

    for option, value in others.items():
        if value:
            raise ConfigError(f"{option} means nothing to word2vec, which learns from --data; leave it out.")
    sources = [ConfigSource("the command", {"data": data}), *load_sources(None, settings)]
    config = validate_sources(sources, Word2VecRunConfig)
    place = out or Path("runs") / "word2vec"
    display = ResilientDisplay(display_for(sys.stderr, quiet))
    try:
        learned = train_word2vec(config, place, sources, display, ["regard", *sys.argv[1:]])
    finally:
        display.close()
    print(f"{len(learned.words):,} words of {config.word2vec.width} numbers, from {learned.read:,} words of text.")
    for word in [word for word in learned.words if word.isalpha()][:SHOWN]:
        print(f"near {word}: {' '.join(learned.nearest(word))}")
    print(f"Vectors: {place / FILE}")
