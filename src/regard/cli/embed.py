"""`regard embed`: a vector for each text."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from regard.cli.input import line_text, process_lines, report_truncated
from regard.cli.options import ModelFolder, check_choice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.data.lines import Line
    from regard.decoding.text_encoder import Pooling

BINARY = (".npy", ".safetensors")
ENDINGS = (*BINARY, ".jsonl", ".tsv")


def run(
    model: ModelFolder,
    input: Annotated[str, typer.Option("--input", "-i", help="Texts, one a line; - is standard input.")] = "-",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write here: .npy, .safetensors, .jsonl or .tsv.", metavar="FILE"),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(help="mean, first or first-dense; as the model was made, unless said.", metavar="NAME"),
    ] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale every vector to length 1.")] = False,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Take lines that cannot be read for empty ones, and count them.")
    ] = False,
) -> None:
    """Print a vector for each line of text, its numbers apart by tabs; two texts, apart by a tab, have one."""
    from regard.api import load
    from regard.decoding.text_encoder import POOLINGS, embed
    from regard.errors import ConfigError

    if pooling is not None:
        check_choice("--pooling", pooling, POOLINGS)
    if output is not None and output.suffix not in ENDINGS:
        raise ConfigError(f"--output {output}: should end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}.")
    loaded, cut = load(model), 0
    embed(loaded.reader, [], cast("Pooling | None", pooling))  # a model that cannot says so at once

    def vectors(lines: "list[Line]") -> "NDArray[np.float32]":
        nonlocal cut
        texts = [line_text(line) for line in lines]
        found = embed(loaded.reader, texts, cast("Pooling | None", pooling), normalise=normalize)
        cut += found.cut
        return found.vectors

    if output is not None and output.suffix in BINARY:
        _write_whole(input, output, vectors, skip_invalid=skip_invalid)
    else:
        write = _as_json if output is not None and output.suffix == ".jsonl" else _as_columns
        process_lines(input, output, "embedding", lambda lines: write(lines, vectors(lines)), skip_invalid=skip_invalid)
    report_truncated(cut, loaded.config.model.max_length)


def _as_columns(lines: "list[Line]", vectors: "NDArray[np.float32]") -> Iterable[str]:
    return ("\t".join(f"{number:.7g}" for number in vector) for vector in vectors.tolist())


def _as_json(lines: "list[Line]", vectors: "NDArray[np.float32]") -> Iterator[str]:
    for line, vector in zip(lines, vectors.tolist(), strict=True):
        about = {"text": line.text or "", "vector": [float(f"{number:.7g}") for number in vector]}
        yield json.dumps(about, ensure_ascii=False)


def _write_whole(
    input: str, output: Path, vectors: "Callable[[list[Line]], NDArray[np.float32]]", *, skip_invalid: bool
) -> None:
    """All vectors as one array, in a file that is written whole or not at all."""
    import io

    import numpy as np

    from regard.cli.output import write_output

    found: list[NDArray[np.float32]] = []

    def keep(lines: "list[Line]") -> Iterable[str]:
        found.append(vectors(lines))
        return ()

    process_lines(input, None, "embedding", keep, skip_invalid=skip_invalid)
    whole = np.concatenate(found) if found else np.zeros((0, 0), np.float32)
    if output.suffix == ".npy":
        written = io.BytesIO()
        np.save(written, whole)
        content = written.getvalue()
    else:
        from safetensors.numpy import save

        content = save({"vectors": whole})
    write_output(output, content)
