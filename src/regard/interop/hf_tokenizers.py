"""Tokenizers of Hugging Face folders as `tokenizer.json`: copied if there is one, else built from older files.

These are `vocab.json` and `merges.txt` for GPT-2 and RoBERTa, `vocab.txt` for BERT, and `tokenizer.model` for Llama and
Gemma; for Marian, see `marian_tokenizer.py`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, WordPiece

from regard.data.chat_templates import (
    CHAT_TEMPLATE_FILE,
    CHAT_TOKENS_FILE,
    MAX_TEMPLATE_BYTES,
    SPECIAL_NAMES,
    read_chat_text,
    special_tokens_file,
)
from regard.data.tokenizer_file import (
    MAX_TOKENIZER_BYTES,
    build_tokenizer,
    first_line,
    is_library_error,
    read_tokenizer_json,
    unusable_tokenizer,
)
from regard.errors import ModelError
from regard.files import read_regular_file
from regard.interop.sentencepiece import bpe_tokenizer, read_sentencepiece
from regard.models.folder_files import TOKENIZER_FILE, read_json, read_optional_json, unreadable_file

TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
ABSENT = "The folder has no tokenizer files"
ADDED_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True)
class ImportedTokenizers:
    """Tokenizers by file name, and notes on what differs from the original."""

    by_file: Mapping[str, Tokenizer] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> dict[str, bytes]:
        """The contents of the tokenizer files by name."""
        return {name: tokenizer.to_str().encode() for name, tokenizer in self.by_file.items()}

    def id_of(self, token: str) -> int | None:
        """Return the id of a token; None if there is no tokenizer or it does not have the token."""
        tokenizer = self.by_file.get(TOKENIZER_FILE)
        return None if tokenizer is None else tokenizer.token_to_id(token)


def gpt2_tokenizer(folder: Path) -> ImportedTokenizers:
    """Return the byte-level BPE tokenizer of a folder."""
    return _copy_or_make(folder, "vocab.json", "GPT2Tokenizer", _gpt2_tokenizer)


def roberta_tokenizer(folder: Path) -> ImportedTokenizers:
    """Return the byte-level BPE tokenizer of a folder, which adds `<s>` before a text and `</s>` after it."""
    return _copy_or_make(folder, "vocab.json", "RobertaTokenizer", _roberta_tokenizer)


def llama_tokenizer(folder: Path, kind: str = "LlamaTokenizer") -> ImportedTokenizers:
    """Return the tokenizer of a folder: any in `tokenizer.json`, or a BPE model of SentencePiece."""
    return _copy_or_make(
        folder, "tokenizer.model", kind, _llama_tokenizer, absent=f"The folder has no {TOKENIZER_FILE}"
    )


def xlmr_tokenizer(folder: Path) -> ImportedTokenizers:
    """Return the Unigram tokenizer of a folder with a `tokenizer.json`."""
    existing = copy_tokenizers(folder, TOKENIZER_FILE)
    return existing if existing.by_file else no_tokenizers(f"The folder has no {TOKENIZER_FILE}")


def bert_tokenizer(folder: Path, kind: str = "BertTokenizer") -> ImportedTokenizers:
    """Return the WordPiece tokenizer of a folder, which adds `[CLS]` before a text and `[SEP]` after it."""
    return _copy_or_make(folder, "vocab.txt", kind, _bert_tokenizer)


def copy_tokenizers(folder: Path, *names: str) -> ImportedTokenizers:
    """Return the tokenizers of a folder with these file names, without truncation and padding."""
    by_file, notes = {}, []
    for path in (folder / name for name in names if (folder / name).exists()):
        content = read_tokenizer_json(path)
        by_file[path.name] = build_tokenizer(path, content)
        if isinstance(truncation := content.get("truncation"), dict):
            notes.append(
                f"The folder's {path.name} truncates texts to {truncation.get('max_length')} tokens; "
                "the imported one does not truncate."
            )
    return ImportedTokenizers(by_file, tuple(notes))


def chat_template_files(folder: Path) -> dict[str, bytes]:
    """Return the files for the chat template of a folder, and for the names that it uses; none without a template.

    The template is a file or in the settings of the tokenizer.
    """
    template: object = read_chat_text(folder / CHAT_TEMPLATE_FILE)
    path = folder / TOKENIZER_CONFIG_FILE
    if template is None:
        template = read_optional_json(path).get("chat_template")
    if isinstance(template, list):  # several with names
        entries = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        template = entries[0].get("template") if entries else None
    if not isinstance(template, str):
        return {}
    if len(template.encode()) > MAX_TEMPLATE_BYTES:
        raise ModelError(f"{path}: chat_template has more than {MAX_TEMPLATE_BYTES // 1024} KB; remove or shorten it.")
    names = special_token_names(folder, **dict.fromkeys(SPECIAL_NAMES, ""))
    known = {name: token for name, token in names.items() if token}
    return {CHAT_TEMPLATE_FILE: template.encode(), CHAT_TOKENS_FILE: special_tokens_file(known)}


def no_tokenizers(reason: str = ABSENT) -> ImportedTokenizers:
    """Return no tokenizer, with a note about the reason."""
    return ImportedTokenizers(
        notes=(f"{reason}; put a {TOKENIZER_FILE} into the imported folder to use it with text.",)
    )


def make_tokenizer(path: Path, make: Callable[[], Tokenizer]) -> Tokenizer:
    """Build and check a tokenizer; errors of the `tokenizers` library become a ModelError about this file."""
    try:
        tokenizer = make()
    except (LookupError, TypeError, ValueError) as error:
        raise unusable_tokenizer(path, str(error)) from None
    except BaseException as error:
        if is_library_error(error):
            raise unusable_tokenizer(path, first_line(error)) from None
        raise
    build_tokenizer(path, json.loads(tokenizer.to_str()))
    return tokenizer


def special_token_names(folder: Path, **defaults: str) -> dict[str, str]:
    """Return the names of a folder's special tokens: `special_token_names(folder, unk_token="<unk>")["unk_token"]`."""
    config = read_optional_json(folder / TOKENIZER_CONFIG_FILE)
    special = read_optional_json(folder / CHAT_TOKENS_FILE)
    return {
        key: _content(special.get(key)) or _content(config.get(key)) or default for key, default in defaults.items()
    }


