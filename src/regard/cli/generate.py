"""`regard generate`: what follows a prompt."""

import json
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Engine, Precision, Verbose, check_choice, check_text, log_engine_choice

if TYPE_CHECKING:
    from regard.api import Model
    from regard.decoding.options import GenerationOptions
    from regard.decoding.results import Generation

HELP = "Type how a text begins and Enter to see it go on; Enter alone for more, /new to begin anew, Ctrl-D to end."


def run(
    model: Annotated[Path, typer.Argument(help="A model folder, or a run folder for its best model.")],
    prompt: Annotated[
        list[str] | None, typer.Option(help="What to go on from; may be repeated. Without it, standard input.")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print text as it is written.")] = False,
    length: Annotated[int, typer.Option(min=1, max=10**6, help="Tokens at most.")] = 200,
    min_length: Annotated[int, typer.Option(min=0, help="Tokens at least.")] = 0,
    temperature: Annotated[float, typer.Option(help="Below 1, closer to the most probable; 0 takes it.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Draw from the so many most probable tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the most probable that reach this together.")] = None,
    min_p: Annotated[float | None, typer.Option(help="… at least this share of the most probable's.")] = None,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1, repeats less.")] = 1.0,
    no_repeat: Annotated[int | None, typer.Option(help="No sequence of so many tokens comes twice.")] = None,
    suppress: Annotated[list[str] | None, typer.Option(help="A word not to be written; may be repeated.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="A text at which to stop; may be repeated.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Continuations of each prompt.")] = 1,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**40, help="The same seed draws the same; without it, always anew.")
    ] = None,
    ensemble: Annotated[
        list[Path] | None, typer.Option(help="Another model that votes on every token; may be repeated.")
    ] = None,
    engine: Engine = "auto",
    precision: Precision = "int8",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each continuation.")] = False,
    verbose: Verbose = False,
) -> None:
    """Go on from a prompt, or from several; on a terminal without a prompt, take turns with you."""
    from regard.api import load
    from regard.decoding.options import GenerationOptions, OutputConstraints, SamplingOptions

    log_engine_choice(verbose)
    check_choice("--engine", engine, ("auto", "torch", "ctranslate2"))
    check_choice("--precision", precision, ("int8", "float32"))
    given = [("--prompt", prompt), ("--suppress", suppress), ("--stop", stop)]
    for option, text in ((option, text) for option, texts in given for text in texts or []):
        check_text(option, text, empty=option == "--prompt")
    ready = load(model, *(ensemble or []))
    drawn = seed if seed is not None else secrets.randbelow(2**31)
    sampling = SamplingOptions(
        temperature,
        top_k,
        top_p,
        min_p,
        repetition_penalty,
        no_repeat,
        drawn,
        OutputConstraints(min_length, length, words=tuple(suppress or ())),
    )
    wish = GenerationOptions(sampling, samples, tuple(stop or ()))
    turn = Turn(ready, wish, engine, precision, seeded=seed is not None)
    if prompt is None and sys.stdin is not None and sys.stdin.isatty():
        turn.take_turns()
    else:
        turn.write(prompt if prompt is not None else [_standard_input()], stream=stream, as_json=as_json)


class Turn:
    """Writes continuations, as they come or when they are complete."""

    def __init__(self, model: "Model", wish: "GenerationOptions", engine: str, precision: str, *, seeded: bool) -> None:
        self._model = model
        self._wish = wish
        self._engine = engine
        self._precision = precision
        self._seeded = seeded

    def write(self, prompts: list[str], *, stream: bool, as_json: bool) -> None:
        """Print what follows each prompt; the prompt too, unless as JSON."""
        together = stream and len(prompts) * self._wish.samples == 1 and not as_json
        if together:
            print(prompts[0], end="", flush=True)
        found = self._continue(prompts, shown=together)
        if together:
            print()
        elif as_json:
            for one in found:
                print(json.dumps(self._facts(one), ensure_ascii=False))
        else:
            for number, one in enumerate(found):
                print(("---\n" if number else "") + one.prompt + one.text)
        if any(one.slid for one in found):
            print("regard: the text outgrew the model's window; its beginning was forgotten.", file=sys.stderr)

    def take_turns(self) -> None:
        """Go on with what someone types, turn after turn."""
        print(HELP, file=sys.stderr)
        text = ""
        while (line := self._asked()) is not None:
            if line.strip() == "/new":
                text = ""
                continue
            text += line
            (found,) = self._continue([text], shown=True)
            print()
            text += found.text

    def _asked(self) -> str | None:
        try:
            return input("> ")
        except EOFError:
            print(file=sys.stderr)
            return None

    def _continue(self, prompts: list[str], *, shown: bool) -> "list[Generation]":
        found: list[Generation] = []
        parts = self._model.stream(
            prompts,
            self._wish,
            found,
            engine=self._engine,  # type: ignore[arg-type]  # checked above
            precision=self._precision,  # type: ignore[arg-type]
            seeded=self._seeded,
        )
        for part in parts:
            if shown:
                print(part.text, end="", flush=True)
        return found

    def _facts(self, one: "Generation") -> dict[str, object]:
        return {
            "prompt": one.prompt,
            "sample": one.sample,
            "text": one.text,
            "tokens": self._model.tokenizer.ids_to_tokens(one.tokens),
            "log_probability": round(one.log_probability, 4),
            "ended": one.ended,
        }


def _standard_input() -> str:
    from regard.errors import DataError

    if sys.stdin is None:
        raise DataError("standard input: is closed; give it something to read, or use --prompt.")
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"standard input: is not UTF-8 (byte {error.start + 1}); convert it.") from None
