"""`regard look`: all steps between a text and a model's output."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from regard.cli.input_output import open_output, print_text
from regard.cli.options import (
    DECODING_PANEL,
    MODEL_PANEL,
    OUTPUT_PANEL,
    BeamOption,
    LengthPenaltyOption,
    MaxGeneratedOption,
    ModelArgument,
    ParseOption,
    argument,
    check_text,
    examples,
    option,
    usage_errors,
)
from regard.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from regard.api import Model
    from regard.interpret.trace import Trace

EXAMPLES = examples(
    'regard look runs/en-it "Where is the station?" --html trace.html',
    'regard look runs/en-it "I love you." --at "decoder.1.cross_attention.weights[2]"',
    'regard look runs/en-it "I love you." --target "Ti amo." --training',
    'regard look runs/en-it "I love you." --off "decoder.1.cross_attention[2]"',
)


def run(
    model: ModelArgument,
    text: Annotated[str, argument("Sentence to translate, prompt to continue, or text to encode.", "TEXT")],
    parses: ParseOption = None,
    target: Annotated[
        str | None,
        option(
            DECODING_PANEL, help="Forced output text; for an encoder with a head, the expected label.", metavar="TEXT"
        ),
    ] = None,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    max_tokens: MaxGeneratedOption = 20,
    at: Annotated[
        list[str] | None,
        option(
            OUTPUT_PANEL,
            help="Print the values at an address, such as decoder.1.cross_attention.weights[2]@3. Repeatable.",
            metavar="ADDRESS",
        ),
    ] = None,
    off: Annotated[
        list[str] | None,
        option(
            MODEL_PANEL,
            help="Decode again without a part, such as encoder.0 or decoder.1.cross_attention[2]; or override its "
            "attention with =even, =KEY or one weight per key (=0.5,0.5,0). Repeatable.",
            metavar="PART",
        ),
    ] = None,
    gradients: Annotated[
        bool, option(OUTPUT_PANEL, "--gradients", help="Print the gradient norm of each module for this output.")
    ] = False,
    training: Annotated[
        bool,
        option(
            OUTPUT_PANEL,
            "--training",
            help="Print the training step on TEXT and --target: shifted input, labels, loss at each position.",
        ),
    ] = False,
    html: Annotated[
        Path | None, option(OUTPUT_PANEL, help="Write the trace as one self-contained HTML page.", metavar="FILE")
    ] = None,
    as_json: Annotated[
        bool, option(OUTPUT_PANEL, "--json", help="Print JSON: outline, search tree and active hidden units.")
    ] = False,
) -> None:
    """Trace a forward pass: tokens, every layer and head, every decoding step, the search and the alignment."""
    from regard.api import load

    modes = (("--at", at), ("--off", off), ("--gradients", gradients), ("--training", training), ("--html", html))
    selected = [name for name, value in modes if value]
    if len(selected) > 1:
        raise ConfigError(f"{' and '.join(selected)} print different things; pass one of them at a time.")
    if html is not None and as_json:
        raise ConfigError("--html and --json print different things; pass one of them at a time.")
    check_text("TEXT", text, empty=True)
    check_text("--target", target or "", empty=True)
    loaded = load(model)
    if training and target is None and loaded.config.model.translates:
        raise ConfigError("--training: needs the translation to learn; pass it with --target.")
    if training and target is None and loaded.config.model.generates:
        target = ""  # the text alone, without a continuation
    with usage_errors():
        trace = compute_trace(
            loaded,
            text,
            beam=beam,
            length_penalty=length_penalty,
            max_tokens=max_tokens,
            target=target,
            parses=parses,
        )
        if at:
            _print_tensors(trace, at, as_json)
        elif off:
            _print_interventions(trace, off, as_json)
        elif gradients:
            _print_gradients(trace, as_json)
        elif training:
            _print_training_step(trace, as_json)
        elif html is not None:
            _write_page(trace, html)
        elif as_json:
            print_text(trace.as_json())
        else:
            from regard.interpret.render.terminal import render_trace

            _print(render_trace(trace))


def compute_trace(
    model: "Model",
    text: str,
    *,
    beam: int | None = None,
    length_penalty: float | None = None,
    max_tokens: int = 20,
    target: str | None = None,
    parses: str | None = None,
) -> "Trace":
    """Return the trace of a text, decoded with these options."""
    if model.config.model.translates:
        return model.look(text, target=target, beam=beam, length_penalty=length_penalty, parses=parses)
    if model.config.model.generates:
        return model.look(text, target=target, max_tokens=max_tokens, parses=parses)
    return model.look(text, target=target, parses=parses)


def _print_tensors(trace: "Trace", addresses: list[str], as_json: bool) -> None:
    tensors = [trace.tensor(address) for address in addresses]
    if as_json:
        print_text(json.dumps([tensor.as_dict() for tensor in tensors], ensure_ascii=False))
        return
    from regard.interpret.render.tables import tensor_tables

    _print(part for tensor in tensors for part in tensor_tables(tensor))


def _print_interventions(trace: "Trace", parts: list[str], as_json: bool) -> None:
    from regard.interpret.interventions import Intervention

    result = trace.intervene(*(Intervention.parse(part) for part in parts))
    if as_json:
        print_text(json.dumps(result.as_dict(), ensure_ascii=False))
        return
    from regard.interpret.render.tables import intervention_tables

    _print(intervention_tables(result))


def _print_gradients(trace: "Trace", as_json: bool) -> None:
    norms = trace.gradient_norms()
    if as_json:
        print_text(json.dumps(norms.as_dict(), ensure_ascii=False))
        return
    from regard.interpret.render.tables import gradient_table

    _print(gradient_table(norms))


def _print_training_step(trace: "Trace", as_json: bool) -> None:
    step = trace.training_step()
    if as_json:
        print_text(json.dumps(step.as_dict(), ensure_ascii=False))
        return
    from regard.interpret.render.tables import training_tables

    _print(training_tables(step))


def _write_page(trace: "Trace", path: Path) -> None:
    from regard.interpret.render.page import trace_page

    content = trace_page(trace)
    with open_output(path) as write:
        write([content.rstrip("\n")])
    print_text(f"{path}: a self-contained page; open it in a browser.", file=sys.stderr)


def _print(parts: "Iterable[RenderableType]") -> None:
    """Print to stdout: text wraps at the terminal width, and tables are split at their columns."""
    from rich.table import Table

    from regard.tables import MAX_WIDTH, new_console, split_table

    console = new_console()
    if not sys.stdout.isatty():
        console.width = MAX_WIDTH  # no line of a pipe is wrapped
    for part in parts:
        for printed in split_table(part, console) if isinstance(part, Table) else [part]:
            console.print(printed)
