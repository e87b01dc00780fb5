"""The tokenizer of a Hugging Face folder as a `tokenizer.json`: carried over where there is one, made where not.

GPT-2's older form is `vocab.json` and `merges.txt`, BERT's is `vocab.txt`; Marian's is in `unigram.py`. All become the
one format that the `tokenizers` library reads.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, WordPiece

from regard.errors import ModelError
from regard.interop.hf_folder import read_optional_json
from regard.models.folder_files import TOKENIZER_FILE, read_json

TOKENIZER_CONFIG = "tokenizer_config.json"
ADDED_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")  # of an added token


@dataclass(frozen=True)
class ImportedTokenizers:
    """The tokenizers that a model folder gets, by file name, and what there is to say about them."""

    by_file: Mapping[str, Tokenizer] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> dict[str, bytes]:
        """What to write."""
        return {name: tokenizer.to_str().encode() for name, tokenizer in self.by_file.items()}

    def id_of(self, token: str) -> int | None:
        """A token's id, where there is a tokenizer that knows it."""
        tokenizer = self.by_file.get(TOKENIZER_FILE)
        return None if tokenizer is None else tokenizer.token_to_id(token)


def gpt2_tokenizer(folder: Path) -> ImportedTokenizers:
    """Byte-level BPE."""
    return _copy_or_make(folder, "vocab.json", "GPT2Tokenizer", _gpt2_tokenizer)


def bert_tokenizer(folder: Path) -> ImportedTokenizers:
    """WordPiece, with `[CLS]` before a text and `[SEP]` after it."""
    return _copy_or_make(folder, "vocab.txt", "BertTokenizer", _bert_tokenizer)


def copy_tokenizers(folder: Path, *names: str) -> ImportedTokenizers:
    """The tokenizers that the folder has under these names, but such as neither cut a text nor fill it up."""
    by_file, notes = {}, []
    for path in (folder / name for name in names if (folder / name).exists()):
        read_json(path)  # for its better complaints
        tokenizer = by_file[path.name] = make_tokenizer(path, partial(Tokenizer.from_file, str(path)))
        if tokenizer.truncation:
            length = tokenizer.truncation["max_length"]
            notes.append(
                f"The folder's {path.name} cut texts after {length} tokens; the imported one does not cut them."
            )
        tokenizer.no_truncation()
        tokenizer.no_padding()
    return ImportedTokenizers(by_file, tuple(notes))


def no_tokenizers(why: str = "The folder has no tokenizer files") -> ImportedTokenizers:
    """No tokenizer, and a note that says so."""
    return ImportedTokenizers(notes=(f"{why}; put a {TOKENIZER_FILE} into the imported folder to use it with text.",))


def make_tokenizer(path: Path, make: Callable[[], Tokenizer]) -> Tokenizer:
    """Make a tokenizer of what stands in a file; what the `tokenizers` library cannot read is one sentence."""
    try:
        return make()
    except ModelError:
        raise
    except Exception as error:  # the library raises nothing more particular
        raise ModelError(f"{path}: makes no tokenizer ({error}); copy the folder again.") from None


def special_token_names(folder: Path, **usual: str) -> dict[str, str]:
    """How a folder calls its special tokens: `special_names(folder, unk_token="<unk>")["unk_token"]`."""
    given = read_optional_json(folder / TOKENIZER_CONFIG), read_optional_json(folder / "special_tokens_map.json")
    return {key: _content(given[1].get(key)) or _content(given[0].get(key)) or name for key, name in usual.items()}


def read_vocabulary(path: Path) -> dict[str, int]:
    """A `vocab.json`: tokens and their ids, no two alike."""
    ids = read_json(path)
    for token, number in ids.items():
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**24:
            raise ModelError(f"{path}: gives {token!r} the id {number!r}; copy the folder again.")
    if len(set(ids.values())) < len(ids):
        raise ModelError(f"{path}: gives one id to several tokens; copy the folder again.")
    return ids


def require_tokens(path: Path, ids: Mapping[str, int], *tokens: str) -> None:
    """Complain where a vocabulary lacks a token that no text can be encoded without."""
    for token in tokens:
        if token not in ids:
            raise ModelError(f"{path}: has no token {token}; copy the folder again.")


