"""Documents on their way into a token store, for language models: nothing of the text is lost, line ends included.

A document may be far larger than the memory. It is tokenised in pieces, cut at line ends; only there can the tokens
differ from those of the whole text at once, and the text that they spell does not.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.data.fast_encoder import fast_encoder
from regard.data.store import chunked, write_document_store
from regard.data.tokenizer import Tokenizer
from regard.errors import ConfigError

LOSSLESS = ("byte-level", "character")
PIECE = 2**14  # characters of a piece, about: long enough that cuts are rare
TOGETHER = 64  # pieces that are tokenised at once


def check_lossless_lines(kind: str) -> None:
    """Complain about a kind of tokenizer that drops line ends and indentation."""
    if kind not in LOSSLESS:
        raise ConfigError(
            f"tokenizer.kind = {kind!r} loses line ends; use 'byte-level' or 'character' for a language model."
        )


def store_documents(
    folder: Path,
    documents: Iterable[Iterable[str]],
    tokenizer: Tokenizer,
    about: Mapping[str, Any],
    progress: Callable[[int], None] | None = None,
) -> None:
    """Tokenise documents as they come, and write each as an example of one column.

    Empty documents are left out, and counted. `progress` is told every so often how many tokens there are so far.
    """
    counts: Counter[str] = Counter(read=0, kept=0)
    encode = fast_encoder(tokenizer)

    def parts() -> Iterator[tuple[list[int], bool]]:
        tokens = 0
        for chunk in chunked(_pieces(documents, counts), TOGETHER):
            encoded = encode([text for text, _ in chunk])
            for ids, (_, last) in zip(encoded, chunk, strict=True):
                yield ids, last
                tokens += len(ids)
            if progress is not None:
                progress(tokens)

    write_document_store(folder, parts(), len(tokenizer), {"counts": counts, **about})


def _pieces(documents: Iterable[Iterable[str]], counts: Counter[str]) -> Iterator[tuple[str, bool]]:
    """Pieces of text, each with whether a document ends with it."""
    for document in documents:
        counts["read"] += 1
        waiting: list[str] = []
        size = 0
        for text in filter(None, document):
            if size >= PIECE:  # only now is it known that the document goes on
                yield "".join(waiting), False
                waiting, size = [], 0
            waiting.append(text)
            size += len(text)
        counts["kept" if waiting else "empty"] += 1
        if waiting:
            yield "".join(waiting), True
