"""Which tokens are whole words."""

import json
from collections.abc import Callable, Sequence

from regard.data.tokenizer import SPECIALS, WORD_START, Tokenizer

CONTINUES = "##"  # how WordPiece marks a token that does not start a word


def whole_words(tokenizer: Tokenizer) -> list[str | None]:
    """The word that each token may be by itself, by id; None for what only stands inside words.

    Where tokens mark the start of a word, those are words that do, and so is punctuation. Every token of a `word`
    tokenizer is one.

    >>> from regard.config import TokenizerConfig
    >>> from regard.data.tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["ciao, ciao"], TokenizerConfig(kind="word"), vocabulary=10)
    >>> whole_words(tokenizer)[4:]
    ['ciao', ',']
    """
    pieces, spelled = tokenizer.pieces(range(len(tokenizer))), tokenizer.spelling()
    is_word = _rule(tokenizer, pieces)
    return [
        text.strip() if piece not in SPECIALS and text.strip() and is_word(piece, text) else None
        for piece, text in zip(pieces, spelled, strict=True)
    ]


def _rule(tokenizer: Tokenizer, pieces: Sequence[str]) -> Callable[[str, str], bool]:
    """What tells a word from a part of one, by its token and by its text."""
    if any(piece.startswith(CONTINUES) for piece in pieces):
        return lambda piece, text: not piece.startswith(CONTINUES)
    marked = any(piece.startswith(WORD_START) for piece in pieces)
    if marked and json.loads(tokenizer.to_json())["model"]["type"] == "WordLevel":
        return lambda piece, text: True
    return lambda piece, text: text.startswith(" ") or _is_punctuation(text)


def _is_punctuation(text: str) -> bool:
    return not any(character.isalnum() or character == "\N{REPLACEMENT CHARACTER}" for character in text)
