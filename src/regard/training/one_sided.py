"""Data of tasks that read texts by themselves: nothing stands beside them, as translations and parses would."""

from regard.config import Config
from regard.errors import ConfigError


def check_one_sided(config: Config, who: str) -> None:
    """Complain about aligned files and parses, which are for translation; `who` it is that learns."""
    for part, option in zip(config.data.splits, ("--", "--valid-", "--test-"), strict=True):
        own = "--data" if option == "--" else option.removesuffix("-")
        if part.source or part.target:
            raise ConfigError(f"{who} learns from {own}; {option}source and {option}target are for translation.")
        if part.parses:
            raise ConfigError(f"{option}parses: is for translation, where the source has parses; drop it.")
