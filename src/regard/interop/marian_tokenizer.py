"""Marian's way of cutting text into pieces, as a `tokenizer.json`: SentencePiece's pieces under Marian's ids.

`source.spm` and `target.spm` say how to cut a text, `vocab.json` gives the pieces of both their ids. A Unigram model of
the `tokenizers` library holds the same, one tokenizer for each side, and decodes the ids of both. Three things make
the ids equal:

- A piece that only the other side knows must be in the vocabulary, to be decoded, and must never be found in a text.
  It is kept with a space before it: texts have no space left when they are cut, each having become ▁.
- What no piece covers is unknown, a whole run of characters as one token; but Marian looks that run up in `vocab.json`
  as it stands, and so gives a lone `ß` its id if the other side knows `ß`. Such runs stay findable, and every other
  run becomes one character that nothing covers.
- An unknown character costs ten more than the rarest piece, so whatever is added must not be rarer than that.

The ids differ from Marian's only for these texts:

- Characters that the normaliser rewrites where they come with combining marks: two marks on a letter, a ligature with
  a mark, decomposed Hangul or kana. SentencePiece takes the longest rule that fits, `tokenizers`' `Precompiled` the
  shortest, one grapheme at a time. Composed text (NFC), as keyboards and editors write it, is not affected.
- A piece that the `.spm` has and `vocab.json` lacks: Marian takes it for unknown, we cut it into pieces with ids. So
  may unknown runs differ with a character that only longer pieces hold.
- A language code (`>>ita<<`): Marian sees one at the start of a text, known or not; we see known ones, anywhere.
- Two ways to cut a word that are equally likely, as in rulers (`-----`): SentencePiece adds up in 32 bits, where one
  of the two may come out ahead.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, processors
from tokenizers.models import Unigram

from regard.errors import ModelError
from regard.interop.hf_folder import read_optional_json
from regard.interop.hf_tokenizers import (
    TOKENIZER_CONFIG,
    ImportedTokenizers,
    copy_tokenizers,
    make_tokenizer,
    no_tokenizers,
    read_vocabulary,
    require_tokens,
    special_token_names,
)
from regard.interop.sentencepiece import Piece, PieceType, SentencePieceModel, read_sentencepiece
from regard.models.folder_files import TARGET_TOKENIZER_FILE, TOKENIZER_FILE

USER_DEFINED_SCORE = 0.0  # better than any other score: SentencePiece always takes a user-defined piece


def marian_tokenizers(folder: Path) -> ImportedTokenizers:
    """`tokenizer.json` for sources, `target_tokenizer.json` for targets; each decodes the ids of both."""
    own = copy_tokenizers(folder, TOKENIZER_FILE, TARGET_TOKENIZER_FILE)
    if not any((folder / name).exists() for name in ("source.spm", "target.spm")):
        return own if own.by_file else no_tokenizers()
    separate = read_optional_json(folder / TOKENIZER_CONFIG).get("separate_vocabs") is True
    names = special_token_names(folder, eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
    tokenizers, notes = dict(own.by_file), list(own.notes)
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
        if lost := [piece.text for piece in model.pieces if _is_matchable(piece) and piece.text not in ids]:
            notes.append(
                f"{pieces.name} has pieces that {vocabulary.name} gives no id ({len(lost)}, such as {lost[0]!r}); "
                "texts are cut into others."
            )
    return ImportedTokenizers(tokenizers, tuple(notes))


def unigram_tokenizer(model: SentencePieceModel, ids: Mapping[str, int], names: Mapping[str, str]) -> Tokenizer:
    """The tokenizer of one side; `names` are those of the special tokens, such as `{"eos_token": "</s>"}`."""
    findable = [piece for piece in model.pieces if _is_matchable(piece) and piece.text in ids]
    scores = {piece.text: piece.score if piece.type is PieceType.NORMAL else USER_DEFINED_SCORE for piece in findable}
    rarest = min(piece.score for piece in model.pieces if piece.type is PieceType.NORMAL)
    covered = {character for text in scores for character in text}
    end, unknown = names["eos_token"], names["unk_token"]
    kept = {text for text in ids if text in names.values() or (text.startswith(">>") and text.endswith("<<"))}
    lone = {text for text in ids if text not in kept and text and covered.isdisjoint(text)}
    entries = [(f"  {number}", rarest) for number in range(max(ids.values()) + 1)]  # where an id has no piece
    for text, number in ids.items():
        hidden = text not in scores and text not in kept and text not in lone
        entries[number] = (f" {text}" if hidden else text, scores.get(text, rarest))
    tokenizer = Tokenizer(Unigram(entries, ids[unknown], False))
    tokenizer.normalizer = _normalizer(model, covered, lone)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(" ", ""), decoders.Metaspace()])
    tokenizer.post_processor = processors.TemplateProcessing(f"$A {end}", None, [(end, ids[end])])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in sorted(kept & {*names.values()})])
    # a language code stands in the text itself, where special tokens are not looked for
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in sorted(kept - {*names.values()})])
    return tokenizer


def _check_unigram(model: SentencePieceModel, path: Path, instead: str) -> None:
    for is_so, what in (
        (model.algorithm != "unigram_tokenizer", f"is a {model.algorithm} model, and regard reads unigram models"),
        (model.byte_fallback, "cuts unknown characters into bytes, which regard cannot do"),
        (model.space_ends_word, "puts the space after a word, which regard cannot do"),
        (not model.escapes_spaces, "keeps spaces as they are, which regard cannot do"),
    ):
        if is_so:
            raise ModelError(f"{path}: {what}; put a {instead} beside it.")


def _is_matchable(piece: Piece) -> bool:
    return piece.type in (PieceType.NORMAL, PieceType.USER_DEFINED)


def _normalizer(model: SentencePieceModel, covered: set[str], lone: set[str]) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = []
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    if model.single_spaces:
        steps.append(normalizers.Replace(Regex(r"\A +"), ""))
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    if model.dummy_prefix:
        steps.append(normalizers.Prepend(" "))
    steps.append(normalizers.Replace(" ", "▁"))
    if model.single_spaces:
        steps.append(normalizers.Replace(Regex(r"▁+\z"), ""))  # last, because a ▁ in the text goes with the spaces
    if lone:
        taken = covered | lone
        nowhere = next(chr(code) for code in range(0xFFFD, 0xE000, -1) if chr(code) not in taken)
        unknown = f"[^{''.join(_escape(character) for character in sorted(covered))}]"
        known = "|".join(sorted("".join(map(_escape, text)) for text in lone))
        run = f"(?={unknown})(?<!{unknown})(?!(?:{known})(?!{unknown})){unknown}+"  # a whole one that is not known
        steps.append(normalizers.Replace(Regex(run), nowhere))
    return normalizers.Sequence(steps)


def _escape(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"
