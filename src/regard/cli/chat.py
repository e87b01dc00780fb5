"""`regard chat`: a conversation with a language model, in a terminal or line by line from stdin."""

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from regard.cli.generate import (
    LookupOption,
    MinPOption,
    NoRepeatNgramOption,
    RepetitionPenaltyOption,
    SeedOption,
    StopOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
)
from regard.cli.input_output import print_text
from regard.cli.options import (
    DATA_PANEL,
    DECODING_PANEL,
    DeviceOption,
    EngineOption,
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
from regard.decoding.options import DEFAULT_TEMPERATURE
from regard.errors import InputError, RegardError

if TYPE_CHECKING:
    from regard.api import Model
    from regard.decoding.options import GenerationOptions
    from regard.decoding.results import Generation

EXAMPLES = examples(
    'regard chat models/smollm2 --system "You are a helpful AI assistant." --temperature 0.7 --top-k 40',
    'echo "What is the capital of Italy?" | regard chat models/smollm2 --temperature 0',
)
COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?")
HELP = """\
/save FILE  write the conversation as a line of JSON, in OpenAI's messages format
/reset      forget the conversation; the system message stays
/help       show this list
/quit       end; so does Ctrl-D
Ctrl-C stops an answer and keeps the conversation."""


def run(
    model: ModelArgument,
    system: Annotated[
        str | None, option(DATA_PANEL, help="System message before the conversation.", metavar="TEXT")
    ] = None,
    max_tokens: Annotated[
        int, option(DECODING_PANEL, min=1, max=10**6, help="Maximum number of tokens of an answer.")
    ] = 512,
    temperature: TemperatureOption = DEFAULT_TEMPERATURE,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    min_p: MinPOption = None,
    repetition_penalty: RepetitionPenaltyOption = 1.0,
    no_repeat_ngram: NoRepeatNgramOption = None,
    suppress: SuppressOption = None,
    stop: StopOption = None,
    seed: SeedOption = None,
    lookup: LookupOption = 0,
    engine: EngineOption = "auto",
    precision: PrecisionOption = "int8",
    verbose: VerboseOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Chat with a language model, in a terminal or line by line from stdin."""
    from regard.api import load
    from regard.decoding.options import generation_options

    log_engine_choice(verbose)
    check_engine(engine, precision)
    for name, texts in (("--system", [system] if system else []), ("--suppress", suppress), ("--stop", stop)):
        for text in texts or []:
            check_text(name, text)
    options = generation_options(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        no_repeat_ngram=no_repeat_ngram,
        suppress=suppress or (),
        stop=stop or (),
        seed=seed,
        lookup=lookup,
    )
    loaded = load(model, device=device)
    if not loaded.chat_template.is_own:
        note = f"regard: {loaded.folder} has no chat template, and may not be trained on chats; using a built-in one."
        print_text(note, file=sys.stderr)
    chat = Chat(loaded, options, engine, precision, system, is_seeded=seed is not None)
    chat.run(sys.stdin is not None and sys.stdin.isatty())


class Chat:
    """A conversation, and the commands in it."""

    def __init__(
        self,
        model: "Model",
        options: "GenerationOptions",
        engine: str,
        precision: str,
        system: str | None,
        *,
        is_seeded: bool,
    ) -> None:
        self._model = model
        self._options = options
        self._engine = engine
        self._precision = precision
        self._is_seeded = is_seeded
        self._first = [] if system is None else [{"role": "system", "content": system}]
        self._messages = list(self._first)
        self._saved: set[Path] = set()
        self._dropped = 0

    def run(self, is_terminal: bool) -> None:
        """Answer messages until the end of the input."""
        if is_terminal:
            _note("Type a message and press Enter; /help lists the commands, Ctrl-D ends.")
        while (line := self._read_line(is_terminal)) is not None:
            command = COMMAND.fullmatch(line.strip())
            if command is not None and command[1] in ("quit", "exit"):
                return
            try:
                if command is not None:
                    self._run_command(command[1], command[2] or "")
                elif line.strip():
                    self._answer(line, is_terminal)
            except InputError as error:
                if not is_terminal:
                    raise
                _note(f"regard: {error}")

    def _read_line(self, is_terminal: bool) -> str | None:
        if not is_terminal:
            return next(iter(sys.stdin.readline, ""), None) if sys.stdin is not None else None
        while True:
            try:
                return input("> ")
            except EOFError:
                print_text(file=sys.stderr)
                return None
            except KeyboardInterrupt:
                _note("\nCtrl-D or /quit ends the chat.")

    def _answer(self, line: str, is_terminal: bool) -> None:
        """Print the answer to a message; both stay in the conversation, also if the user stops the answer."""
        self._messages.append({"role": "user", "content": line.rstrip("\n")})
        try:
            text = self._stream()
        except RegardError:
            self._messages.pop()  # it cannot be answered
            raise
        except KeyboardInterrupt:
            if not is_terminal:
                raise
            _note("\n(stopped)")
            text = self._generations[0].text if self._generations else ""
        print_text()
        self._messages.append({"role": "assistant", "content": text})

    def _stream(self) -> str:
        self._generations: list[Generation] = []
        prompt = self._model.chat_prompt(self._messages, self._options.sampling.constraints.max_tokens)
        if prompt.dropped > self._dropped:
            _note(f"regard: the first {prompt.dropped} messages no longer fit into the model's context window.")
        self._dropped = prompt.dropped
        chunks = self._model.chat_chunks(
            prompt,
            self._options,
            self._generations,
            engine=self._engine,  # type: ignore[arg-type]  # checked above
            precision=self._precision,  # type: ignore[arg-type]
            is_seeded=self._is_seeded,
        )
        for chunk in chunks:
            print_text(chunk.text, end="", flush=True)
        return self._generations[0].text

    def _run_command(self, name: str, argument: str) -> None:
        match name:
            case "save":
                self._save(argument.strip())
            case "reset":
                self._messages, self._dropped = list(self._first), 0
                _note("The conversation is empty.")
            case "help":
                _note(HELP)
            case _:
                _note(f"regard: /{name}: there is no such command; /help lists them.")

    def _save(self, argument: str) -> None:
        """Write the conversation to a new file, or again to one of this chat."""
        from regard.errors import DataError
        from regard.files import explain_write_errors, write_text

        path = Path(argument)
        if not argument:
            _note("regard: /save: name a file, as in /save chat.jsonl.")
        elif path.exists() and path.resolve() not in self._saved:
            _note(f"regard: {path}: already exists; choose another name.")
        else:
            line = json.dumps({"messages": self._messages}, ensure_ascii=False)
            try:
                with explain_write_errors(path):
                    write_text(path, line + "\n")
            except DataError as error:
                _note(f"regard: {error}")
                return
            self._saved.add(path.resolve())
            _note(f"Conversation: {path} ({len(self._messages)} messages)")


def _note(text: str) -> None:
    print_text(text, file=sys.stderr)
