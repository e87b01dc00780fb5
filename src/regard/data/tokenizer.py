"""Tokenizers, on the `tokenizers` library. One vocabulary serves both languages of a translation model.

Sub-word and word tokenizers mark the start of a word with `▁`, so that spaces can be restored from ids. Punctuation is
split from letters before sub-words are learned (`split_punctuation`), so that `much` and `much.` begin with the same
token; after an opening mark, as in `(much`, the word has no space before it, and so a token without `▁`. Apart from
normalization, text → ids → text is lossless: what a sub-word vocabulary has no token for is spelled in bytes.
Normalization is that of the config; these tokenizers also drop spaces around a text, and turn a literal `▁` into a
space. Without byte fallback, what a `character` or `word` tokenizer has never seen becomes `[UNK]`.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from regard.config import SpecialTokensConfig, TokenizerConfig
from regard.data.tokenizer_file import (
    BRACKET_PATTERN,
    CHARACTER_PATTERN,
    PUNCTUATION_PATTERN,
    guarded_call,
    read_tokenizer,
)
from regard.errors import DataError, ModelError

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[SOS]", "[EOS]"]  # in the order of their ids, as in `SpecialTokensConfig`
MASK_TOKEN = "[MASK]"  # follows them in vocabularies for masked language modeling
UNKNOWN_TOKEN = SPECIAL_TOKENS[SpecialTokensConfig().unknown]
WORD_START = "▁"
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
SPECIAL_TOKEN_NAMES = {  # names of special tokens in tokenizers of other programs
    "pad": ("[PAD]", "<pad>", "<|pad|>"),
    "unknown": ("[UNK]", "<unk>"),
    "start": ("[SOS]", "[BOS]", "<s>", "[CLS]", "<|startoftext|>"),
    "end": ("[EOS]", "</s>", "[SEP]", "<|endoftext|>"),
}
MIN_PARALLEL_TEXTS = 4  # waking the threads of the library takes longer than fewer texts
MASK_TOKENS = (MASK_TOKEN, "<mask>")  # no other token can stand in for a missing one


class Tokenizer:
    """Encodes texts to ids and decodes ids to texts."""

    def __init__(self, fast: tokenizers.Tokenizer, location: object = "the tokenizer") -> None:
        self._fast = fast
        self.location = location
        """Its file, for error messages."""
        self._fast.encode_special_tokens = True  # "[EOS]" in a text is text

    def __len__(self) -> int:
        return self._fast.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without start and end."""
        return self._encode(text).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of several texts, using all cores."""
        if len(texts) < MIN_PARALLEL_TEXTS:
            return [self.encode(text) for text in texts]
        encode_batch = self._fast.encode_batch_fast
        return [encoding.ids for encoding in guarded_call(self.location, encode_batch, texts, add_special_tokens=False)]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the ids of several texts, and the character offsets (start, end) of each token."""
        encodings = guarded_call(self.location, self._fast.encode_batch, texts, add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in encodings]

    def encode_with_special_tokens(self, text: str) -> tuple[list[int], list[int]]:
        """Return the ids of a text in which names of special tokens are these tokens, and where each token begins."""
        encoding = guarded_call(self.location, self._with_special_tokens.encode, text, add_special_tokens=False)
        return encoding.ids, [start for start, _ in encoding.offsets]

    def encode_continuation(self, text: str) -> list[int]:
        """Return the ids of a text that directly continues another: no space is added before it.

        >>> tokenizer = train_tokenizer(["ti amo.", "amo"], TokenizerConfig(kind="word"), vocab_size=300)
        >>> tokenizer.ids_to_tokens(tokenizer.encode(".")), tokenizer.ids_to_tokens(tokenizer.encode_continuation("."))
        (['▁', '.'], ['.'])
        """
        if not self.marks_word_starts or not text:
            return self.encode(text)
        encoding = self._encode(f"[{text}")  # the bracket is always a separate token
        return [number for number, (start, _) in zip(encoding.ids, encoding.offsets, strict=True) if start > 0]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without special tokens."""
        return guarded_call(self.location, self._fast.decode, ids)

    def decode_batch(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of several lists of ids, using all cores."""
        if len(rows) < MIN_PARALLEL_TEXTS:
            return [self.decode(ids) for ids in rows]
        return guarded_call(self.location, self._fast.decode_batch, rows)

    def decode_tokens(self, tokens: Sequence[str]) -> str:
        """Return the text of tokens, which need not be in the vocabulary."""
        if self._fast.decoder is None:
            return " ".join(tokens)
        text: str = guarded_call(self.location, self._fast.decoder.decode, list(tokens))
        return text

    def ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the token of each id."""
        return [self._fast.id_to_token(number) or UNKNOWN_TOKEN for number in ids]

    def token_id(self, token: str) -> int | None:
        """Return the id of a token; None if it is not in the vocabulary."""
        return self._fast.token_to_id(token)

    def token_texts(self, text: str) -> list[str]:
        """Return the part of a text that each token covers, with the mark of a word start where there is one."""
        encoding = self._encode(text)
        marked = any(token.startswith(WORD_START) for token in encoding.tokens)
        return [
            f"{WORD_START if marked and _starts_word(text, start) else ''}{text[start:end].strip()}"
            for start, end in encoding.offsets
        ]

    def token_strings(self) -> list[str]:
        """Return the text of each token by its id, with the space before it if it starts a word."""
        tokens = self.ids_to_tokens(range(len(self)))
        if self.marks_word_starts:
            return [token.replace(WORD_START, " ") for token in tokens]
        return [self.decode([number]) for number in range(len(tokens))]

    @cached_property
    def special_tokens(self) -> list[str]:
        """The names of special tokens."""
        return [token.content for token in self._fast.get_added_tokens_decoder().values() if token.special]

    @cached_property
    def _with_special_tokens(self) -> tokenizers.Tokenizer:
        return tokenizers.Tokenizer.from_str(self._fast.to_str())  # a copy, which other threads do not change

    @cached_property
    def marks_word_starts(self) -> bool:
        """Whether tokens mark the start of a word, and keep no other white space."""
        return any(token.startswith(WORD_START) for token in self._fast.get_vocab())

    @property
    def is_byte_level(self) -> bool:
        """Whether tokens are made of bytes, each written as a character: a space is `Ġ`."""
        return "ByteLevel(" in str(self._fast.pre_tokenizer)

    @property
    def continuation_prefix(self) -> str | None:
        """Prefix of tokens that continue a word, in vocabularies such as BERT's; None in others."""
        model = self._fast.model
        return model.continuing_subword_prefix if isinstance(model, models.WordPiece) else None

    @cached_property
    def unknown_id(self) -> int | None:
        """The id of text that it has no token for; None if there is no such text, which is spelled in bytes."""
        model, vocabulary = json.loads(self.to_json())["model"], self._fast.get_vocab()
        alphabet = pre_tokenizers.ByteLevel.alphabet() if self.is_byte_level else BYTE_TOKENS
        if (model.get("byte_fallback") or self.is_byte_level) and vocabulary.keys() >= set(alphabet):
            return None
        if model["type"] == "Unigram":
            unknown: int | None = model["unk_id"]
            return unknown
        return vocabulary.get(model.get("unk_token"))

    def num_unknown(self, ids: Sequence[int]) -> int:
        """Return how many ids stand for text that the tokenizer has no token for."""
        return 0 if self.unknown_id is None else sum(number == self.unknown_id for number in ids)

    def to_json(self) -> bytes:
        """Return the content of a `tokenizer.json`."""
        return self._fast.to_str(pretty=False).encode()

    def _encode(self, text: str) -> tokenizers.Encoding:
        return guarded_call(self.location, self._fast.encode, text, add_special_tokens=False)


