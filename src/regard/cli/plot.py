"""`regard plot`: plot attention weights, word alignments, or the importance of attention heads."""

from pathlib import Path
from typing import Annotated

from regard.cli.options import (
    DECODING_PANEL,
    MODEL_PANEL,
    OUTPUT_PANEL,
    BeamOption,
    MaxGeneratedOption,
    ModelArgument,
    ParseOption,
    argument,
    check_choice,
    check_text,
    examples,
    option,
)
from regard.errors import ConfigError

EXAMPLES = examples(
    'regard plot alignment runs/en-it "Where is the station?" --output alignment.svg',
    'regard plot attention runs/en-it "I love you." --at "decoder.1.cross_attention[2]" -o attention.png',
)
PLOTS = ("attention", "alignment", "heads")


def run(
    plot: Annotated[str, argument("What to plot: attention, alignment or heads.", "PLOT")],
    model: ModelArgument,
    text: Annotated[str, argument("Input text of the model.", "TEXT")],
    output: Annotated[
        Path, option(OUTPUT_PANEL, "--output", "-o", help="Image file to write: .png, .svg or .pdf.", metavar="FILE")
    ],
    parses: ParseOption = None,
    target: Annotated[
        str | None, option(DECODING_PANEL, help="Forced output text, instead of decoding one.", metavar="TEXT")
    ] = None,
    beam: BeamOption = None,
    max_tokens: MaxGeneratedOption = 20,
    at: Annotated[
        str | None,
        option(
            MODEL_PANEL,
            help="Attention to plot: decoder.1.cross_attention, or one head of it with [2].",
            metavar="ADDRESS",
        ),
    ] = None,
) -> None:
    """Plot attention weights, the alignment of words, or how much each attention head contributes."""
    from regard.api import load
    from regard.cli.look import compute_trace
    from regard.interpret.render.plots import plot_alignment, plot_attention, plot_head_costs
    from regard.plotting import check_figure_path, save_figure

    check_choice("PLOT", plot, PLOTS)
    check_text("TEXT", text, empty=True)
    check_figure_path(output, "--output")
    if at is not None and plot != "attention":
        raise ConfigError(f"--at {at}: selects the attention of `regard plot attention`, not {plot}; remove it.")
    trace = compute_trace(load(model), text, beam=beam, max_tokens=max_tokens, target=target, parses=parses)
    if plot == "attention":
        figure = plot_attention(trace, at)
    else:
        figure = plot_alignment(trace) if plot == "alignment" else plot_head_costs(trace)
    save_figure(figure, output)
