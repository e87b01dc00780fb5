"""Text to ids and back, on the `tokenizers` library. One vocabulary serves both languages of a translator.

Sub-word and word tokenizers mark the start of a word with `▁`, so that ids alone tell where the spaces were. Up to
normalisation, text → ids → text loses nothing: what a vocabulary of sub-words has no piece for is spelled in bytes.
Normalisation is what the settings ask for, and for those tokenizers also: spaces around a text are dropped, and a
literal `▁` becomes a space. Characters and words that a `character` or `word` tokenizer has never seen become `[UNK]`.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from regard.config import SpecialTokensConfig
from regard.config.data import TokenizerConfig
from regard.errors import DataError

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[SOS]", "[EOS]"]  # their ids are their places, as in `SpecialTokens`
MASK_TOKEN = "[MASK]"  # comes after them, in vocabularies for encoders that learn to guess hidden tokens
UNKNOWN_TOKEN = SPECIAL_TOKENS[SpecialTokensConfig().unknown]
WORD_START = "▁"
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


class Tokenizer:
    """Encodes and decodes."""

    def __init__(self, fast: tokenizers.Tokenizer) -> None:
        self._fast = fast
        self._fast.encode_special_tokens = True  # "[EOS]" in a text is text, and ends nothing

    def __len__(self) -> int:
        return self._fast.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without start and end."""
        return self._fast.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, on all cores."""
        return [encoding.ids for encoding in self._fast.encode_batch_fast(texts, add_special_tokens=False)]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The ids of many texts, and from where to where in its text each token lies."""
        return [
            (encoding.ids, encoding.offsets) for encoding in self._fast.encode_batch(texts, add_special_tokens=False)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special tokens are left out."""
        return self._fast.decode(ids)

    def ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        """Each id's own token."""
        return [self._fast.id_to_token(number) or UNKNOWN_TOKEN for number in ids]

    def decode_tokens(self, pieces: Sequence[str]) -> str:
        """The text of tokens, which need not be in the vocabulary."""
        return self._fast.decoder.decode(list(pieces)) if self._fast.decoder is not None else " ".join(pieces)

    def token_texts(self, text: str) -> list[str]:
        """The part of a text that each of its tokens stands for, marked where a word starts, as its token would be."""
        encoding = self._fast.encode(text, add_special_tokens=False)
        spaced = any(token.startswith(WORD_START) for token in encoding.tokens)
        return [
            f"{WORD_START if spaced and _begins_word(text, start) else ''}{text[start:end].strip()}"
            for start, end in encoding.offsets
        ]

    def encode_continuation(self, text: str) -> list[int]:
        """The ids of a text that goes on right where something else ends: it is not marked as the start of a word.

        >>> tokenizer = train_tokenizer(["ti amo.", "amo"], TokenizerConfig(kind="word"))
        >>> tokenizer.ids_to_tokens(tokenizer.encode(".")), tokenizer.ids_to_tokens(tokenizer.encode_continuation("."))
        (['[UNK]', '.'], ['.'])
        """
        if not self.marks_word_starts or not text or text[0].isspace():
            return self.encode(text)
        found = self._fast.encode(f"[{text}", add_special_tokens=False)  # such a bracket is always a token of its own
        return [number for number, (start, _) in zip(found.ids, found.offsets, strict=True) if start > 0]

    @cached_property
    def marks_word_starts(self) -> bool:
        """Whether tokens say where a word starts, and nothing else about spaces and ends of lines."""
        return any(piece.startswith(WORD_START) for piece in self._fast.get_vocab())

    @property
    def is_byte_level(self) -> bool:
        """Whether tokens are made of bytes, each written as a character of its own: a space as `Ġ`."""
        return "ByteLevel(" in str(self._fast.pre_tokenizer)

    @property
    def continuation_prefix(self) -> str | None:
        """What stands before a piece that goes on with a word, in vocabularies such as BERT's; None in others."""
        model = self._fast.model
        return model.continuing_subword_prefix if isinstance(model, models.WordPiece) else None

    def token_strings(self) -> list[str]:
        """The text of each token by its id, with the space before it where it starts a word."""
        pieces = self.ids_to_tokens(range(len(self)))
        if self.marks_word_starts:
            return [piece.replace(WORD_START, " ") for piece in pieces]
        return [self.decode([number]) for number in range(len(pieces))]

    def token_id(self, token: str) -> int | None:
        """The id of a token, if there is one of this name."""
        return self._fast.token_to_id(token)

    def to_json(self) -> bytes:
        """The content of a `tokenizer.json`."""
        return self._fast.to_str(pretty=False).encode()


def _begins_word(text: str, start: int) -> bool:
    return start == 0 or text[start].isspace() or text[start - 1].isspace()


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a `tokenizer.json`."""
    try:
        content = path.read_text("utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); give the path of a tokenizer.json.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8 text; give the path of a tokenizer.json.") from None
    try:
        return Tokenizer(tokenizers.Tokenizer.from_str(content))
    except Exception as error:  # the library raises nothing more precise
        raise DataError(f"{path}: is not a tokenizer.json ({error}).") from None


SPECIAL_TOKEN_NAMES = {  # of special tokens, as tokenizers call them
    "pad": ("[PAD]", "<pad>", "<|pad|>"),
    "unknown": ("[UNK]", "<unk>"),
    "start": ("[SOS]", "[BOS]", "<s>", "[CLS]", "<|startoftext|>"),
    "end": ("[EOS]", "</s>", "[SEP]", "<|endoftext|>"),
}
MASK_TOKENS = (MASK_TOKEN, "<mask>")  # only some tokenizers have one, and nothing else can stand in for it


def special_token_ids(tokenizer: Tokenizer, path: Path) -> dict[str, int]:
    """The ids of the special tokens of a tokenizer that someone else made; for those that it lacks, its end token's."""
    known = {
        token: number
        for token in chain(*SPECIAL_TOKEN_NAMES.values())
        if (number := tokenizer.token_id(token)) is not None
    }
    found = {
        what: next((known[name] for name in names if name in known), None)
        for what, names in SPECIAL_TOKEN_NAMES.items()
    }
    end = found["end"]
    if end is None:
        names = " or ".join(SPECIAL_TOKEN_NAMES["end"])
        raise DataError(f"{path}: has no token that ends a text, such as {names}; add one.")
    mask = mask_token_id(tokenizer)
    return {what: end if number is None else number for what, number in found.items()} | (
        {} if mask is None else {"mask": mask}
    )


def mask_token_id(tokenizer: Tokenizer) -> int | None:
    """The id of the token that others are hidden behind, if the tokenizer has one."""
    return next((number for name in MASK_TOKENS if (number := tokenizer.token_id(name)) is not None), None)


def train_tokenizer(
    texts: Iterable[str], config: TokenizerConfig, vocabulary: int = 8000, *, masked: bool = False
) -> Tokenizer:
    """Learn a tokenizer of at most `vocabulary` tokens, the special ones included, from texts, which are read once.

    `character` has as many tokens as the texts have characters. With `masked`, there is a special token more, `[MASK]`.

    The same texts give the same tokenizer, except for `unigram`, whose scores the library finds only to about 0.001.

    >>> tokenizer = train_tokenizer(["ti amo", "ti amo molto"], TokenizerConfig(), vocabulary=300)
    >>> tokenizer.decode(tokenizer.encode("ti amo molto"))
    'ti amo molto'
    """
    return Tokenizer(
        TRAINERS[config.kind](texts, config, vocabulary, [*SPECIAL_TOKENS, *([MASK_TOKEN] if masked else [])])
    )


def _bpe(texts: Iterable[str], config: TokenizerConfig, vocabulary: int, special: list[str]) -> tokenizers.Tokenizer:
    learned = _words(models.BPE(), config)
    size = max(vocabulary - len(BYTE_TOKENS), len(special))
    learned.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=special, **_TRAINER))
    model = json.loads(learned.to_str())["model"]
    pieces = [*special, *BYTE_TOKENS, *(piece for piece in model["vocab"] if piece not in {*special, *BYTE_TOKENS})]
    numbered = {piece: number for number, piece in enumerate(pieces)}
    merges = [tuple(merge) for merge in model["merges"]]
    return _spelled(models.BPE(numbered, merges, unk_token=UNKNOWN_TOKEN, byte_fallback=True), config, special)