def unknown_note(unknown: int, total: int) -> str:
    """Return the note on tokens of text that a tokenizer does not know.

    >>> unknown_note(3, 1200)
    '3 of 1,200 tokens (0.2%) are unknown: the tokenizer has no token for their text, which the model cannot read'
    """
    problem = "the tokenizer has no token for their text, which the model cannot read"
    return f"{unknown:,} of {total:,} tokens ({unknown / total:.1%}) are unknown: {problem}"


def has_whole_tokens(model: dict[str, Any]) -> bool:
    """Return whether the tokens of a model in a `tokenizer.json` are whole words or characters, apart from bytes."""
    return model["type"] == "WordLevel" or (bool(model.get("ignore_merges")) and not model["merges"])


def _starts_word(text: str, start: int) -> bool:
    return start == 0 or text[start].isspace() or text[start - 1].isspace()


def load_tokenizer(path: Path, vocab_size: int | None = None) -> Tokenizer:
    """Load a `tokenizer.json`, which is checked first (see `tokenizer_file.py`).

    Args:
        path: the file.
        vocab_size: number of tokens of the network in the same folder, if there is one.

    Raises:
        ModelError: if the file of a model folder cannot be used; DataError if it belongs to no network.
    """
    if vocab_size is not None:
        return Tokenizer(read_tokenizer(path, vocab_size), path)
    try:
        return Tokenizer(read_tokenizer(path, remedy="pass another tokenizer.json"), path)
    except ModelError as error:
        raise DataError(str(error)) from None


