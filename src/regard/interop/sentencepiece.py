"""A SentencePiece model file (`source.spm`), read without SentencePiece: its pieces, their scores, its normaliser.

The file is one Protocol Buffers message. On the wire a message is a run of fields, each a key, `number << 3 | type`,
and a value: a varint (type 0), eight bytes (1), a length and so many bytes (2), or four bytes (5). That is all there
is to it, so forty lines replace a dependency. The field numbers are those of `sentencepiece_model.proto`.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from regard.errors import ModelError

Value = int | bytes


class PieceType(IntEnum):
    """What a piece is for; only normal and user-defined ones are looked for in a text."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Piece:
    """A part of a word, with the logarithm of its probability."""

    text: str
    score: float
    type: PieceType


@dataclass(frozen=True)
class SentencePieceModel:
    """What a `.spm` file says about cutting text into pieces."""

    pieces: tuple[Piece, ...]
    algorithm: str  # unigram, bpe, word or char
    charsmap: bytes  # the normaliser, compiled; empty where text is taken as it is
    normaliser: str  # its name, such as nmt_nfkc
    dummy_prefix: bool  # a text is read as if it began with a space
    single_spaces: bool  # spaces are removed at both ends, and runs of them become one
    escapes_spaces: bool  # a space is written ▁
    space_ends_word: bool  # … and belongs to the word before it
    byte_fallback: bool  # what no piece covers becomes bytes


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """The model in a `.spm` file; a damaged file is one sentence."""
    try:
        return parse_sentencepiece(path.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"{path}: is missing; copy it from where the model came from.") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}).") from None
    except (ValueError, LookupError, TypeError, struct.error):
        raise ModelError(f"{path}: is not a SentencePiece model, or a damaged one; copy it again.") from None


def parse_sentencepiece(message: bytes) -> SentencePieceModel:
    """The model in the bytes of a `.spm` file; a `ValueError` or the like where they are something else."""
    pieces: list[Piece] = []
    trainer: dict[int, Value] = {}
    normaliser: dict[int, Value] = {}
    for number, value in _fields(message):
        match number, value:
            case 1, bytes():
                pieces.append(_piece(dict(_fields(value))))
            case 2, bytes():
                trainer |= _fields(value)
            case 3, bytes():
                normaliser |= _fields(value)
    if not pieces:
        raise ValueError("no pieces")
    return SentencePieceModel(
        tuple(pieces),
        algorithm={1: "unigram", 2: "bpe", 3: "word", 4: "char"}[int(trainer.get(3, 1))],
        charsmap=bytes(normaliser.get(2, b"")),
        normaliser=bytes(normaliser.get(1, b"")).decode(),
        dummy_prefix=bool(normaliser.get(3, True)),
        single_spaces=bool(normaliser.get(4, True)),
        escapes_spaces=bool(normaliser.get(5, True)),
        space_ends_word=bool(trainer.get(24, False)),
        byte_fallback=bool(trainer.get(35, False)),
    )


def _piece(fields: dict[int, Value]) -> Piece:
    score = struct.unpack("<f", bytes(fields.get(2, bytes(4))))[0]
    return Piece(bytes(fields[1]).decode(), score, PieceType(int(fields.get(3, PieceType.NORMAL))))


def _fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """The fields of a message, in order: number and value."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        match key & 7:
            case 0:
                value, at = _varint(message, at)
                yield key >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, at = _varint(message, at)
            case 5:
                length = 4
            case kind:
                raise ValueError(f"wire type {kind}")
        if at + length > len(message):
            raise ValueError("truncated")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, lowest first, the top bit saying that more follow; and where it ends."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
