"""`regard plot`: figures of a model at work, and of attention, positions and recurrent networks in general."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from regard.cli.options import (
    DECODING_PANEL,
    MODEL_PANEL,
    OUTPUT_PANEL,
    BeamOption,
    MaxGeneratedOption,
    ParseOption,
    SettingsOption,
    argument,
    check_choice,
    check_text,
    examples,
    option,
    usage_errors,
)
from regard.errors import ConfigError
from regard.registry import usual_spelling

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.api import Model
    from regard.config import TransformerConfig
    from regard.interpret.trace import Trace

EXAMPLES = examples(
    'regard plot alignment runs/en-it "Where is the station?" --output alignment.svg',
    'regard plot attention runs/en-it "I love you." --at "decoder.1.cross_attention[2]" -o attention.png',
    "regard plot positions --length 100 --width 128 -o positions.png",
    "regard plot pattern -o pattern.png",
    'regard plot lstm "I love you very much" -o lstm.png',
)
SENTENCE = "I love you very much"
MAX_LENGTHS = {"positions": 4096, "pattern": 256}
DEFAULT_LENGTHS = {"positions": 64, "pattern": 16}
DEFAULT_WIDTH = 128


@dataclass(frozen=True)
class PlotRequest:
    """The arguments and options of the command."""

    plot: str
    model: Path | None
    text: str | None
    parses: str | None
    target: str | None
    beam: int | None
    max_tokens: int
    at: str | None
    length: int | None
    width: int | None
    step: int | None
    settings: list[str] | None


def _attention(request: PlotRequest) -> "Figure":
    from regard.interpret.render.plots import plot_attention

    return plot_attention(_trace(request), request.at)


def _alignment(request: PlotRequest) -> "Figure":
    from regard.interpret.render.plots import plot_alignment

    return plot_alignment(_trace(request))


def _heads(request: PlotRequest) -> "Figure":
    from regard.interpret.render.plots import plot_head_costs

    return plot_head_costs(_trace(request))


def _positions(request: PlotRequest) -> "Figure":
    from regard.interpret.render.plots import network_positions, plot_positions

    length = _length(request)
    if request.model is None:
        return plot_positions(_transformer(request), length)
    model = _load(request)
    return plot_positions(_check_transformer(model), length, network_positions(model.network))


def _mask(request: PlotRequest) -> "Figure":
    from regard.interpret.render.attention_diagrams import plot_mask

    if request.model is None and request.at is not None:
        raise ConfigError(f"--at {request.at}: selects the attention of a model; pass MODEL and TEXT, or remove it.")
    return plot_mask() if request.model is None else plot_mask(_trace(request), request.at)


def _pattern(request: PlotRequest) -> "Figure":
    from regard.interpret.render.attention_diagrams import plot_patterns

    length = _length(request)
    if request.model is not None:
        return plot_patterns(length, _check_transformer(_load(request)).attention)
    return plot_patterns(length, _transformer(request).attention if request.settings else None)


def _lookup(request: PlotRequest) -> "Figure":
    from regard.interpret.render.attention_diagrams import plot_lookup

    return plot_lookup()


def _lstm(request: PlotRequest) -> "Figure":
    from regard.interpret.render.recurrent_diagrams import plot_lstm

    return plot_lstm(_recurrent_trace(request, "lstm"), request.at, request.step)


def _graph(request: PlotRequest) -> "Figure":
    from regard.interpret.render.recurrent_diagrams import plot_graph

    return plot_graph(_recurrent_trace(request, "rnn"))


@dataclass(frozen=True)
class Plot:
    """A figure, and the arguments and options that it takes."""

    draw: Callable[[PlotRequest], "Figure"]
    arguments: str
    options: tuple[str, ...] = ()


DECODING = ("--target", "--parses")
PLOTS = {
    "attention": Plot(_attention, "MODEL TEXT", ("--at", *DECODING)),
    "alignment": Plot(_alignment, "MODEL TEXT", DECODING),
    "heads": Plot(_heads, "MODEL TEXT", DECODING),
    "positions": Plot(_positions, "[MODEL]", ("--length", "--width", "--set")),
    "mask": Plot(_mask, "[MODEL TEXT]", ("--at", *DECODING)),
    "pattern": Plot(_pattern, "[MODEL]", ("--length", "--set")),
    "lookup": Plot(_lookup, ""),
    "lstm": Plot(_lstm, "[[MODEL] TEXT]", ("--at", "--step", *DECODING)),
    "graph": Plot(_graph, "[[MODEL] TEXT]", DECODING),
}


ALIASES = {
    "word-alignment": "alignment",
    "positional-encoding": "positions",
    "positional-encodings": "positions",
    "sinusoidal": "positions",
    "causal-mask": "mask",
    "look-ahead-mask": "mask",
    "masking": "mask",
    "bigbird": "pattern",
    "linformer": "pattern",
    "sliding-window": "pattern",
    "sparse-attention": "pattern",
    "hash-table": "lookup",
    "soft-lookup": "lookup",
    "gates": "lstm",
    "lstm-cell": "lstm",
    "computational-graph": "graph",
    "rnn": "graph",
    "unrolled-rnn": "graph",
    "unrolling": "graph",
}


def run(
    plot: Annotated[
        str,
        argument(
            "What to plot: attention, alignment or heads of a model; positions, mask, pattern, lookup, lstm or graph "
            "in general, or of a model.",
            "PLOT",
        ),
    ],
    model: Annotated[
        str | None,
        argument("Model folder, or run folder for its best model. lstm and graph: without it, TEXT alone.", "MODEL"),
    ] = None,
    text: Annotated[str | None, argument("Input text of the model.", "TEXT")] = None,
    output: Annotated[
        Path | None,
        option(OUTPUT_PANEL, "--output", "-o", help="Image file to write: .png, .svg or .pdf.", metavar="FILE"),
    ] = None,
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
            help="Attention to plot: decoder.1.cross_attention, or one head of it with [2]; lstm: layer to plot.",
            metavar="ADDRESS",
        ),
    ] = None,
    length: Annotated[
        int | None, option(MODEL_PANEL, help="positions, pattern: number of tokens.", metavar="NUMBER")
    ] = None,
    width: Annotated[int | None, option(MODEL_PANEL, help="positions: model width.", metavar="NUMBER")] = None,
    step: Annotated[
        int | None, option(MODEL_PANEL, help="lstm: step whose numbers are shown, from 0.", metavar="NUMBER")
    ] = None,
    settings: SettingsOption = None,
) -> None:
    """Plot attention weights, word alignment and head costs of a model, or how attention and recurrence work."""
    from regard.plotting import check_figure_path, save_figure

    if plot not in PLOTS:
        plot = ALIASES.get(usual_spelling(plot), plot)
    check_choice("PLOT", plot, tuple(PLOTS))
    options = {
        "--at": at,
        "--target": target,
        "--parses": parses,
        "--length": length,
        "--width": width,
        "--step": step,
        "--set": settings,
    }
    for name, value in options.items():
        if value is not None and name not in PLOTS[plot].options:
            shown = value[0] if isinstance(value, list) else value
            raise ConfigError(f"{name} {shown}: does not apply to `regard plot {plot}`; remove it.")
    if output is None:
        raise ConfigError("--output is missing: pass the image file to write, such as -o figure.png.")
    check_figure_path(output, "--output")
    folder, text = _arguments(plot, model, text)
    request = PlotRequest(plot, folder, text, parses, target, beam, max_tokens, at, length, width, step, settings)
    with usage_errors():
        figure = PLOTS[plot].draw(request)
    save_figure(figure, output)


def _arguments(plot: str, model: str | None, text: str | None) -> tuple[Path | None, str | None]:
    """Return MODEL and TEXT; a single argument of lstm and graph is the text."""
    expected = PLOTS[plot].arguments
    usage = f"the arguments of `regard plot {plot}` are: {expected or 'none'}"
    if "[MODEL] TEXT" in expected and text is None and model is not None:
        if model and os.path.isdir(model):  # unlike Path.is_dir, False for a text that is too long for a name
            raise ConfigError(f"{model}: is a folder, and the text is missing; {usage}.")
        model, text = None, model
    if text is not None and "TEXT" not in expected:
        raise ConfigError(f"TEXT {text!r}: is not used; {usage}.")
    if model is not None and "MODEL" not in expected:
        raise ConfigError(f"MODEL {model}: is not used; {usage}.")
    needs_both = expected == "MODEL TEXT" or (expected == "[MODEL TEXT]" and model is not None)
    if needs_both and (model is None or text is None):
        raise ConfigError(f"{'MODEL and TEXT are' if model is None else 'TEXT is'} missing; {usage}.")
    if text is not None:
        check_text("TEXT", text, empty=True)
    return None if model is None else Path(model), text


def _load(request: PlotRequest) -> "Model":
    from regard.api import load

    assert request.model is not None
    for name, value in (("--set", request.settings), ("--width", request.width)):
        if value is not None:
            raise ConfigError(f"{name}: the network is that of {request.model}; remove {name}, or MODEL.")
    return load(request.model)


def _trace(request: PlotRequest) -> "Trace":
    from regard.cli.look import compute_trace

    assert request.text is not None
    return compute_trace(
        _load(request),
        request.text,
        beam=request.beam,
        max_tokens=request.max_tokens,
        target=request.target,
        parses=request.parses,
    )


def _recurrent_trace(request: PlotRequest, cell: str) -> "Trace":
    """Return the trace of the model, or of a small untrained network; language models read the text and its end."""
    from dataclasses import replace

    from regard.interpret.render.recurrent_diagrams import seeded_language_model
    from regard.interpret.trace import look

    if request.model is None:
        for name, value in (("--target", request.target), ("--parses", request.parses)):
            if value is not None:
                raise ConfigError(f"{name}: is for a translator; pass MODEL too, or remove it.")
        text = SENTENCE if request.text is None else request.text
        if not text.strip():
            raise ConfigError("TEXT is empty; give at least one word.")
        return look(seeded_language_model(text, cell), text, None, target="")
    model = _load(request)
    target = "" if request.target is None and model.config.model.generates else request.target
    return _trace(replace(request, target=target))


def _length(request: PlotRequest) -> int:
    length, largest = request.length or DEFAULT_LENGTHS[request.plot], MAX_LENGTHS[request.plot]
    if request.length is not None and not 2 <= request.length <= largest:
        raise ConfigError(f"--length {request.length}: should be from 2 to {largest:,}.")
    return length


def _transformer(request: PlotRequest) -> "TransformerConfig":
    """Return the settings of a Transformer with --width and --set."""
    from regard.config import TransformerConfig, load_config

    width = request.width or DEFAULT_WIDTH
    sizes = [f"model.width={width}", f"model.heads={8 if width % 8 == 0 else 1}"]
    model = load_config(None, [*sizes, *(request.settings or [])]).model
    if not isinstance(model, TransformerConfig):
        raise ConfigError(
            f"model.kind = {model.kind!r} is not a Transformer, and has no positions or patterns to plot."
        )
    return model


def _check_transformer(model: "Model") -> "TransformerConfig":
    from regard.config import TransformerConfig

    config = model.config.model
    if not isinstance(config, TransformerConfig):
        raise ConfigError(
            f"{model.folder}: is a {config.family}, which has no position scheme and no attention pattern."
        )
    return config