def special_token_ids(tokenizer: Tokenizer, path: Path) -> dict[str, int]:
    """Return the ids of the special tokens of any tokenizer; the end token stands in for missing ones."""
    known = {
        token: number
        for token in chain(*SPECIAL_TOKEN_NAMES.values())
        if (number := tokenizer.token_id(token)) is not None
    }
    ids = {
        role: next((known[name] for name in names if name in known), None)
        for role, names in SPECIAL_TOKEN_NAMES.items()
    }
    end = ids["end"]
    if end is None:
        names = " or ".join(SPECIAL_TOKEN_NAMES["end"])
        raise DataError(f"{path}: has no end token, such as {names}; add one.")
    mask = mask_token_id(tokenizer)
    return {role: end if number is None else number for role, number in ids.items()} | (
        {} if mask is None else {"mask": mask}
    )


def mask_token_id(tokenizer: Tokenizer) -> int | None:
    """Return the id of the mask token; None if the tokenizer has none."""
    return next((number for name in MASK_TOKENS if (number := tokenizer.token_id(name)) is not None), None)


def train_tokenizer(
    texts: Iterable[str], config: TokenizerConfig, vocab_size: int = 8000, *, mask_token: bool = False
) -> Tokenizer:
    """Train a tokenizer.

    The same texts give the same tokenizer, except for `unigram`, whose scores vary by about 0.001.

    Args:
        texts: the texts to learn from, which are read once.
        config: kind and normalization.
        vocab_size: maximum number of tokens, special ones included; `character` has as many as there are characters.
        mask_token: add `[MASK]` to the special tokens.

    >>> tokenizer = train_tokenizer(["ti amo", "ti amo molto"], TokenizerConfig(), vocab_size=300)
    >>> tokenizer.decode(tokenizer.encode("ti amo molto"))
    'ti amo molto'
    """
    special = [*SPECIAL_TOKENS, *([MASK_TOKEN] if mask_token else [])]
    return Tokenizer(_TRAINERS[config.kind](texts, config, vocab_size, special))


def word_splitter(config: TokenizerConfig) -> Callable[[str], list[str]]:
    """Return a function that splits a text into the words of a `word` tokenizer, without their marks.

    >>> word_splitter(TokenizerConfig(kind="word", lowercase=True))("Ciao, come va?")
    ['ciao', ',', 'come', 'va', '?']
    """
    fast = _word_marking_tokenizer(models.WordLevel(unk_token=UNKNOWN_TOKEN), config, words=True)

    def split(text: str) -> list[str]:
        pieces = fast.pre_tokenizer.pre_tokenize_str(fast.normalizer.normalize_str(text))
        return [word for piece, _ in pieces for word in piece.replace(WORD_START, " ").split()]

    return split


def _train_bpe(
    texts: Iterable[str], config: TokenizerConfig, vocabulary: int, special: list[str]
) -> tokenizers.Tokenizer:
    trained = _word_marking_tokenizer(models.BPE(), config)
    size = max(vocabulary - len(BYTE_TOKENS), len(special))
    trained.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=special, **_OPTIONS))
    model = json.loads(trained.to_str())["model"]
    tokens = [*special, *BYTE_TOKENS, *(token for token in model["vocab"] if token not in {*special, *BYTE_TOKENS})]
    ids = {token: number for number, token in enumerate(tokens)}
    merges = [tuple(merge) for merge in model["merges"]]
    return _with_byte_fallback(models.BPE(ids, merges, unk_token=UNKNOWN_TOKEN, byte_fallback=True), config, special)


def _train_unigram(
    texts: Iterable[str], config: TokenizerConfig, vocabulary: int, special: list[str]
) -> tokenizers.Tokenizer:
    trained = _word_marking_tokenizer(models.Unigram(), config)
    size = max(vocabulary - len(BYTE_TOKENS), len(special))
    trainer = trainers.UnigramTrainer(vocab_size=size, unk_token=UNKNOWN_TOKEN, special_tokens=special, **_OPTIONS)
    trained.train_from_iterator(texts, trainer)
    scored = json.loads(trained.to_str())["model"]["vocab"]
    tokens = [(token, score) for token, score in scored if token not in {*special, *BYTE_TOKENS}]
    tokens.sort(key=lambda entry: (-entry[1], entry[0]))  # the library leaves equal scores in any order
    scores = [(token, 0.0) for token in [*special, *BYTE_TOKENS]] + tokens
    model = models.Unigram(scores, unk_id=SPECIAL_TOKENS.index(UNKNOWN_TOKEN), byte_fallback=True)
    return _with_byte_fallback(model, config, special)


