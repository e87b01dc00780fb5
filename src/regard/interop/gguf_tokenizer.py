"""Tokenizers of GGUF files, in `tokenizer.ggml.*`, as `tokenizer.json` and back.

There are byte-level BPE (`gpt2`) and BPE of SentencePiece (`llama`). For the first, the file names how texts are
divided before BPE instead of storing the regular expression (`tokenizer.ggml.pre`). The second has a score for each
token instead of merges.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from regard.data.tokenizer_file import GPT4_PATTERN
from regard.errors import ModelError
from regard.interop.gguf_file import COPY_AGAIN, GGUFFile
from regard.interop.hf_tokenizers import ImportedTokenizers, make_tokenizer, no_tokenizers
from regard.interop.sentencepiece import Piece, PieceType, bpe_tokenizer
from regard.models.folder_files import TOKENIZER_FILE

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = map(int, PieceType)  # tokenizer.ggml.token_type
BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
BYTE_LEVEL_BPE, SENTENCEPIECE_BPE = "gpt2", "llama"  # tokenizer.ggml.model
# names of tokens that end a turn or a text, besides those that the file sets
END_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|end_of_text|>")


def _split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _gpt4() -> pre_tokenizers.PreTokenizer:
    return _split_by(GPT4_PATTERN % r"\p{N}{1,3}")


def _qwen2() -> pre_tokenizers.PreTokenizer:
    return _split_by(GPT4_PATTERN % r"\p{N}")


PRE_TOKENIZERS: Mapping[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": _gpt2,
    "smollm": _digits,
    "llama-bpe": _gpt4,
    "qwen2": _qwen2,
}
NORMALIZED = ("qwen2",)  # texts to NFC; GGUF has no entry for it
PRE_TOKENIZER_ALIASES = {"default": "gpt-2", "gpt2": "gpt-2", "llama3": "llama-bpe", "llama-v3": "llama-bpe"}


def import_tokenizer(file: GGUFFile) -> ImportedTokenizers:
    """Return the tokenizer of a file; none, with a note, if its kind is unknown."""
    kind = file.metadata.get("tokenizer.ggml.model")
    if kind == SENTENCEPIECE_BPE:
        return ImportedTokenizers({TOKENIZER_FILE: make_tokenizer(file.path, lambda: _build_sentencepiece(file))})
    if kind != BYTE_LEVEL_BPE:
        known = f"{BYTE_LEVEL_BPE!r} (byte-level BPE) and {SENTENCEPIECE_BPE!r} (SentencePiece)"
        return no_tokenizers(f"The file's tokenizer is {kind!r}, and regard reads {known}")
    name = str(file.metadata.get("tokenizer.ggml.pre", "gpt-2"))
    known_name = PRE_TOKENIZER_ALIASES.get(name, name)
    if known_name not in PRE_TOKENIZERS:
        known = ", ".join(PRE_TOKENIZERS)
        return no_tokenizers(f"The file divides texts by tokenizer.ggml.pre = {name!r}, and regard knows {known}")
    return ImportedTokenizers({TOKENIZER_FILE: make_tokenizer(file.path, lambda: _build(file, known_name))})


def _build(file: GGUFFile, name: str) -> Tokenizer:
    ids, merges = _ids(file), text_list(file, "tokenizer.ggml.merges")
    tokens = list(ids)
    pairs = [_pair(file, merge, ids) for merge in merges]
    tokenizer = Tokenizer(BPE(ids, pairs, ignore_merges=name == "llama-bpe"))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[name]()
    if name in NORMALIZED:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    added = [
        AddedToken(tokens[number], special=kind == CONTROL, normalized=False)
        for number, kind in enumerate(token_types(file, len(tokens)))
        if kind in (CONTROL, USER_DEFINED)
    ]
    tokenizer.add_tokens(added)
    return _with_start(file, tokenizer, tokens)


def _build_sentencepiece(file: GGUFFile) -> Tokenizer:
    tokens, scores = list(_ids(file)), file.metadata.get("tokenizer.ggml.scores")
    if (
        not isinstance(scores, list)
        or len(scores) != len(tokens)
        or not all(isinstance(item, float) for item in scores)
    ):
        raise ModelError(f"{file.path}: tokenizer.ggml.scores should be a number for each token; {COPY_AGAIN}.")
    kinds = token_types(file, len(tokens))
    if not {*kinds} <= {*PieceType}:
        raise ModelError(f"{file.path}: tokenizer.ggml.token_type should have numbers from 1 to 6; {COPY_AGAIN}.")
    pieces = [
        Piece(token, float(score), PieceType(kind)) for token, score, kind in zip(tokens, scores, kinds, strict=True)
    ]
    tokenizer = bpe_tokenizer(
        pieces,
        dummy_prefix=file.metadata.get("tokenizer.ggml.add_space_prefix") is not False,
        byte_fallback=PieceType.BYTE in kinds,
    )
    return _with_start(file, tokenizer, tokens)


def _ids(file: GGUFFile) -> dict[str, int]:
    """Return the tokens of a file, in order, with their ids."""
    tokens = text_list(file, "tokenizer.ggml.tokens")
    ids = {token: number for number, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        twice = next(token for number, token in enumerate(tokens) if ids[token] != number)
        raise ModelError(f"{file.path}: tokenizer.ggml.tokens has {twice!r} twice; {COPY_AGAIN}.")
    return ids


def adds_start(file: GGUFFile) -> bool:
    """Return whether texts begin with the start token; unless the file says, only with SentencePiece."""
    default = file.metadata.get("tokenizer.ggml.model") == SENTENCEPIECE_BPE
    return file.metadata.get("tokenizer.ggml.add_bos_token", default) is True


def _with_start(file: GGUFFile, tokenizer: Tokenizer, tokens: Sequence[str]) -> Tokenizer:
    start = file.metadata.get("tokenizer.ggml.bos_token_id")
    if adds_start(file) and isinstance(start, int) and 0 <= start < len(tokens):
        token = tokens[start]
        tokenizer.post_processor = processors.TemplateProcessing(f"{token} $A", None, [(token, start)])
    return tokenizer


def _pair(file: GGUFFile, merge: str, ids: Mapping[str, int]) -> tuple[str, str]:
    left, separator, right = merge.partition(" ")
    if not separator or left not in ids or right not in ids or left + right not in ids:
        raise ModelError(
            f"{file.path}: tokenizer.ggml.merges has {merge[:80]!r}, which is not two tokens; {COPY_AGAIN}."
        )
    return left, right


def token_types(file: GGUFFile, count: int) -> list[int]:
    """Return the kind of each token; all are normal if the file does not set them."""
    types = file.metadata.get("tokenizer.ggml.token_type")
    if types is None:
        return [NORMAL] * count
    if not isinstance(types, list) or len(types) != count or not all(isinstance(kind, int) for kind in types):
        raise ModelError(f"{file.path}: tokenizer.ggml.token_type should be a number for each token; {COPY_AGAIN}.")
    return [int(kind) for kind in types]


def text_list(file: GGUFFile, name: str) -> list[str]:
    """Return a metadata entry that is a list of texts."""
    items = file.metadata.get(name)
    if not isinstance(items, list) or not items or not all(isinstance(item, str) for item in items):
        raise ModelError(f"{file.path}: {name} should be a list of texts; {COPY_AGAIN}.")
    return [str(item) for item in items]


def export_tokenizer(tokenizer: Tokenizer, vocab_size: int) -> dict[str, Any] | None:
    """Return the entries `tokenizer.ggml.*` without this prefix; None if GGUF has no such tokenizer."""
    content = json.loads(tokenizer.to_str())
    if (entries := _export_sentencepiece(tokenizer, content, vocab_size)) is not None:
        return entries
    name = _pre_tokenizer_name(content["pre_tokenizer"])
    if content["model"]["type"] != "BPE" or name is None or not _has_known_normalizer(content["normalizer"], name):
        return None
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]]
    return {"model": BYTE_LEVEL_BPE, "pre": name, **_token_entries(tokenizer, content, vocab_size), "merges": merges}


def _export_sentencepiece(tokenizer: Tokenizer, content: Any, vocab_size: int) -> dict[str, Any] | None:
    """Return the entries of a BPE of SentencePiece; None if the tokenizer is another one.

    The scores have the order of the merges. From them, the same merges must follow.
    """
    model, normalizer = content["model"], content["normalizer"]
    if model["type"] != "BPE" or content["pre_tokenizer"] is not None or normalizer is None:
        return None
    entries = _token_entries(tokenizer, content, vocab_size)
    tokens, kinds = entries["tokens"], entries["token_type"]
    for number, token in enumerate(tokens):
        if token == model["unk_token"]:
            kinds[number] = UNKNOWN
        elif model["byte_fallback"] and BYTE_TOKEN.fullmatch(token):
            kinds[number] = BYTE
    merged = ["".join(merge) for merge in model["merges"]]
    ranks = {token: rank for rank, token in reversed([*enumerate(merged)])}
    pieces = [
        Piece(token, -float(ranks.get(token, len(merged))), PieceType(kind))
        for token, kind in zip(tokens, kinds, strict=True)
    ]
    prefix = any(step["type"] == "Prepend" for step in normalizer.get("normalizers", ()))
    rebuilt = json.loads(bpe_tokenizer(pieces, dummy_prefix=prefix, byte_fallback=model["byte_fallback"]).to_str())
    parts = ("normalizer", "decoder")
    if [rebuilt[part] for part in parts] != [content[part] for part in parts]:
        return None
    merges = rebuilt["model"]["merges"]
    if merged != ["".join(merge) for merge in merges] or {*map(tuple, merges)} != {*map(tuple, model["merges"])}:
        return None
    scores = [piece.score for piece in pieces]
    return {"model": SENTENCEPIECE_BPE, "pre": "default", **entries, "scores": scores, "add_space_prefix": prefix}


def _token_entries(tokenizer: Tokenizer, content: Any, vocab_size: int) -> dict[str, list[Any]]:
    """Return the tokens with these ids, and their kinds."""
    texts = {number: token for token, number in tokenizer.get_vocab().items() if number < vocab_size}
    kinds = {token["id"]: CONTROL if token["special"] else USER_DEFINED for token in content["added_tokens"]}
    return {
        "tokens": [texts.get(number, f"[PAD{number}]") for number in range(vocab_size)],
        "token_type": [kinds.get(number, NORMAL if number in texts else UNUSED) for number in range(vocab_size)],
    }


def _has_known_normalizer(content: object, name: str) -> bool:
    return content is None or (content == {"type": "NFC"} and name in NORMALIZED)


def _pre_tokenizer_name(content: object) -> str | None:
    """Return the name of a pre-tokenizer in GGUF; offsets, which do not change ids, are ignored."""
    return next((name for name, make in PRE_TOKENIZERS.items() if _essence(content) == _essence(_state(make()))), None)


def _state(pre_tokenizer: pre_tokenizers.PreTokenizer) -> object:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    return json.loads(tokenizer.to_str())["pre_tokenizer"]


def _essence(content: object) -> object:
    if isinstance(content, list):
        return [_essence(item) for item in content]
    if not isinstance(content, dict):
        return content
    return {key: _essence(value) for key, value in content.items() if key != "trim_offsets"}