def read_vocabulary(path: Path) -> dict[str, int]:
    """Read a `vocab.json`: tokens and their unique ids."""
    ids = read_json(path, MAX_TOKENIZER_BYTES)
    for token, number in ids.items():
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**24:
            raise ModelError(f"{path}: gives {token!r} the id {number!r}; copy the folder again.")
    if len(set(ids.values())) < len(ids):
        raise ModelError(f"{path}: gives the same id to several tokens; copy the folder again.")
    return ids


def require_tokens(path: Path, ids: Mapping[str, int], *tokens: str) -> None:
    """Raise ModelError if a vocabulary lacks one of these tokens."""
    for token in tokens:
        if token not in ids:
            raise ModelError(f"{path}: has no token {token}; copy the folder again.")


def _copy_or_make(
    folder: Path, vocabulary: str, kind: str, make: Callable[[Path], Tokenizer], *, absent: str = ABSENT
) -> ImportedTokenizers:
    existing = copy_tokenizers(folder, TOKENIZER_FILE)
    if existing.by_file:
        return existing
    if not (folder / vocabulary).exists():
        return no_tokenizers(absent)
    tokenizer_class = read_optional_json(folder / TOKENIZER_CONFIG_FILE).get("tokenizer_class")
    if tokenizer_class not in (None, kind, f"{kind}Fast"):
        return no_tokenizers(f"The folder's tokenizer is a {tokenizer_class}, which regard cannot build")
    return ImportedTokenizers({TOKENIZER_FILE: make_tokenizer(folder / vocabulary, lambda: make(folder))})


def _byte_level_bpe(folder: Path, *, prefix_space: bool) -> tuple[Tokenizer, dict[str, int]]:
    """Return the tokenizer of `vocab.json` and `merges.txt` without special tokens, and the vocabulary."""
    ids, merges = read_vocabulary(folder / "vocab.json"), folder / "merges.txt"
    lines = [line for line in _lines(merges) if line and not line.startswith("#version")]
    pairs = [tuple(line.split(" ")) for line in lines]
    invalid = next((line for line, pair in zip(lines, pairs, strict=True) if len(pair) != 2), None)
    if invalid is not None:
        raise ModelError(f"{merges}: has a line {invalid!r} that is not two tokens; copy the folder again.")
    tokenizer = Tokenizer(BPE(ids, pairs))  # type: ignore[arg-type]
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, ids


def _gpt2_tokenizer(folder: Path) -> Tokenizer:
    config = read_optional_json(folder / TOKENIZER_CONFIG_FILE)
    tokenizer, ids = _byte_level_bpe(folder, prefix_space=config.get("add_prefix_space") is True)
    end = "<|endoftext|>"
    names = special_token_names(folder, bos_token=end, eos_token=end, unk_token=end, pad_token=end)
    _add_tokens(tokenizer, folder, [name for name in names.values() if name in ids])
    start = names["bos_token"]
    if config.get("add_bos_token") is True and (number := tokenizer.token_to_id(start)) is not None:
        tokenizer.post_processor = processors.TemplateProcessing(f"{start} $A", None, [(start, number)])
    return tokenizer


