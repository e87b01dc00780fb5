"""`regard generate`: continue prompts with a language model."""

import json
import secrets
import sys
from typing import TYPE_CHECKING, Annotated

from regard.cli.input_output import print_text
from regard.cli.options import (
    DATA_PANEL,
    DECODING_PANEL,
    OUTPUT_PANEL,
    DeviceOption,
    EngineOption,
    EnsembleOption,
    ModelArgument,
    PrecisionOption,
    SuppressOption,
    VerboseOption,
    check_engine,
    check_text,
    examples,
    log_engine_choice,
    option,
)
from regard.decoding.options import DEFAULT_TEMPERATURE, MAX_LOOKUP

if TYPE_CHECKING:
    from regard.api import Model
    from regard.decoding.options import GenerationOptions
    from regard.decoding.results import Generation

EXAMPLES = examples(
    'regard generate runs/shakespeare --prompt "ROMEO:" --max-tokens 500 --stream',
    'regard generate runs/gpt --prompt "Once upon a time" --samples 3 --seed 1 --json',
)
INSTRUCTIONS = "Type the start of a text and press Enter; Enter alone continues, /new starts over, Ctrl-D ends."
TemperatureOption = Annotated[
    float, option(DECODING_PANEL, help="Sampling temperature; 0 takes the most probable token.")
]
TopKOption = Annotated[int | None, option(DECODING_PANEL, help="Sample from the k most probable tokens.")]
TopPOption = Annotated[
    float | None, option(DECODING_PANEL, help="Sample from the most probable tokens whose probabilities sum to p.")
]
MinPOption = Annotated[
    float | None, option(DECODING_PANEL, help="Sample from tokens with at least p times the highest probability.")
]
RepetitionPenaltyOption = Annotated[
    float, option(DECODING_PANEL, help="Values above 1 make tokens that occurred before less probable.")
]
NoRepeatNgramOption = Annotated[
    int | None, option(DECODING_PANEL, help="Size of n-grams that must not occur twice in the output.")
]
StopOption = Annotated[
    list[str] | None, option(DECODING_PANEL, help="Text at which generation stops. Repeatable.", metavar="TEXT")
]
SeedOption = Annotated[
    int | None, option(DECODING_PANEL, min=0, max=2**40, help="Seed of the random numbers; random by default.")
]
LookupOption = Annotated[
    int,
    option(
        DECODING_PANEL,
        min=0,
        max=MAX_LOOKUP,
        help="Draft tokens per step from the text so far; same text, faster if it repeats itself; engine torch.",
    ),
]