def _unigram(
    texts: Iterable[str], config: TokenizerConfig, vocabulary: int, special: list[str]
) -> tokenizers.Tokenizer:
    learned = _words(models.Unigram(), config)
    size = max(vocabulary - len(BYTE_TOKENS), len(special))
    trainer = trainers.UnigramTrainer(vocab_size=size, unk_token=UNKNOWN_TOKEN, special_tokens=special, **_TRAINER)
    learned.train_from_iterator(texts, trainer)
    scored = json.loads(learned.to_str())["model"]["vocab"]
    pieces = [(piece, score) for piece, score in scored if piece not in {*special, *BYTE_TOKENS}]
    pieces.sort(key=lambda entry: (-entry[1], entry[0]))  # the library leaves equal ones in any order
    scores = [(piece, 0.0) for piece in [*special, *BYTE_TOKENS]] + pieces
    model = models.Unigram(scores, unk_id=SPECIAL_TOKENS.index(UNKNOWN_TOKEN), byte_fallback=True)
    return _spelled(model, config, special)


def _byte_level(
    texts: Iterable[str], config: TokenizerConfig, vocabulary: int, special: list[str]
) -> tokenizers.Tokenizer:
    fast = tokenizers.Tokenizer(models.BPE())
    fast.normalizer = _normalizer(config)
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet, special_tokens=special, **_TRAINER)
    fast.train_from_iterator(texts, trainer)
    return fast


