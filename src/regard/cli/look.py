"""`regard look`: every step between a text and what a model makes of it."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import check_text
from regard.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from regard.api import Model
    from regard.interpret.trace import Trace

WIDE = 10_000  # columns of a pipe, where nothing is broken to fit a screen


def run(
    model: Annotated[Path, typer.Argument(help="A model folder, or a run's folder: then its best.", metavar="MODEL")],
    text: Annotated[
        str, typer.Argument(help="A sentence to translate, a prompt to continue, or a text to encode.", metavar="TEXT")
    ],
    parses: Annotated[
        str | None,
        typer.Option(help="The text's parse in CoNLL-U; a model with syntax positions needs it.", metavar="FILE"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Force this output instead of decoding one; of an encoder with a head, ask about this label."
        ),
    ] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses followed at a time; 1 is greedy.")] = 4,
    length_penalty: Annotated[float, typer.Option(help="How far longer sentences are favoured.")] = 0.6,
    length: Annotated[int, typer.Option(min=1, help="Tokens that a language model writes at most.")] = 20,
    at: Annotated[
        list[str] | None,
        typer.Option(help="Print the numbers at an address, as decoder.1.cross_attention.weights[2]@3; repeatable."),
    ] = None,
    off: Annotated[
        list[str] | None,
        typer.Option(
            help="Decode again with this off, as decoder.1.cross_attention[2] or encoder.0; or, with =even, =KEY or a "
            "weight for each key (=0.5,0.5,0) behind it, with attention that looks there; repeatable."
        ),
    ] = None,
    gradients: Annotated[
        bool, typer.Option("--gradients", help="Print how strongly training on the output would pull each part.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write one page that needs no network.", metavar="FILE")] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print JSON: the outline, the tree of the search, and the hidden units that are on."
        ),
    ] = False,
) -> None:
    """Walk through a decode: tokens, every layer and head, every step, the search, the alignment."""
    from regard.api import load

    asked = (("--at", at), ("--off", off), ("--gradients", gradients), ("--html", html))
    several = [name for name, given in asked if given]
    if len(several) > 1:
        raise ConfigError(f"{' and '.join(several)} ask for different things; give one of them at a time.")
    if html is not None and as_json:
        raise ConfigError("--html and --json ask for different things; give one of them at a time.")
    check_text("TEXT", text, empty=True)
    check_text("--target", target or "", empty=True)
    trace = traced(
        load(model), text, beam=beam, length_penalty=length_penalty, length=length, target=target, parses=parses
    )
    if at:
        _print_numbers(trace, at, as_json)
    elif off:
        _print_difference(trace, off, as_json)
    elif gradients:
        _print_gradients(trace, as_json)
    elif html is not None:
        _write_page(trace, html)
    elif as_json:
        print(trace.as_json())
    else:
        from regard.interpret.render.terminal import render_trace

        _print(render_trace(trace))


def traced(
    model: "Model",
    text: str,
    *,
    beam: int = 4,
    length_penalty: float = 0.6,
    length: int = 20,
    target: str | None = None,
    parses: str | None = None,
) -> "Trace":
    """A trace, decoded as these options say."""
    from regard.decoding.options import (
        GenerationOptions,
        OutputConstraints,
        SamplingOptions,
        SearchOptions,
        TranslationOptions,
    )

    wish: TranslationOptions | GenerationOptions | None = None
    if model.config.model.translates:
        wish = TranslationOptions(SearchOptions(beam, length_penalty))
    elif model.config.model.generates:
        wish = GenerationOptions(SamplingOptions(temperature=0, bounds=OutputConstraints(longest=length)))
    return model.look(text, wish, target=target, parses=parses)


def _print_numbers(trace: "Trace", addresses: list[str], as_json: bool) -> None:
    found = [trace.tensor(address) for address in addresses]
    if as_json:
        print(json.dumps([numbers.as_dict() for numbers in found], ensure_ascii=False))
        return
    from regard.interpret.render.tables import tensor_tables

    _print(part for numbers in found for part in tensor_tables(numbers))


def _print_difference(trace: "Trace", changes: list[str], as_json: bool) -> None:
    from regard.interpret.interventions import Intervention

    found = trace.intervene(*(Intervention.parse(change) for change in changes))
    if as_json:
        print(json.dumps(found.as_dict(), ensure_ascii=False))
        return
    from regard.interpret.render.tables import intervention_tables

    _print(intervention_tables(found))


def _print_gradients(trace: "Trace", as_json: bool) -> None:
    found = trace.gradient_norms()
    if as_json:
        print(json.dumps(found.as_dict(), ensure_ascii=False))
        return
    from regard.interpret.render.tables import gradient_table

    _print(gradient_table(found))


def _write_page(trace: "Trace", path: Path) -> None:
    from regard.cli.output import open_output
    from regard.interpret.render.page import trace_page

    content = trace_page(trace)
    with open_output(path) as put:
        put([content.rstrip("\n")])
    print(f"{path} is one page that needs no network: open it in a browser.", file=sys.stderr)


def _print(parts: "Iterable[RenderableType]") -> None:
    """Print on standard output: sentences fit the terminal, tables are as wide as they must be."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, emoji=False)
    usual = console.width if sys.stdout.isatty() else WIDE
    for part in parts:
        console.width = usual
        if isinstance(part, Table):
            console.width = max(usual, console.measure(part, options=console.options.update(width=WIDE)).maximum)
        console.print(part)