def run(
    model: ModelArgument,
    prompt: Annotated[
        list[str] | None, option(DATA_PANEL, help="Text to continue; stdin if omitted. Repeatable.", metavar="TEXT")
    ] = None,
    stream: Annotated[bool, option(OUTPUT_PANEL, "--stream", help="Print tokens as they are generated.")] = False,
    max_tokens: Annotated[
        int, option(DECODING_PANEL, min=1, max=10**6, help="Maximum number of generated tokens.")
    ] = 200,
    min_tokens: Annotated[int, option(DECODING_PANEL, min=0, help="Minimum number of generated tokens.")] = 0,
    temperature: TemperatureOption = DEFAULT_TEMPERATURE,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    min_p: MinPOption = None,
    repetition_penalty: RepetitionPenaltyOption = 1.0,
    no_repeat_ngram: NoRepeatNgramOption = None,
    suppress: SuppressOption = None,
    stop: StopOption = None,
    samples: Annotated[int, option(DECODING_PANEL, min=1, help="Number of continuations of each prompt.")] = 1,
    seed: SeedOption = None,
    lookup: LookupOption = 0,
    ensemble: EnsembleOption = None,
    engine: EngineOption = "auto",
    precision: PrecisionOption = "int8",
    as_json: Annotated[bool, option(OUTPUT_PANEL, "--json", help="Print one JSON object per continuation.")] = False,
    verbose: VerboseOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Continue prompts. In a terminal and without a prompt, starts an interactive session."""
    from regard.api import load
    from regard.decoding.options import GenerationOptions, OutputConstraints, SamplingOptions

    log_engine_choice(verbose)
    check_engine(engine, precision)
    for name, texts in (("--prompt", prompt), ("--suppress", suppress), ("--stop", stop)):
        for text in texts or []:
            check_text(name, text, empty=name == "--prompt")
    loaded = load(model, *(ensemble or []), device=device)
    sampling = SamplingOptions(
        temperature,
        top_k,
        top_p,
        min_p,
        repetition_penalty,
        no_repeat_ngram,
        seed if seed is not None else secrets.randbelow(2**31),
        OutputConstraints(min_tokens, max_tokens, suppressed_words=tuple(suppress or ())),
        lookup=lookup,
    )
    options = GenerationOptions(sampling, samples, tuple(stop or ()))
    session = Session(loaded, options, engine, precision, seeded=seed is not None)
    if prompt is None and sys.stdin is not None and sys.stdin.isatty():
        session.run_interactive()
    else:
        session.print_continuations(prompt if prompt is not None else [_read_stdin()], stream=stream, as_json=as_json)


class Session:
    """Prints continuations, token by token or when they are complete."""

    def __init__(
        self, model: "Model", options: "GenerationOptions", engine: str, precision: str, *, seeded: bool
    ) -> None:
        self._model = model
        self._options = options
        self._engine = engine
        self._precision = precision
        self._seeded = seeded

    def print_continuations(self, prompts: list[str], *, stream: bool, as_json: bool) -> None:
        """Print prompts with their continuations, or continuations as JSON; several are not streamed."""
        streamed = stream and len(prompts) * self._options.samples == 1 and not as_json
        if streamed:
            print_text(prompts[0], end="", flush=True)
        generations = self._continue(prompts, shown=streamed)
        if streamed:
            print_text()
        elif as_json:
            for generation in generations:
                print_text(json.dumps(self._record(generation), ensure_ascii=False))
        else:
            for number, generation in enumerate(generations):
                print_text(("---\n" if number else "") + generation.prompt + generation.text)
        if any(generation.truncated for generation in generations):
            print_text("regard: the text exceeded the model's context; its beginning was dropped.", file=sys.stderr)

    def run_interactive(self) -> None:
        """Continue what the user types, turn by turn."""
        print_text(INSTRUCTIONS, file=sys.stderr)
        text = ""
        while (line := self._read_line()) is not None:
            if line.strip() == "/new":
                text = ""
                continue
            text += line
            (generation,) = self._continue([text], shown=True)
            print_text()
            text += generation.text

    def _read_line(self) -> str | None:
        try:
            return input("> ")
        except EOFError:
            print_text(file=sys.stderr)
            return None

    def _continue(self, prompts: list[str], *, shown: bool) -> "list[Generation]":
        generations: list[Generation] = []
        chunks = self._model.generate_chunks(
            prompts,
            self._options,
            generations,
            engine=self._engine,  # type: ignore[arg-type]  # checked above
            precision=self._precision,  # type: ignore[arg-type]
            is_seeded=self._seeded,
        )
        for chunk in chunks:
            if shown:
                print_text(chunk.text, end="", flush=True)
        return generations

    def _record(self, generation: "Generation") -> dict[str, object]:
        return {
            "prompt": generation.prompt,
            "sample": generation.sample,
            "text": generation.text,
            "tokens": self._model.tokenizer.ids_to_tokens(generation.tokens),
            "log_probability": round(generation.log_probability, 4),
            "ended": generation.ended,
        }


def _read_stdin() -> str:
    from regard.errors import DataError

    if sys.stdin is None:
        raise DataError("standard input: closed; redirect it, or use --prompt.")
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"standard input: not UTF-8 (byte {error.start + 1}); convert it.") from None