def _llama_tokenizer(folder: Path) -> Tokenizer:
    path, config = folder / "tokenizer.model", read_optional_json(folder / TOKENIZER_CONFIG_FILE)
    model = read_sentencepiece(path)
    if model.algorithm != "bpe" or model.charsmap or model.single_spaces or model.space_ends_word:
        raise ModelError(
            f"{path}: is a {model.algorithm} model of SentencePiece that changes texts, and regard builds bpe models "
            f"that do not, such as Llama's; put a {TOKENIZER_FILE} into the same folder."
        )
    prefix = config.get("add_prefix_space", model.dummy_prefix) is not False
    tokenizer = bpe_tokenizer(model.pieces, dummy_prefix=prefix, byte_fallback=model.byte_fallback)
    _add_tokens(tokenizer, folder, [])
    start = special_token_names(folder, bos_token="<s>")["bos_token"]
    if config.get("add_bos_token", True) is True and (number := tokenizer.token_to_id(start)) is not None:
        tokenizer.post_processor = processors.TemplateProcessing(f"{start} $A", None, [(start, number)])
    return tokenizer


def _roberta_tokenizer(folder: Path) -> Tokenizer:
    prefix_space = read_optional_json(folder / TOKENIZER_CONFIG_FILE).get("add_prefix_space") is True
    tokenizer, ids = _byte_level_bpe(folder, prefix_space=prefix_space)
    names = special_token_names(
        folder, unk_token="<unk>", cls_token="<s>", sep_token="</s>", pad_token="<pad>", mask_token="<mask>"
    )
    start, end = names["cls_token"], names["sep_token"]
    require_tokens(folder / "vocab.json", ids, start, end)
    tokenizer.post_processor = processors.RobertaProcessing(
        (end, ids[end]), (start, ids[start]), trim_offsets=True, add_prefix_space=prefix_space
    )
    _add_tokens(tokenizer, folder, [name for name in names.values() if name in ids])
    return tokenizer


def _bert_tokenizer(folder: Path) -> Tokenizer:
    config, path = read_optional_json(folder / TOKENIZER_CONFIG_FILE), folder / "vocab.txt"
    ids = {token: number for number, token in enumerate(_lines(path))}
    names = special_token_names(
        folder, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", mask_token="[MASK]"
    )
    start, end, unknown = names["cls_token"], names["sep_token"], names["unk_token"]
    require_tokens(path, ids, unknown, start, end)
    tokenizer = Tokenizer(WordPiece(ids, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars") is not False,
        strip_accents=config.get("strip_accents"),  # None: if texts are lowercased
        lowercase=config.get("do_lower_case") is not False,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.post_processor = processors.TemplateProcessing(
        f"{start}:0 $A:0 {end}:0", f"{start}:0 $A:0 {end}:0 $B:1 {end}:1", [(start, ids[start]), (end, ids[end])]
    )
    _add_tokens(tokenizer, folder, [name for name in names.values() if name in ids])
    return tokenizer


def _add_tokens(tokenizer: Tokenizer, folder: Path, special: list[str]) -> None:
    """Add the tokens that are never split: special tokens, and those added to the vocabulary later."""
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in special])
    path = folder / "added_tokens.json"
    later = {number: AddedToken(token) for token, number in read_vocabulary(path).items()} if path.exists() else {}
    for number, token in read_optional_json(folder / TOKENIZER_CONFIG_FILE).get("added_tokens_decoder", {}).items():
        later[int(number)] = AddedToken(token["content"], **{key: token.get(key, False) for key in ADDED_TOKEN_FLAGS})
    for number, token in sorted(later.items()):
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
        if tokenizer.token_to_id(token.content) != number:
            raise ModelError(f"{path}: gives {token.content!r} the id {number}, which is not free; copy it again.")


def _content(value: Any) -> str | None:
    """Return the name of a special token, which is stored directly or among its properties."""
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else None


def _lines(path: Path) -> list[str]:
    """Return the lines of a text file, split only at line feeds: a vocabulary may contain U+2028 or U+0085."""
    try:
        lines = read_regular_file(path, MAX_TOKENIZER_BYTES).decode("utf-8").split("\n")
    except FileNotFoundError:
        raise ModelError(f"{path}: is missing; copy it from the original model.") from None
    except OSError as error:
        raise unreadable_file(path, error) from None
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: is not UTF-8 text (byte {error.start}); copy it again.") from None
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]