def _train_byte_level(
    texts: Iterable[str], config: TokenizerConfig, vocabulary: int, special: list[str]
) -> tokenizers.Tokenizer:
    fast = tokenizers.Tokenizer(models.BPE())
    fast.normalizer = _normalizer(config)
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet, special_tokens=special, **_OPTIONS)
    fast.train_from_iterator(texts, trainer)
    return fast


def _train_character(
    texts: Iterable[str], config: TokenizerConfig, vocabulary: int, special: list[str]
) -> tokenizers.Tokenizer:
    normalizer = _normalizer(config)
    characters = sorted({character for text in texts for character in normalizer.normalize_str(text)})
    fast = tokenizers.Tokenizer(_whole_token_model(characters, config, special))
    fast.normalizer = normalizer
    fast.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(CHARACTER_PATTERN), "isolated")
    fuse = decoders.Fuse()
    fast.decoder = decoders.Sequence([decoders.ByteFallback(), fuse]) if config.byte_fallback else fuse
    fast.add_special_tokens(special)
    return fast


def _train_word(
    texts: Iterable[str], config: TokenizerConfig, vocabulary: int, special: list[str]
) -> tokenizers.Tokenizer:
    fast = _word_marking_tokenizer(models.WordLevel(unk_token=UNKNOWN_TOKEN), config, words=True)
    reserved = [*special, *([*BYTE_TOKENS, WORD_START] if config.byte_fallback else [])]
    size = max(vocabulary, len(reserved)) - len(reserved) + len(special)
    fast.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=size, special_tokens=special, **_OPTIONS))
    if config.byte_fallback:
        trained = fast.get_vocab()
        words = sorted(trained, key=trained.__getitem__)[len(special) :]
        model = _whole_token_model([WORD_START, *(word for word in words if word != WORD_START)], config, special)
        fast = _with_byte_fallback(model, config, special, words=True)
    return fast


_TRAINERS: dict[str, Callable[[Iterable[str], TokenizerConfig, int, list[str]], tokenizers.Tokenizer]] = {
    "bpe": _train_bpe,
    "unigram": _train_unigram,
    "byte-level": _train_byte_level,
    "character": _train_character,
    "word": _train_word,
}
_OPTIONS: dict[str, Any] = {"show_progress": False}


def _word_marking_tokenizer(
    model: models.Model, config: TokenizerConfig, *, words: bool = False
) -> tokenizers.Tokenizer:
    """Return a tokenizer that marks the starts of words; with `words`, its tokens are words and punctuation marks."""
    fast = tokenizers.Tokenizer(model)
    cleanup = [normalizers.Replace(WORD_START, " "), normalizers.Strip()]
    fast.normalizer = normalizers.Sequence([_normalizer(config), *cleanup])
    # "[EOS]" or "<0x41>" in a text must not become the token of that name
    pattern = PUNCTUATION_PATTERN if config.split_punctuation else BRACKET_PATTERN
    isolated = pre_tokenizers.Punctuation() if words else pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    fast.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(WORD_START, "always"), isolated])
    fast.decoder = decoders.Metaspace(WORD_START, "always")
    return fast


def _whole_token_model(tokens: Iterable[str], config: TokenizerConfig, special: list[str]) -> models.Model:
    """Return a model whose tokens are whole words or characters; with byte fallback, BPE without merges."""
    if not config.byte_fallback:
        ids = {token: number for number, token in enumerate([*special, *tokens])}
        return models.WordLevel(ids, unk_token=UNKNOWN_TOKEN)
    ids = {token: number for number, token in enumerate([*special, *BYTE_TOKENS, *tokens])}
    return models.BPE(ids, [], unk_token=UNKNOWN_TOKEN, byte_fallback=True, ignore_merges=True)


def _with_byte_fallback(
    model: models.Model, config: TokenizerConfig, special: list[str], *, words: bool = False
) -> tokenizers.Tokenizer:
    """Return a tokenizer that marks the starts of words, and spells in bytes what it has no token for."""
    fast = _word_marking_tokenizer(model, config, words=words)
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
