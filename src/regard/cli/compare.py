"""`regard compare`: compare the size, speed and scores of several models."""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

from regard.cli.input_output import print_table, print_text
from regard.cli.options import (
    DECODING_PANEL,
    OUTPUT_PANEL,
    QuietOption,
    SettingsOption,
    argument,
    check_choice,
    examples,
    option,
)
from regard.errors import ConfigError
from regard.files import write_text
from regard.registry import ENGINES

EXAMPLES = examples(
    "regard compare recipes/family/transformer.toml recipes/family/luong.toml --out runs/family",
    "regard compare runs/en-it runs/en-it-relative --json",
    "regard compare runs/seed1 runs/seed2 runs/seed3 --csv",
)


def run(
    models: Annotated[list[str], argument("TOML files or presets to train, run or model folders.", "MODEL")],
    out: Annotated[Path, option(OUTPUT_PANEL, help="Folder for runs, table and figure.")] = Path("runs/compare"),
    settings: SettingsOption = None,
    plot: Annotated[
        Path | None,
        option(OUTPUT_PANEL, help="Figure of the validation curves: .svg, .png or .pdf; OUT/compare.svg by default."),
    ] = None,
    sentences: Annotated[
        int, option(DECODING_PANEL, min=1, help="Number of sentences that are decoded to measure speed.")
    ] = 100,
    engine: Annotated[
        str, option(DECODING_PANEL, help="Decoding engine: torch supports every network; or auto, ctranslate2.")
    ] = "torch",
    as_json: Annotated[bool, option(OUTPUT_PANEL, "--json", help="Print JSON instead of a table.")] = False,
    as_csv: Annotated[bool, option(OUTPUT_PANEL, "--csv", help="Print CSV instead of a table.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Train or load several models and print a table of size, speed, loss and BLEU; plot their validation curves.

    Finished runs in --out are reused, interrupted ones are resumed. Runs that differ in nothing but the seed become one
    line with mean ± standard deviation. Scores of other data, and losses of another tokenizer, are marked.
    """
    check_choice("--engine", engine, ENGINES)
    if as_json and as_csv:
        raise ConfigError("--json and --csv: choose one of them.")
    from regard.compare import load_or_train, measure, sample_sentences
    from regard.compare.table import (
        comparison_notes,
        comparison_table,
        csv_table,
        markdown_table,
        plot_curves,
        rows_as_dicts,
    )
    from regard.plotting import check_figure_path
    from regard.tables import new_table
    from regard.training.display import display_for

    figure = plot or out / "compare.svg"
    check_figure_path(figure, "--plot")
    with closing(display_for(sys.stderr, quiet)) as display:
        loaded = load_or_train(models, settings or [], out, display)
    rows = measure(loaded, sample_sentences(loaded, sentences), engine)  # type: ignore[arg-type]  # checked above
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "compare.json", json.dumps(rows_as_dicts(rows), indent=2, ensure_ascii=False) + "\n")
    write_text(out / "compare.md", markdown_table(rows))
    has_curves = plot_curves(rows, figure)
    if as_json:
        print_text(json.dumps(rows_as_dicts(rows), indent=2, ensure_ascii=False))
        return
    if as_csv:
        print_text(csv_table(rows).rstrip("\n"))
        return
    header, cells = comparison_table(rows)
    table = new_table(*header, text="network")
    for row in cells:
        table.add_row(*row)
    print_table(table)
    for note in comparison_notes(rows):
        print_text(note)
    print_text(f"Curves: {figure}" if has_curves else "No curves: none of these models was trained here.")
