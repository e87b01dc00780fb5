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
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, processors
from tokenizers.models import Unigram

from regard.data.tokenizer_file import (
    LEADING_SPACES_PATTERN,
    SPACE_RUN_PATTERN,
    TRAILING_MARKS_PATTERN,
)
from regard.errors import ModelError
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
from regard.interop.sentencepiece import PieceType, SentencePieceModel, is_matchable, read_sentencepiece
from regard.models.folder_files import TARGET_TOKENIZER_FILE, TOKENIZER_FILE, read_optional_json

USER_DEFINED_SCORE = 0.0  # above all others: SentencePiece always prefers user-defined pieces


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
