"""Check a `tokenizer.json` before the `tokenizers` library reads it.

The file may come from anywhere. The library trusts it: a regular expression can take forever or panic, a chain of
replacements or a padding length can allocate until the process is aborted, and ids can lie outside of the network. So
only known components, known regular expressions and bounded sizes are accepted. What is passed to the library is the
checked content, without padding and truncation.
"""

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import tokenizers

from regard.errors import ModelError
from regard.files import load_json, read_regular_file

MAX_TOKENIZER_BYTES = 64 * 2**20
MAX_TOKEN_CHARACTERS = 1024
MAX_ADDED_TOKENS = 100_000
MAX_VOCABULARY = 2**24
MAX_COMPONENTS = 32
MAX_NESTING = 4
MAX_COMPONENT_TEXT = 64  # characters of a text inside a component, such as a replacement
MAX_EXPANSION = 16.0  # of a text by all replacements together
MAX_CHARSMAP_BYTES = 4 * 2**20
MAX_CHARSMAP_REPLACEMENT = 256  # bytes
MAX_WORD_CHARACTERS = 1000  # of WordPiece, whose cost grows with the square
COPY_AGAIN = "copy the folder again"  # what to do about a damaged tokenizer of a model
SAMPLE_TEXT = "Ciao, come va?  1.5\n▁é 中"

CHARACTER_PATTERN = r"[\s\S]"
BRACKET_PATTERN = r"[\[<]"
# a bracket, a run of one punctuation mark or symbol, or white space; with the mark of a word start before it
PUNCTUATION_PATTERN = r"▁?(?:[\[<]|(?!▁)([\p{P}\p{S}])\1*|\s+)"
LEADING_SPACES_PATTERN = r"\A +"
SPACE_RUN_PATTERN = " {2,}"
TRAILING_MARKS_PATTERN = r"▁+\z"
_GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT4_PATTERN = (  # also of Llama 3 and, with \p{N}, of Qwen
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KNOWN_PATTERNS = frozenset(
    {
        CHARACTER_PATTERN,
        BRACKET_PATTERN,
        PUNCTUATION_PATTERN,
        LEADING_SPACES_PATTERN,
        SPACE_RUN_PATTERN,
        TRAILING_MARKS_PATTERN,
        _GPT2_PATTERN,
        GPT4_PATTERN % r"\p{N}{1,3}",
        GPT4_PATTERN % r"\p{N}",
        r"\s",
        r"\s+",
        r"\d",
        r"\n",
        ".",
    }
)
# of `marian_tokenizer`: a class of escaped characters, and alternatives of escaped characters
_CHARACTER = r"\\x\{[0-9a-f]{1,6}\}"
_MARIAN_PATTERN = re.compile(
    rf"\(\?=(?P<unknown>\[\^(?:{_CHARACTER})*\])\)\(\?<!(?P=unknown)\)"
    rf"\(\?!\(\?:(?:{_CHARACTER})+(?:\|(?:{_CHARACTER})+)*\)\(\?!(?P=unknown)\)\)(?P=unknown)\+"
)

# The components of each kind that are accepted, and the name of the list inside a Sequence.
_COMPONENTS: dict[str, tuple[str, frozenset[str]]] = {
    "normalizer": (
        "normalizers",
        frozenset(
            [
                "BertNormalizer",
                "Lowercase",
                "NFC",
                "NFD",
                "NFKC",
                "NFKD",
                "Nmt",
                "Precompiled",
                "Prepend",
                "Replace",
                "Strip",
                "StripAccents",
            ]
        ),
    ),
    "pre_tokenizer": (
        "pretokenizers",
        frozenset(
            [
                "BertPreTokenizer",
                "ByteLevel",
                "Digits",
                "Metaspace",
                "Punctuation",
                "Split",
                "Whitespace",
                "WhitespaceSplit",
            ]
        ),
    ),
    "post_processor": (
        "processors",
        frozenset(["BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing"]),
    ),
    "decoder": (
        "decoders",
        frozenset(["BPEDecoder", "ByteFallback", "ByteLevel", "Fuse", "Metaspace", "Replace", "Strip", "WordPiece"]),
    ),
}
_MODELS = ("BPE", "Unigram", "WordLevel", "WordPiece")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def read_tokenizer(path: Path, vocab_size: int | None = None, remedy: str = COPY_AGAIN) -> tokenizers.Tokenizer:
    """Return the tokenizer of a file, without padding and truncation; raise ModelError if it cannot be used.

    Args:
        path: a `tokenizer.json`.
        vocab_size: number of tokens of the network, if it is known. Special tokens outside of it are left out, because
            texts never contain them; other tokens outside of it are an error.
        remedy: what to do about a damaged file, which ends the error message.
    """
    return build_tokenizer(path, read_tokenizer_json(path, remedy), vocab_size, remedy)


def read_tokenizer_json(path: Path, remedy: str = COPY_AGAIN) -> dict[str, Any]:
    """Return the content of a `tokenizer.json`, which is not checked yet."""
    try:
        content = load_json(read_regular_file(path, MAX_TOKENIZER_BYTES).decode("utf-8"))
    except OSError as error:
        raise ModelError(
            f"{path}: cannot be read ({error.strerror or error}); pass the path of a tokenizer.json."
        ) from None
    except UnicodeDecodeError:
        raise ModelError(f"{path}: is not UTF-8 text; pass the path of a tokenizer.json.") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not valid JSON ({error}); {remedy}.") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path}: should contain a JSON object; {remedy}.")
    return content


