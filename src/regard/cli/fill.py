"""`regard fill`: predict the masked tokens of texts."""

import json
from typing import TYPE_CHECKING, Annotated

from regard.cli.input_output import open_output, prompt_if_terminal, report_skipped
from regard.cli.options import (
    DECODING_PANEL,
    OUTPUT_PANEL,
    DeviceOption,
    EnsembleOption,
    InputOption,
    ModelArgument,
    OutputOption,
    SkipInvalidOption,
    examples,
    option,
)

if TYPE_CHECKING:
    from regard.data.lines import InvalidLines, Line
    from regard.decoding.encoder_inference import MaskFiller
    from regard.decoding.results import FilledText

EXAMPLES = examples('echo "The man [MASK] a dinosaur." | regard fill runs/masked --top-k 3')
MAX_FILLED_LINES = 256  # most lines that are filled at once


def run(
    model: ModelArgument,
    input: InputOption = "-",
    output: OutputOption = None,
    top_k: Annotated[
        int, option(DECODING_PANEL, min=1, help="Number of most probable tokens to print for each mask.")
    ] = 5,
    ensemble: EnsembleOption = None,
    as_json: Annotated[bool, option(OUTPUT_PANEL, "--json", help="Print one JSON object per line.")] = False,
    skip_invalid: SkipInvalidOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Fill the masks of lines such as "The man [MASK] a dinosaur.", in order.

    Prints the filled line, then for each mask the most probable tokens with their probabilities, separated by tabs.
    """
    from regard.api import load
    from regard.data.lines import InvalidLines, prefetch, read_lines

    filler = load(model, *(ensemble or []), device=device).mask_filler()
    prompt_if_terminal("Type a sentence with [MASK] in it and press Enter; Ctrl-D ends.", input)
    invalid = InvalidLines(skip_invalid)
    format_text = _as_json if as_json else _as_columns
    with open_output(output) as write:
        for lines in prefetch(read_lines(input, invalid), MAX_FILLED_LINES):
            texts = [line.text for line in lines if _is_fillable(filler, line, invalid) and line.text is not None]
            filled = {text.source: format_text(text) for text in filler.fill(texts, top_k)}
            write(filled.get(line.text or "", "") for line in lines)
    report_skipped(invalid)


def _is_fillable(filler: "MaskFiller", line: "Line", invalid: "InvalidLines") -> bool:
    """Return whether a line can be filled; one that cannot is recorded as invalid."""
    problem = filler.problem_with(line.text) if line.text is not None else None
    if problem is not None:
        invalid.add("cannot be filled", f"{line.location}: {problem}")
    return line.text is not None and problem is None


def _as_columns(filled: "FilledText") -> str:
    masks = [
        ", ".join(f"{candidate.text} {candidate.probability:.3f}" for candidate in candidates)
        for candidates in filled.masks
    ]
    return "\t".join([filled.text.replace("\n", " "), *masks])


def _as_json(filled: "FilledText") -> str:
    masks = [
        [
            {"text": candidate.text, "token": candidate.token, "probability": round(candidate.probability, 4)}
            for candidate in candidates
        ]
        for candidates in filled.masks
    ]
    return json.dumps({"source": filled.source, "text": filled.text, "masks": masks}, ensure_ascii=False)
