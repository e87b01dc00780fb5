"""Tokenizers of M2M100, NLLB and mBART: `tokenizer.json`, or built from a SentencePiece model.

M2M100 has its ids in `vocab.json` and splits texts by a BPE model of SentencePiece, whose merges follow from its
pieces: two neighbors are merged if their concatenation is a piece, the most probable piece first. mBART has the unigram
model of XLM-RoBERTa, where the id of a piece is its number plus one, and language tokens after all pieces.
"""

from collections.abc import Mapping
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, processors
from tokenizers.models import BPE

from regard.errors import ModelError
from regard.interop.hf_tokenizers import (
    TOKENIZER_CONFIG_FILE,
    ImportedTokenizers,
    copy_tokenizers,
    make_tokenizer,
    no_tokenizers,
    read_vocabulary,
)
from regard.interop.marian_tokenizer import make_normalizer, unigram_tokenizer
from regard.interop.sentencepiece import SentencePieceModel, bpe_merges, is_matchable, read_sentencepiece
from regard.models.folder_files import TOKENIZER_FILE, read_optional_json

PIECES_FILE = "sentencepiece.bpe.model"
LANGUAGE_PATTERNS = (
    r"([a-z]{3}_[A-Z][a-z]{3})",
    r"([a-z]{2,3}_[A-Z]{2,3})",
    r"__([a-z]{2,3})__",
)  # NLLB, mBART, M2M100
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
M2M100_LANGUAGES = (
    "af", "am", "ar", "ast", "az", "ba", "be", "bg", "bn", "br", "bs", "ca", "ceb", "cs", "cy", "da", "de", "el",
    "en", "es", "et", "fa", "ff", "fi", "fr", "fy", "ga", "gd", "gl", "gu", "ha", "he", "hi", "hr", "ht", "hu",
    "hy", "id", "ig", "ilo", "is", "it", "ja", "jv", "ka", "kk", "km", "kn", "ko", "lb", "lg", "ln", "lo", "lt",
    "lv", "mg", "mk", "ml", "mn", "mr", "ms", "my", "ne", "nl", "no", "ns", "oc", "or", "pa", "pl", "ps", "pt",
    "ro", "ru", "sd", "si", "sk", "sl", "so", "sq", "sr", "ss", "su", "sv", "sw", "ta", "th", "tl", "tn", "tr",
    "uk", "ur", "uz", "vi", "wo", "xh", "yi", "yo", "zh", "zu",
)  # fmt: skip
MBART50_LANGUAGES = (
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT", "ja_XX",
    "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN",
    "zh_CN", "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE", "km_KH", "mk_MK", "ml_IN",
    "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN", "te_IN", "th_TH", "tl_XX", "uk_UA",
    "ur_PK", "xh_ZA", "gl_ES", "sl_SI",
)  # fmt: skip


def multilingual_tokenizer(folder: Path, vocab_size: int) -> ImportedTokenizers:
    """Return the tokenizer of a folder, with language tokens."""
    existing = copy_tokenizers(folder, TOKENIZER_FILE)
    if existing.by_file:
        return existing
    path = folder / PIECES_FILE
    if not path.exists():
        return no_tokenizers()
    kind = read_optional_json(folder / TOKENIZER_CONFIG_FILE).get("tokenizer_class")
    model = read_sentencepiece(path)
    if (folder / "vocab.json").exists():
        ids = read_vocabulary(folder / "vocab.json")
        tokenizer = make_tokenizer(path, lambda: _m2m100(model, ids, path))
    elif kind in ("MBart50Tokenizer", "MBart50TokenizerFast"):
        tokenizer = make_tokenizer(path, lambda: _mbart50(model, path))
    else:
        return no_tokenizers(f"The folder's tokenizer is a {kind}, which regard cannot build")
    return ImportedTokenizers({TOKENIZER_FILE: tokenizer})


def _m2m100(model: SentencePieceModel, ids: Mapping[str, int], path: Path) -> Tokenizer:
    if model.algorithm != "bpe":
        raise ModelError(f"{path}: is a {model.algorithm} model, and M2M100 has a bpe model; copy it again.")
    scores = {piece.text: piece.score for piece in model.pieces if is_matchable(piece) and piece.text in ids}
    tokenizer = Tokenizer(BPE(dict(ids), list(bpe_merges(scores)), unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = make_normalizer(model, {character for text in scores for character in text}, set())
    tokenizer.decoder = decoders.Metaspace()
    start = max(ids.values()) + 1
    return _with_special_tokens(tokenizer, {f"__{code}__": start + n for n, code in enumerate(M2M100_LANGUAGES)})


def _mbart50(model: SentencePieceModel, path: Path) -> Tokenizer:
    if model.algorithm != "unigram":
        raise ModelError(f"{path}: is a {model.algorithm} model, and mBART has a unigram model; copy it again.")
    ids = {text: number for number, text in enumerate(SPECIAL_TOKENS)}
    ids |= {piece.text: number + 1 for number, piece in enumerate(model.pieces) if number >= 3}
    tokenizer = unigram_tokenizer(model, ids, NAMES)
    start = len(model.pieces) + 1
    return _with_special_tokens(tokenizer, {code: start + n for n, code in enumerate(MBART50_LANGUAGES)})


def _with_special_tokens(tokenizer: Tokenizer, languages: Mapping[str, int]) -> Tokenizer:
    """Add special tokens and then languages, which have these ids; a text ends with the end token."""
    names = [*SPECIAL_TOKENS, *sorted(languages, key=languages.__getitem__)]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in names])
    wrong = next((name for name, number in languages.items() if tokenizer.token_to_id(name) != number), None)
    if wrong is not None:
        raise ValueError(f"the id {languages[wrong]} of the language token {wrong} is not free")
    end = tokenizer.token_to_id("</s>")
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", None, [("</s>", end)])
    return tokenizer
