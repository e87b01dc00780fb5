"""Marian's tokenizers as `tokenizer.json`: SentencePiece unigram models with Marian's ids, read without SentencePiece.

`source.spm` and `target.spm` define how texts are split, `vocab.json` gives the pieces of both their ids. A Unigram
model of the `tokenizers` library represents each side; each of the two decodes the ids of both. Three details make
the ids equal:

- A piece of the other side must be in the vocabulary for decoding, but must never match in a text. It is stored with
  a space before it: texts contain no spaces when they are split, since each has become ▁.
- A run of characters that no piece covers is one unknown token; but Marian looks the run up in `vocab.json`, and so
  gives a lone `ß` its id if the other side has `ß`. Such runs can match; every other run is replaced by one uncovered
  character.
- An unknown character costs ten more than the rarest piece, so added pieces must not be rarer than that.

The ids differ from Marian's only in these cases:

- Characters that the normalizer rewrites in combination with combining marks: two marks on a letter, a ligature with
  a mark, decomposed Hangul or kana. SentencePiece applies the longest rule, `Precompiled` of `tokenizers` the
  shortest, one grapheme at a time. Composed text (NFC), as keyboards and editors produce it, is not affected.
- A piece in the `.spm` without an id in `vocab.json`: Marian treats it as unknown, we split it into pieces with ids.
  Unknown runs with a character that occurs only in longer pieces may differ too.
- A language code (`>>ita<<`): Marian recognizes any at the start of a text; we recognize known ones anywhere.
- Equally probable segmentations of a word, as in rulers (`-----`): SentencePiece sums in 32 bits, which may break the
  tie.

A `.spm` file is one Protocol Buffers message: a sequence of fields, each with a key, `number << 3 | type`, and a value:
a varint (type 0), eight bytes (1), a length and that many bytes (2), or four bytes (5). The field numbers are those of
`sentencepiece_model.proto`.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, processors
from tokenizers.models import Unigram

from regard.data.tokenizer_file import (
    LEADING_SPACES_PATTERN,
    MAX_TOKENIZER_BYTES,
    SPACE_RUN_PATTERN,
    TRAILING_MARKS_PATTERN,
)
from regard.errors import ModelError
from regard.files import read_regular_file
from regard.interop.hf_tokenizers import (
    TOKENIZER_CONFIG_FILE,
    ImportedTokenizers,
    copy_tokenizers,
    make_tokenizer,
    no_tokenizers,
    read_vocabulary,
    require_tokens,
    special_token_names,
)
from regard.models.folder_files import TARGET_TOKENIZER_FILE, TOKENIZER_FILE, read_optional_json, unreadable_file

USER_DEFINED_SCORE = 0.0  # above all others: SentencePiece always prefers user-defined pieces
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
        charsmap=bytes(normalizer.get(2, b"")),
        normalizer=bytes(normalizer.get(1, b"")).decode(),
        dummy_prefix=bool(normalizer.get(3, True)),
        single_spaces=bool(normalizer.get(4, True)),
        escapes_spaces=bool(normalizer.get(5, True)),
        space_ends_word=bool(trainer.get(24, False)),
        byte_fallback=bool(trainer.get(35, False)),
    )


def _piece(fields: dict[int, Value]) -> Piece:
    score = struct.unpack("<f", bytes(fields.get(2, bytes(4))))[0]
    return Piece(bytes(fields[1]).decode(), score, PieceType(int(fields.get(3, PieceType.NORMAL))))


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
        byte = message[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position


def marian_tokenizers(folder: Path) -> ImportedTokenizers:
    """Return `tokenizer.json` for sources and `target_tokenizer.json` for targets; each decodes the ids of both."""
    existing = copy_tokenizers(folder, TOKENIZER_FILE, TARGET_TOKENIZER_FILE)
    if not any((folder / name).exists() for name in ("source.spm", "target.spm")):
        return existing if existing.by_file else no_tokenizers()
    separate = read_optional_json(folder / TOKENIZER_CONFIG_FILE).get("separate_vocabs") is True
    names = special_token_names(folder, eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
    tokenizers, notes = dict(existing.by_file), list(existing.notes)
    for file, pieces, vocabulary in (
        (TOKENIZER_FILE, folder / "source.spm", folder / "vocab.json"),
        (TARGET_TOKENIZER_FILE, folder / "target.spm", folder / ("target_vocab.json" if separate else "vocab.json")),
    ):
        if file in tokenizers:
            continue
        model, ids = read_sentencepiece(pieces), read_vocabulary(vocabulary)
        _check_unigram(model, pieces, file)
        require_tokens(vocabulary, ids, names["eos_token"], names["unk_token"])
        tokenizers[file] = make_tokenizer(pieces, partial(unigram_tokenizer, model, ids, names))
        if missing := [piece.text for piece in model.pieces if is_matchable(piece) and piece.text not in ids]:
            notes.append(
                f"{pieces.name} has pieces without an id in {vocabulary.name} ({len(missing)}, such as "
                f"{missing[0]!r}); texts are split into other pieces."
            )
    return ImportedTokenizers(tokenizers, tuple(notes))


def unigram_tokenizer(model: SentencePieceModel, ids: Mapping[str, int], names: Mapping[str, str]) -> Tokenizer:
    """Return the tokenizer of one side; `names` are those of the special tokens, such as `{"eos_token": "</s>"}`."""
    matchable = [piece for piece in model.pieces if is_matchable(piece) and piece.text in ids]
    scores = {piece.text: piece.score if piece.type is PieceType.NORMAL else USER_DEFINED_SCORE for piece in matchable}
    rarest = min(piece.score for piece in model.pieces if piece.type is PieceType.NORMAL)
    covered = {character for text in scores for character in text}
    end, unknown = names["eos_token"], names["unk_token"]
    kept = {text for text in ids if text in names.values() or (text.startswith(">>") and text.endswith("<<"))}
    lone = {text for text in ids if text not in kept and text and covered.isdisjoint(text)}
    entries = [(f"  {number}", rarest) for number in range(max(ids.values()) + 1)]  # for ids without a piece
    for text, number in ids.items():
        hidden = text not in scores and text not in kept and text not in lone
        entries[number] = (f" {text}" if hidden else text, scores.get(text, rarest))
    tokenizer = Tokenizer(Unigram(entries, ids[unknown], False))
    tokenizer.normalizer = make_normalizer(model, covered, lone)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(" ", ""), decoders.Metaspace()])
    tokenizer.post_processor = processors.TemplateProcessing(f"$A {end}", None, [(end, ids[end])])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in sorted(kept & {*names.values()})])
    # language codes are part of the text, where special tokens are not matched
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in sorted(kept - {*names.values()})])
    return tokenizer


def _check_unigram(model: SentencePieceModel, path: Path, alternative: str) -> None:
    for applies, problem in (
        (model.algorithm != "unigram", f"is a {model.algorithm} model, and regard supports unigram models"),
        (model.byte_fallback, "splits unknown characters into bytes, which regard does not support"),
        (model.space_ends_word, "attaches spaces to the word before them, which regard does not support"),
        (not model.escapes_spaces, "does not escape spaces, which regard does not support"),
    ):
        if applies:
            raise ModelError(f"{path}: {problem}; put a {alternative} into the same folder.")


def is_matchable(piece: Piece) -> bool:
    """Return whether a piece occurs in texts."""
    return piece.type in (PieceType.NORMAL, PieceType.USER_DEFINED)


def make_normalizer(model: SentencePieceModel, covered: set[str], lone: set[str]) -> normalizers.Normalizer:
    """Return the normalizer of a model; `covered` are characters of its pieces, `lone` characters known alone."""
    steps: list[normalizers.Normalizer] = []
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    if model.single_spaces:
        steps.append(normalizers.Replace(Regex(LEADING_SPACES_PATTERN), ""))
        steps.append(normalizers.Replace(Regex(SPACE_RUN_PATTERN), " "))
    if model.dummy_prefix:
        steps.append(normalizers.Prepend(" "))
    steps.append(normalizers.Replace(" ", "▁"))
    if model.single_spaces:
        steps.append(
            normalizers.Replace(Regex(TRAILING_MARKS_PATTERN), "")
        )  # last, because a ▁ in the text counts as a space
    if lone:
        used = covered | lone
        uncovered = next(chr(code) for code in range(0xFFFD, 0xE000, -1) if chr(code) not in used)
        unknown = f"[^{''.join(_escape(character) for character in sorted(covered))}]"
        known = "|".join(sorted("".join(map(_escape, text)) for text in lone))
        run = f"(?={unknown})(?<!{unknown})(?!(?:{known})(?!{unknown})){unknown}+"  # a complete run that is not known
        steps.append(normalizers.Replace(Regex(run), uncovered))
    return normalizers.Sequence(steps)


def _escape(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"
