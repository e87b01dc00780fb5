"""`regard compare`: several models side by side."""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import check_choice
from regard.cli.output import new_table, print_table
from regard.files import write_text


def run(
    given: Annotated[
        list[str], typer.Argument(help="TOML files or presets to train, or folders of runs.", metavar="WHAT…")
    ],
    out: Annotated[Path, typer.Option(help="Where runs, table and picture go.")] = Path("runs/compare"),
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of all that is trained; may be repeated.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="The picture: .svg, .png or .pdf; OUT/compare.svg without it.", metavar="FILE")
    ] = None,
    sentences: Annotated[int, typer.Option(min=1, help="How many are translated to see how fast each is.")] = 100,
    engine: Annotated[str, typer.Option(help="torch, which runs every network, or auto, or ctranslate2.")] = "torch",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing until the end.")] = False,
) -> None:
    """Train or load several models, and print one table: size, speed, loss, BLEU; with a picture of their curves.

    What is trained already is not trained again; what was stopped goes on.
    """
    check_choice("--engine", engine, ("auto", "torch", "ctranslate2"))
    from regard.compare import (
        comparison_table,
        load_or_train,
        markdown_table,
        measure,
        plot_curves,
        rows_as_dicts,
        sample_sentences,
    )
    from regard.plotting import check_figure_path as check_picture
    from regard.training.display import display_for

    picture = plot or out / "compare.svg"
    check_picture(picture, "--plot")
    with closing(display_for(sys.stderr, quiet)) as display:
        models = load_or_train(given, settings or [], out, display)
    rows = measure(models, sample_sentences(models, sentences), engine)  # type: ignore[arg-type]  # checked above
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "compare.json", json.dumps(rows_as_dicts(rows), indent=2, ensure_ascii=False) + "\n")
    write_text(out / "compare.md", markdown_table(rows))
    drawn = plot_curves(rows, picture)
    if as_json:
        print(json.dumps(rows_as_dicts(rows), indent=2, ensure_ascii=False))
        return
    header, cells = comparison_table(rows)
    shown = new_table(*header, words="network")
    for line in cells:
        shown.add_row(*line)
    print_table(shown)
    print(f"Curves: {picture}" if drawn else "No curves: none of these was trained here.")