def _copy_or_make(folder: Path, vocabulary: str, kind: str, make: Callable[[Path], Tokenizer]) -> ImportedTokenizers:
    own = copy_tokenizers(folder, TOKENIZER_FILE)
    if own.by_file:
        return own
    if not (folder / vocabulary).exists():
        return no_tokenizers()
    asked = read_optional_json(folder / TOKENIZER_CONFIG).get("tokenizer_class")
    if asked not in (None, kind, f"{kind}Fast"):
        return no_tokenizers(f"The folder's tokenizer is a {asked}, which regard cannot make")
    return ImportedTokenizers({TOKENIZER_FILE: make_tokenizer(folder / vocabulary, lambda: make(folder))})


def _gpt2_tokenizer(folder: Path) -> Tokenizer:
    config = read_optional_json(folder / TOKENIZER_CONFIG)
    ids, merges = read_vocabulary(folder / "vocab.json"), folder / "merges.txt"
    lines = [line for line in _lines(merges) if line and not line.startswith("#version")]
    pairs = [tuple(line.split(" ")) for line in lines]
    wrong = next((line for line, pair in zip(lines, pairs, strict=True) if len(pair) != 2), None)
    if wrong is not None:
        raise ModelError(f"{merges}: has a line {wrong!r} that is not two tokens; copy the folder again.")
    tokenizer = Tokenizer(BPE(ids, pairs))  # type: ignore[arg-type]
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=config.get("add_prefix_space") is True)
    tokenizer.decoder = decoders.ByteLevel()
    end = "<|endoftext|>"
    names = special_token_names(folder, bos_token=end, eos_token=end, unk_token=end, pad_token=end)
    _add_tokens(tokenizer, folder, [name for name in names.values() if name in ids])
    start = names["bos_token"]
    if config.get("add_bos_token") is True and (number := tokenizer.token_to_id(start)) is not None:
        tokenizer.post_processor = processors.TemplateProcessing(f"{start} $A", None, [(start, number)])
    return tokenizer


def _bert_tokenizer(folder: Path) -> Tokenizer:
    config, path = read_optional_json(folder / TOKENIZER_CONFIG), folder / "vocab.txt"
    ids = {token: number for number, token in enumerate(_lines(path))}
    names = special_token_names(
        folder, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", mask_token="[MASK]"
    )
    first, last, unknown = names["cls_token"], names["sep_token"], names["unk_token"]
    require_tokens(path, ids, unknown, first, last)
    tokenizer = Tokenizer(WordPiece(ids, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars") is not False,
        strip_accents=config.get("strip_accents"),  # None: where letters become small
        lowercase=config.get("do_lower_case") is not False,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.post_processor = processors.TemplateProcessing(
        f"{first}:0 $A:0 {last}:0", f"{first}:0 $A:0 {last}:0 $B:1 {last}:1", [(first, ids[first]), (last, ids[last])]
    )
    _add_tokens(tokenizer, folder, [name for name in names.values() if name in ids])
    return tokenizer


def _add_tokens(tokenizer: Tokenizer, folder: Path, special: list[str]) -> None:
    """The tokens that are never cut: the special ones, and those that were added to the vocabulary later."""
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in special])
    path = folder / "added_tokens.json"
    later = {number: AddedToken(token) for token, number in read_vocabulary(path).items()} if path.exists() else {}
    for number, token in read_optional_json(folder / TOKENIZER_CONFIG).get("added_tokens_decoder", {}).items():
        later[int(number)] = AddedToken(token["content"], **{key: token.get(key, False) for key in ADDED_TOKEN_FLAGS})
    for number, token in sorted(later.items()):
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
        if tokenizer.token_to_id(token.content) != number:
            raise ModelError(f"{path}: gives {token.content!r} the id {number}, which is not free; copy it again.")


def _content(value: Any) -> str | None:
    """A special token's name, which stands there by itself or among its properties."""
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else None


def _lines(path: Path) -> list[str]:
    """The lines of a text file, ended by line feeds alone: a vocabulary may well hold U+2028 or U+0085."""
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except FileNotFoundError:
        raise ModelError(f"{path}: is missing; copy it from where the model came from.") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: is not UTF-8 text (byte {error.start}); copy it again.") from None
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]
