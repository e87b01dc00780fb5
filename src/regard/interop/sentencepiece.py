"""SentencePiece models, read without SentencePiece, and their BPE as `tokenizer.json`.

A `.spm` file is one Protocol Buffers message: a sequence of fields, each with a key, `number << 3 | type`, and a value:
a varint (type 0), eight bytes (1), a length and that many bytes (2), or four bytes (5). The field numbers are those of
`sentencepiece_model.proto`.

SentencePiece merges the two neighbors whose union has the highest score, until no union is a piece. BPE of the
`tokenizers` library has a list of merges instead, the first of which applies: here all divisions of all pieces into two
others, by descending score. Characters without a piece become bytes, or one unknown token for each run of them.
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, normalizers
from tokenizers.models import BPE

from regard.data.tokenizer_file import MAX_TOKEN_CHARACTERS, MAX_TOKENIZER_BYTES
from regard.errors import ModelError
from regard.files import read_regular_file
from regard.models.folder_files import unreadable_file

SPACE = "▁"
MAX_VARINT_BITS = 70  # ten groups of seven
Value = int | bytes


class PieceType(IntEnum):
    """The type of a piece; only normal and user-defined pieces are matched in texts."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Piece:
    """A subword with its log-probability."""

    text: str
    score: float
    type: PieceType


@dataclass(frozen=True)
class SentencePieceModel:
    """The contents of a `.spm` file."""

    pieces: tuple[Piece, ...]
    algorithm: str  # unigram, bpe, word or char
    charsmap: bytes  # the compiled normalizer; empty if there is none
    normalizer: str  # its name, such as nmt_nfkc
    dummy_prefix: bool  # a space is added before a text
    single_spaces: bool  # spaces are stripped, and runs of them become one
    escapes_spaces: bool  # a space is represented as ▁
    space_ends_word: bool  # a space belongs to the word before it
    byte_fallback: bool  # unknown characters become bytes


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Read a `.spm` file; raise ModelError if it is damaged."""
    try:
        return parse_sentencepiece(read_regular_file(path, MAX_TOKENIZER_BYTES))
    except FileNotFoundError:
        raise ModelError(f"{path}: is missing; copy it from the original model.") from None
    except OSError as error:
        raise unreadable_file(path, error) from None
    except (ValueError, LookupError, TypeError, struct.error):
        raise ModelError(f"{path}: is not a SentencePiece model, or it is damaged; copy it again.") from None


def parse_sentencepiece(message: bytes) -> SentencePieceModel:
    """Parse the bytes of a `.spm` file; other bytes raise ValueError, LookupError, TypeError or struct.error."""
    pieces: list[Piece] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for number, value in _fields(message):
        match number, value:
            case 1, bytes():
                pieces.append(_piece(dict(_fields(value))))
            case 2, bytes():
                trainer |= _fields(value)
            case 3, bytes():
                normalizer |= _fields(value)
    if not pieces:
        raise ValueError("no pieces")
    return SentencePieceModel(
        tuple(pieces),
        algorithm={1: "unigram", 2: "bpe", 3: "word", 4: "char"}[int(trainer.get(3, 1))],
        charsmap=_content(normalizer.get(2, b"")),
        normalizer=_content(normalizer.get(1, b"")).decode(),
        dummy_prefix=bool(normalizer.get(3, True)),
        single_spaces=bool(normalizer.get(4, True)),
        escapes_spaces=bool(normalizer.get(5, True)),
        space_ends_word=bool(trainer.get(24, False)),
        byte_fallback=bool(trainer.get(35, False)),
    )


def _piece(fields: dict[int, Value]) -> Piece:
    score = struct.unpack("<f", _content(fields.get(2, bytes(4))))[0]
    return Piece(_content(fields[1]).decode(), score, PieceType(int(fields.get(3, PieceType.NORMAL))))


def _content(value: Value) -> bytes:
    """Return the bytes of a field; `bytes` of an integer would allocate as many."""
    if not isinstance(value, bytes):
        raise TypeError("an integer in place of bytes")
    return value


def _fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the number and value of each field of a message."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        match key & 7:
            case 0:
                value, position = _varint(message, position)
                yield key >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, position = _varint(message, position)
            case 5:
                length = 4
            case kind:
                raise ValueError(f"wire type {kind}")
        if position + length > len(message):
            raise ValueError("truncated")
        yield key >> 3, message[position : position + length]
        position += length


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return an integer stored in groups of seven bits, lowest first, and the position after it."""
    value = shift = 0
    while True:
        if shift >= MAX_VARINT_BITS:
            raise ValueError("an integer is too long")
        byte = message[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position


def is_matchable(piece: Piece) -> bool:
    """Return whether a piece occurs in texts."""
    return piece.type in (PieceType.NORMAL, PieceType.USER_DEFINED)


def bpe_tokenizer(pieces: Sequence[Piece], *, dummy_prefix: bool, byte_fallback: bool) -> Tokenizer:
    """Return a tokenizer with the ids of a BPE model of SentencePiece that keeps all spaces, such as Llama 2's.

    As in Llama 2, a space is added after each special token too, and not only before the text.
    """
    for piece in pieces:
        if not math.isfinite(piece.score):
            raise ValueError(f"the score of {piece.text!r} is not a number")
        if len(piece.text) > MAX_TOKEN_CHARACTERS:
            raise ValueError(f"a token has more than {MAX_TOKEN_CHARACTERS} characters")
    ids = {piece.text: number for number, piece in enumerate(pieces)}
    unknown = next((piece.text for piece in pieces if piece.type is PieceType.UNKNOWN), None)
    scores = {piece.text: piece.score for piece in pieces if is_matchable(piece)}
    model = BPE(ids, list(bpe_merges(scores)), unk_token=unknown, fuse_unk=True, byte_fallback=byte_fallback)
    tokenizer = Tokenizer(model)
    replace = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = normalizers.Sequence([*([normalizers.Prepend(SPACE)] if dummy_prefix else []), replace])
    strip = [decoders.Strip(" ", 1, 0)] if dummy_prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    special = (PieceType.UNKNOWN, PieceType.CONTROL)
    tokenizer.add_tokens(
        [
            AddedToken(piece.text, special=piece.type in special, normalized=False)
            for piece in pieces
            if piece.type in (*special, PieceType.USER_DEFINED)
        ]
    )
    return tokenizer


def bpe_merges(scores: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield the merges of a SentencePiece BPE model in their order, given the pieces and their scores.

    >>> list(bpe_merges({"a": 0, "b": 0, "ab": -2, "aab": -3, "aa": -1}))
    [('a', 'a'), ('a', 'b'), ('a', 'ab'), ('aa', 'b')]
    """
    for piece in sorted(scores, key=lambda text: -scores[text]):
        for end in range(1, len(piece)):
            if piece[:end] in scores and piece[end:] in scores:
                yield piece[:end], piece[end:]
