"""`regard embed`: text vectors."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from regard.cli.input_output import line_text, process_lines, report_truncated, write_output
from regard.cli.options import (
    MODEL_PANEL,
    OUTPUT_PANEL,
    DeviceOption,
    InputOption,
    ModelArgument,
    SkipInvalidOption,
    check_choice,
    examples,
    option,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.data.lines import Line
    from regard.registry import Pooling

EXAMPLES = examples("regard embed models/minilm --input texts.txt --output vectors.npy --normalize")
BINARY_SUFFIXES = (".npy", ".safetensors")
SUFFIXES = (*BINARY_SUFFIXES, ".jsonl", ".tsv")


def run(
    model: ModelArgument,
    input: InputOption = "-",
    output: Annotated[
        Path | None,
        option(
            OUTPUT_PANEL,
            "--output",
            "-o",
            help="Output file: .npy, .safetensors, .jsonl or .tsv; stdout by default.",
            metavar="FILE",
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        option(
            MODEL_PANEL,
            help="Pooling: mean, first, first-dense, first-relu; the model's by default.",
            metavar="NAME",
        ),
    ] = None,
    normalize: Annotated[bool, option(OUTPUT_PANEL, "--normalize", help="Scale every vector to length 1.")] = False,
    skip_invalid: SkipInvalidOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Print a vector for each line of text, or pair of texts separated by a tab; numbers are separated by tabs."""
    from regard.api import load
    from regard.decoding.encoder_inference import embed
    from regard.errors import ConfigError
    from regard.registry import POOLINGS

    if pooling is not None:
        check_choice("--pooling", pooling, POOLINGS)
    if output is not None and output.suffix not in SUFFIXES:
        raise ConfigError(f"--output {output}: should end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}.")
    loaded, truncated = load(model, device=device), 0
    embed(loaded.text_encoder, [], cast("Pooling | None", pooling))  # raises an error before any input

    def embed_lines(lines: "list[Line]") -> "NDArray[np.float32]":
        nonlocal truncated
        texts = [line_text(line) for line in lines]
        embeddings = embed(loaded.text_encoder, texts, cast("Pooling | None", pooling), normalize=normalize)
        truncated += embeddings.truncated
        return embeddings.vectors

    if output is not None and output.suffix in BINARY_SUFFIXES:
        _write_array(input, output, embed_lines, skip_invalid=skip_invalid)
    else:
        write = _as_json if output is not None and output.suffix == ".jsonl" else _as_columns
        process_lines(
            input, output, "embedding", lambda lines: write(lines, embed_lines(lines)), skip_invalid=skip_invalid
        )
    report_truncated(truncated, loaded.config.model.max_length)


def _as_columns(lines: "list[Line]", vectors: "NDArray[np.float32]") -> Iterable[str]:
    return ("\t".join(f"{number:.7g}" for number in vector) for vector in vectors.tolist())


def _as_json(lines: "list[Line]", vectors: "NDArray[np.float32]") -> Iterator[str]:
    for line, vector in zip(lines, vectors.tolist(), strict=True):
        record = {"text": line.text or "", "vector": [float(f"{number:.7g}") for number in vector]}
        yield json.dumps(record, ensure_ascii=False)


def _write_array(
    input: str, output: Path, embed_lines: "Callable[[list[Line]], NDArray[np.float32]]", *, skip_invalid: bool
) -> None:
    """Write all vectors as one array, atomically."""
    import io

    import numpy as np

    batches: list[NDArray[np.float32]] = []

    def collect(lines: "list[Line]") -> Iterable[str]:
        batches.append(embed_lines(lines))
        return ()

    process_lines(input, None, "embedding", collect, skip_invalid=skip_invalid)
    vectors = np.concatenate(batches) if batches else np.zeros((0, 0), np.float32)
    if output.suffix == ".npy":
        buffer = io.BytesIO()
        np.save(buffer, vectors)
        content = buffer.getvalue()
    else:
        from safetensors.numpy import save

        content = save({"vectors": vectors})
    write_output(output, content)
