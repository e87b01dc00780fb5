"""`regard plot`: what a model looks at, as a picture."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import check_choice, check_text
from regard.errors import ConfigError

KINDS = ("attention", "alignment", "heads")


def run(
    what: Annotated[str, typer.Argument(help="attention, alignment or heads.", metavar="WHAT")],
    model: Annotated[Path, typer.Argument(help="A model folder, or a run's folder: then its best.", metavar="MODEL")],
    text: Annotated[str, typer.Argument(help="The text to look at.", metavar="TEXT")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .png, .svg or .pdf file.", metavar="FILE")],
    parses: Annotated[
        str | None,
        typer.Option(help="The text's parse in CoNLL-U; a model with syntax positions needs it.", metavar="FILE"),
    ] = None,
    target: Annotated[str | None, typer.Option(help="Force this output instead of decoding one.")] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses followed at a time; 1 is greedy.")] = 4,
    length: Annotated[int, typer.Option(min=1, help="Tokens that a language model writes at most.")] = 20,
    at: Annotated[
        str | None, typer.Option(help="Which attention: decoder.1.cross_attention, or one head of it with [2].")
    ] = None,
) -> None:
    """Draw attention weights, the alignment of words, or what all heads are worth."""
    from regard.api import load
    from regard.cli.look import traced
    from regard.interpret.render.plots import plot_alignment, plot_attention, plot_head_costs
    from regard.plotting import check_figure_path, save_figure

    check_choice("WHAT", what, KINDS)
    check_text("TEXT", text, empty=True)
    check_figure_path(output, "--output")
    if at is not None and what != "attention":
        raise ConfigError(
            f"--at {at}: says which attention to draw, and `regard plot {what}` draws none; leave it out."
        )
    trace = traced(load(model), text, beam=beam, length=length, target=target, parses=parses)
    if what == "attention":
        figure = plot_attention(trace, at)
    else:
        figure = plot_alignment(trace) if what == "alignment" else plot_head_costs(trace)
    save_figure(figure, output)