def build_tokenizer(
    path: Path, content: dict[str, Any], vocab_size: int | None = None, remedy: str = COPY_AGAIN
) -> tokenizers.Tokenizer:
    """Check the content of a `tokenizer.json` and return its tokenizer, without padding and truncation."""
    try:
        check_tokenizer(content)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise unusable_tokenizer(path, _problem(error), remedy) from None
    content = content | {"padding": None, "truncation": None}
    fast = _build(path, content, remedy)
    if vocab_size is None or not (outside := _tokens_outside(fast, vocab_size)):
        return fast
    special = {token["content"] for token in content["added_tokens"] if token.get("special")}
    if (unusable := next((token for token in sorted(outside) if token not in special), None)) is not None:
        raise unusable_tokenizer(
            path, f"it gives {unusable!r} the id {outside[unusable]}, but the network has {vocab_size} tokens", remedy
        )
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] not in outside]
    content["post_processor"] = None  # it may add them
    fast = _build(path, content, remedy)
    if _tokens_outside(fast, vocab_size):
        raise unusable_tokenizer(path, f"it has ids outside of the network's {vocab_size} tokens", remedy)
    return fast


def guarded_call(
    location: object, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Call a function of the `tokenizers` library; its errors and panics become a ModelError about `location`."""
    try:
        return function(*args, **kwargs)
    except BaseException as error:
        if is_library_error(error):
            raise ModelError(
                f"{location}: the tokenizers library failed on a text ({first_line(error)}); use another tokenizer."
            ) from None
        raise


def is_library_error(error: BaseException) -> bool:
    """Return whether an exception comes from the Rust code of `tokenizers`: an error, or a panic.

    A panic is a BaseException, so that it would end a thread or the process.
    """
    return type(error) is Exception or type(error).__name__ == "PanicException"


def check_tokenizer(content: dict[str, Any]) -> None:
    """Raise ValueError, TypeError or KeyError if the content of a `tokenizer.json` is not acceptable."""
    highest = _check_model(content["model"])
    added = content.setdefault("added_tokens", [])
    if not isinstance(added, list) or len(added) > MAX_ADDED_TOKENS:
        raise ValueError(f"added_tokens should be a list of at most {MAX_ADDED_TOKENS:,} tokens")
    for token in added:
        _check_token(token["content"])
        _check_id(token["content"], token["id"])
    special_ids = highest + 1 + len(added)
    for kind, (items, known) in _COMPONENTS.items():
        components = list(_components(content.get(kind), kind, items, known))
        if len(components) > MAX_COMPONENTS:
            raise ValueError(f"its {kind} has {len(components)} parts, more than {MAX_COMPONENTS}")
        if math.prod(map(_expansion, components)) > MAX_EXPANSION:
            raise ValueError(f"the replacements of its {kind} make texts more than {MAX_EXPANSION:.0f} times as long")
        for component in components:
            _check_component(component, kind, special_ids)


def _build(path: Path, content: dict[str, Any], remedy: str) -> tokenizers.Tokenizer:
    try:
        fast = tokenizers.Tokenizer.from_str(json.dumps(content))
        fast.encode(SAMPLE_TEXT, add_special_tokens=False)
    except BaseException as error:
        if is_library_error(error):
            raise unusable_tokenizer(path, first_line(error), remedy) from None
        raise
    return fast


def _tokens_outside(fast: tokenizers.Tokenizer, vocab_size: int) -> dict[str, int]:
    return {token: number for token, number in fast.get_vocab().items() if number >= vocab_size}


def _check_model(model: dict[str, Any]) -> int:
    """Check the model of a tokenizer; return its highest id."""
    kind = model.get("type")
    if kind not in _MODELS:
        raise ValueError(f"its model is {kind!r}, and regard knows {', '.join(_MODELS)}")
    vocabulary = model["vocab"]
    if len(vocabulary) > MAX_VOCABULARY:
        raise ValueError(f"its vocabulary has more than {MAX_VOCABULARY:,} tokens")
    if kind == "Unigram":
        for token, score in vocabulary:
            _check_token(token)
            if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
                raise ValueError(f"{token!r} has the score {score!r}")
        return len(vocabulary) - 1
    if not isinstance(vocabulary, dict):
        raise TypeError("its vocabulary is not an object")
    for token, number in vocabulary.items():
        _check_token(token)
        _check_id(token, number)
    for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        _check_strings(model.get(name), f"model.{name}")
    if kind != "BPE" and model.get("unk_token") not in vocabulary:
        raise ValueError(f"its vocabulary has no unknown token {model.get('unk_token')!r}")
    length = model.get("max_input_chars_per_word", 100)
    if not isinstance(length, int) or not 0 < length <= MAX_WORD_CHARACTERS:
        raise ValueError(f"model.max_input_chars_per_word should be between 1 and {MAX_WORD_CHARACTERS}")
    return max(vocabulary.values(), default=0)


def _check_token(token: object) -> None:
    if not isinstance(token, str) or len(token) > MAX_TOKEN_CHARACTERS:
        raise ValueError(f"a token is not a text of at most {MAX_TOKEN_CHARACTERS} characters")


def _check_id(token: str, number: object) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < MAX_VOCABULARY:
        raise ValueError(f"it gives {token!r} the id {number!r}")


def _components(part: Any, kind: str, items: str, known: frozenset[str], depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the components of a normalizer, pre-tokenizer, post-processor or decoder, without sequences."""
    if part is None:
        return
    name = part.get("type")
    if name == "Sequence" and depth < MAX_NESTING:
        for inner in part[items]:
            yield from _components(inner, kind, items, known, depth + 1)
    elif name in known:
        yield part
    else:
        raise ValueError(f"its {kind} is {name!r}, which regard does not know")


def _check_component(component: dict[str, Any], kind: str, special_ids: int) -> None:
    name = component["type"]
    if name == "Precompiled":
        _check_charsmap(component["precompiled_charsmap"])
        return
    rest = dict(component)
    pattern = rest.pop("pattern", None)
    if name in ("Replace", "Split"):
        _check_pattern(pattern, kind)
    if name == "TemplateProcessing":
        _check_template(rest, special_ids)
    for key, value in rest.items():
        _check_strings(value, f"{kind}.{key}")


def _check_pattern(pattern: Any, kind: str) -> None:
    (form, text), *more = pattern.items()
    if more or not isinstance(text, str) or not text or form not in ("String", "Regex"):
        raise ValueError(f"its {kind} has an invalid pattern")
    if form == "String":
        _check_strings(text, f"{kind}.pattern")
    elif text not in KNOWN_PATTERNS and not _MARIAN_PATTERN.fullmatch(text):
        shown = text if len(text) <= MAX_COMPONENT_TEXT else f"{text[:MAX_COMPONENT_TEXT]}…"
        raise ValueError(f"its {kind} has the regular expression {shown!r}, which is not one that regard knows")


def _expansion(component: dict[str, Any]) -> float:
    """Return how much longer a component can make a text, in bytes; 1 for those that barely do."""
    if component["type"] != "Replace":
        return 1.0
    pattern, content = component["pattern"], component["content"]
    replaced = len(pattern["String"].encode("utf-8", "replace")) if "String" in pattern else 1
    return max(1.0, len(content.encode("utf-8", "replace")) / max(replaced, 1))


def _check_template(template: dict[str, Any], special_ids: int) -> None:
    special = template["special_tokens"]
    if len(special) > MAX_COMPONENTS or len(template["single"]) + len(template["pair"]) > MAX_COMPONENTS:
        raise ValueError("its post_processor adds too many tokens")
    for token in special.values():
        if len(token["ids"]) > MAX_COMPONENTS or not all(number < special_ids for number in token["ids"]):
            raise ValueError(f"its post_processor adds ids {token['ids']}, which its vocabulary does not have")
    for piece in (*template["single"], *template["pair"]):
        if "SpecialToken" in piece and piece["SpecialToken"]["id"] not in special:
            raise ValueError(f"its post_processor adds {piece['SpecialToken']['id']!r}, which it does not define")


def _check_strings(value: Any, where: str) -> None:
    """Raise ValueError if a value contains a long text or a large number."""
    if isinstance(value, str) and len(value) > MAX_COMPONENT_TEXT:
        raise ValueError(f"{where} has a text of {len(value):,} characters, more than {MAX_COMPONENT_TEXT}")
    if isinstance(value, int | float) and not abs(value) <= MAX_VOCABULARY:
        raise ValueError(f"{where} has the number {value}")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_strings(inner, where)


def _check_charsmap(text: str) -> None:
    """Check the compiled normalizer of SentencePiece: a trie, and replacements that end with a zero byte."""
    if len(text) > 2 * MAX_CHARSMAP_BYTES:
        raise ValueError("its precompiled_charsmap is too long")
    try:
        content = base64.b64decode(text, validate=True)
        (size,) = struct.unpack_from("<I", content)
    except (binascii.Error, struct.error, UnicodeEncodeError):
        raise ValueError("its precompiled_charsmap is damaged") from None
    if size % 4 or size == 0 or 4 + size > len(content):
        raise ValueError("its precompiled_charsmap is damaged")
    if max(map(len, content[4 + size :].split(b"\0"))) > MAX_CHARSMAP_REPLACEMENT:
        raise ValueError(f"its precompiled_charsmap has replacements of more than {MAX_CHARSMAP_REPLACEMENT} bytes")


def unusable_tokenizer(path: Path, problem: str, remedy: str = COPY_AGAIN) -> ModelError:
    """Return the error about a tokenizer file, which ends with what to do."""
    return ModelError(f"{path}: cannot be read as a tokenizer ({problem}); {remedy}.")


def _problem(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]}"
    if isinstance(error, ValueError) and "unpack" not in str(error):
        return str(error)
    return "it does not have the structure of a tokenizer.json"


def first_line(error: BaseException) -> str:
    """Return the first line of an error message."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