def _character(
    texts: Iterable[str], config: TokenizerConfig, vocabulary: int, special: list[str]
) -> tokenizers.Tokenizer:
    normalizer = _normalizer(config)
    characters = sorted({character for text in texts for character in normalizer.normalize_str(text)})
    numbered = {token: number for number, token in enumerate([*special, *characters])}
    fast = tokenizers.Tokenizer(models.WordLevel(numbered, unk_token=UNKNOWN_TOKEN))
    fast.normalizer = normalizer
    fast.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
    fast.decoder = decoders.Fuse()
    fast.add_special_tokens(special)
    return fast


def _word(texts: Iterable[str], config: TokenizerConfig, vocabulary: int, special: list[str]) -> tokenizers.Tokenizer:
    fast = _words(models.WordLevel(unk_token=UNKNOWN_TOKEN), config, punctuation=True)
    trainer = trainers.WordLevelTrainer(vocab_size=vocabulary, special_tokens=special, **_TRAINER)
    fast.train_from_iterator(texts, trainer)
    return fast


def word_splitter(config: TokenizerConfig) -> Callable[[str], list[str]]:
    """What a `word` tokenizer makes tokens of, without their marks.

    >>> word_splitter(TokenizerConfig(kind="word", lowercase=True))("Ciao, come va?")
    ['ciao', ',', 'come', 'va', '?']
    """
    fast = _words(models.WordLevel(unk_token=UNKNOWN_TOKEN), config, punctuation=True)

    def split(text: str) -> list[str]:
        pieces = fast.pre_tokenizer.pre_tokenize_str(fast.normalizer.normalize_str(text))
        return [word for piece, _ in pieces for word in piece.replace(WORD_START, " ").split()]

    return split


TRAINERS: dict[str, Callable[[Iterable[str], TokenizerConfig, int, list[str]], tokenizers.Tokenizer]] = {
    "bpe": _bpe,
    "unigram": _unigram,
    "byte-level": _byte_level,
    "character": _character,
    "word": _word,
}
_TRAINER: dict[str, Any] = {"show_progress": False}


def _words(model: models.Model, config: TokenizerConfig, *, punctuation: bool = False) -> tokenizers.Tokenizer:
    """A tokenizer that marks where words start."""
    fast = tokenizers.Tokenizer(model)
    tidy = [normalizers.Replace(WORD_START, " "), normalizers.Strip()]
    fast.normalizer = normalizers.Sequence([_normalizer(config), *tidy])
    # a text that says "[EOS]" or "<0x41>" must not be taken for the token of that name
    bracket = pre_tokenizers.Split(tokenizers.Regex(r"[\[<]"), "isolated")
    alone = pre_tokenizers.Punctuation() if punctuation else bracket
    fast.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(WORD_START, "always"), alone])
    fast.decoder = decoders.Metaspace(WORD_START, "always")
    return fast


def _spelled(model: models.Model, config: TokenizerConfig, special: list[str]) -> tokenizers.Tokenizer:
    """The same, but what it has no piece for is spelled in bytes."""
    fast = _words(model, config)
    fast.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(WORD_START, "always")])
    fast.add_special_tokens(special)
    return fast


def _normalizer(config: TokenizerConfig) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = []
    if config.nfkc:
        steps.append(normalizers.NFKC())
    if config.lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence(steps)
