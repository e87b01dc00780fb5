"""`regard batch`: run a task over many files, with several processes or a cluster; `regard batch verify` checks it."""

import inspect
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.help import Command, Group
from regard.cli.input_output import LOG_SECONDS, print_text
from regard.cli.options import (
    DATA_PANEL,
    DECODING_PANEL,
    MODEL_PANEL,
    OUTPUT_PANEL,
    WORKERS_PANEL,
    BeamOption,
    EngineOption,
    LengthPenaltyOption,
    ModelArgument,
    PrecisionOption,
    QuietOption,
    SplitSentencesOption,
    argument,
    check_choice,
    check_engine,
    examples,
    option,
)
from regard.decoding.options import DEFAULT_GENERATED_TOKENS, DEFAULT_TEMPERATURE

if TYPE_CHECKING:
    from regard.batch import BatchSummary, BatchTask
    from regard.batch.executors import Event
    from regard.batch.runner import JobProgress

CLUSTERS, OUTPUT_FORMATS = ("local", "ray"), ("text", "jsonl", "parquet")
TRANSLATE_EXAMPLES = examples(
    "regard batch translate runs/en-it corpus/*.jsonl --source-column en --target-column it --out out",
    "regard batch translate runs/en-it big.txt.gz --out out --shard 3/16",
)
GENERATE_EXAMPLES = examples("regard batch generate runs/gpt prompts.txt --max-tokens 50 --seed 1 --out out")
CLASSIFY_EXAMPLES = examples("regard batch classify runs/sst2 reviews.parquet --source-column review --out out")
EMBED_EXAMPLES = examples("regard batch embed models/minilm texts.parquet --normalize --out out --cluster ray")
VERIFY_EXAMPLES = examples("regard batch verify out", "regard batch verify out --merge all.jsonl.gz")
JsonOption = Annotated[bool, option(OUTPUT_PANEL, "--json", help="Print the summary as JSON.")]
SecondColumnOption = Annotated[
    str | None,
    option(
        DATA_PANEL,
        help="Column of the second text of pairs; in text files, pairs are separated by a tab.",
        metavar="COLUMN",
    ),
]
app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Run a task over many files, with several processes or on a cluster."
)


def _job_options(
    model: ModelArgument,
    inputs: Annotated[
        list[str], argument("Text, JSON Lines or Parquet: files, folders, patterns or URLs; .gz, .xz, .zst.", "INPUT")
    ],
    out: Annotated[
        str, option(OUTPUT_PANEL, "--out", "-o", help="Folder of the job; the same one continues it.", metavar="DIR")
    ],
    source_column: Annotated[
        str, option(DATA_PANEL, help="Column of the texts in JSON Lines and Parquet.", metavar="COLUMN")
    ] = "text",
    target_column: Annotated[
        str | None,
        option(DATA_PANEL, help="Column to add; translation, continuation, label or vector.", metavar="COLUMN"),
    ] = None,
    rows_per_shard: Annotated[
        int, option(DATA_PANEL, min=1, help="Files with more rows are divided into shards of so many rows.")
    ] = 50_000,
    skip_invalid: Annotated[
        bool,
        option(
            DATA_PANEL, "--skip-invalid", help="Leave the results of invalid rows empty, instead of stopping there."
        ),
    ] = False,
    output_format: Annotated[
        str | None,
        option(OUTPUT_PANEL, help="text, jsonl or parquet; by default that of the input, or jsonl.", metavar="NAME"),
    ] = None,
    id_column: Annotated[
        str | None, option(OUTPUT_PANEL, help="Add a column with the id of each row, FILE:ROW.", metavar="COLUMN")
    ] = None,
    cluster: Annotated[
        str, option(WORKERS_PANEL, help="local (processes of this machine) or ray.", metavar="NAME")
    ] = "local",
    workers: Annotated[
        int | None, option(WORKERS_PANEL, min=1, help="Worker processes; by default one per core, or per GPU.")
    ] = None,
    threads: Annotated[
        int | None, option(WORKERS_PANEL, min=1, help="Threads per worker; by default cores divided by workers.")
    ] = None,
    device: Annotated[
        str, option(WORKERS_PANEL, help="cpu, cuda (a GPU per worker), cuda:N or auto.", metavar="NAME")
    ] = "cpu",
    shard: Annotated[
        str | None,
        option(
            WORKERS_PANEL,
            help="Process only the Kth of N parts of the shards, from 1/N to N/N, in jobs of Slurm and the like.",
            metavar="K/N",
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Describe the options of every job; commands add those of their task."""


def _command(name: str, epilog: str) -> Callable[[Callable[..., "BatchTask"]], None]:
    """Register a command with the options of every job and those of a function that creates a task."""

    def register(create_task: Callable[..., "BatchTask"]) -> None:
        def run(ctx: typer.Context, **options: Any) -> None:
            job = {parameter: options.pop(parameter) for parameter in job_parameters}
            _run(ctx, job, create_task, options)

        job_parameters = dict(inspect.signature(_job_options).parameters)
        parameters = dict(inspect.signature(create_task).parameters)
        parameters.pop("common")
        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        merged = [context, *job_parameters.values(), *parameters.values()]
        keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in merged]
        run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in merged}
        run.__doc__ = create_task.__doc__
        app.command(name, cls=Command, epilog=epilog)(run)

    return register


@_command("translate", TRANSLATE_EXAMPLES)
def _translate(
    common: dict[str, Any],
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    max_tokens: Annotated[
        int | None, option(DECODING_PANEL, min=1, help="Maximum number of target tokens of a sentence.")
    ] = None,
    split_sentences: SplitSentencesOption = None,
    engine: EngineOption = "auto",
    precision: PrecisionOption = "int8",
) -> "BatchTask":
    """Translate the rows of files. Every row is in the output exactly once, also if workers die."""
    from regard.batch import Translate

    check_engine(engine, precision)
    return Translate(
        **common,
        beam=beam,
        length_penalty=length_penalty,
        max_tokens=max_tokens,
        split_sentences=split_sentences,
        engine=engine,  # type: ignore[arg-type]  # checked above
        precision=precision,  # type: ignore[arg-type]
    )


@_command("generate", GENERATE_EXAMPLES)
def _generate(
    common: dict[str, Any],
    max_tokens: Annotated[
        int, option(DECODING_PANEL, min=1, help="Maximum number of generated tokens.")
    ] = DEFAULT_GENERATED_TOKENS,
    temperature: Annotated[
        float, option(DECODING_PANEL, help="Sampling temperature; 0 takes the most probable token.")
    ] = DEFAULT_TEMPERATURE,
    top_k: Annotated[int | None, option(DECODING_PANEL, help="Sample from the k most probable tokens.")] = None,
    top_p: Annotated[
        float | None, option(DECODING_PANEL, help="Sample from the most probable tokens whose probabilities sum to p.")
    ] = None,
    stop: Annotated[
        list[str] | None, option(DECODING_PANEL, help="Text at which generation stops. Repeatable.", metavar="TEXT")
    ] = None,
    seed: Annotated[
        int | None, option(DECODING_PANEL, min=0, help="Seed of the random numbers; random by default.")
    ] = None,
    engine: EngineOption = "auto",
    precision: PrecisionOption = "int8",
) -> "BatchTask":
    """Continue the prompts in the rows of files. Results of text files are JSON Lines."""
    from regard.batch import Generate

    check_engine(engine, precision)
    return Generate(
        **common,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        stop=tuple(stop or ()),
        seed=seed,
        engine=engine,  # type: ignore[arg-type]  # checked above
        precision=precision,  # type: ignore[arg-type]
    )


@_command("classify", CLASSIFY_EXAMPLES)
def _classify(
    common: dict[str, Any],
    second_column: SecondColumnOption = None,
    probabilities: Annotated[
        bool, option(OUTPUT_PANEL, "--probabilities", "-p", help="Add the probability of every label.")
    ] = False,
) -> "BatchTask":
    """Label the texts, or pairs of texts, in the rows of files."""
    from regard.batch import Classify

    return Classify(**common, second_column=second_column, probabilities=probabilities)


@_command("embed", EMBED_EXAMPLES)
def _embed(
    common: dict[str, Any],
    second_column: SecondColumnOption = None,
    pooling: Annotated[
        str | None,
        option(
            MODEL_PANEL,
            help="Pooling: mean, first, first-dense, first-relu; the model's by default.",
            metavar="NAME",
        ),
    ] = None,
    normalize: Annotated[bool, option(OUTPUT_PANEL, "--normalize", help="Scale every vector to length 1.")] = False,
) -> "BatchTask":
    """Add vectors of the texts in the rows of files. Results of text files are JSON Lines."""
    from regard.batch import Embed
    from regard.registry import POOLINGS

    if pooling is not None:
        check_choice("--pooling", pooling, POOLINGS)
    return Embed(
        **common,
        second_column=second_column,
        pooling=pooling,  # type: ignore[arg-type]  # checked above
        normalize=normalize,
    )


@app.command("verify", cls=Command, epilog=VERIFY_EXAMPLES)
def verify(
    out: Annotated[str, argument("Folder of a batch job.", "DIR")],
    merge: Annotated[
        Path | None, option(OUTPUT_PANEL, help="Also write all rows to one file, in order.", metavar="FILE")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that every input row is in the output exactly once, and write the manifest."""
    from regard.batch import verify

    _print_summary(verify(out, merge=merge), as_json=as_json)


def _run(
    ctx: typer.Context, job: dict[str, Any], create_task: Callable[..., "BatchTask"], options: dict[str, Any]
) -> None:
    """Run the job of a command and print its summary."""
    from regard.batch import run

    check_choice("--cluster", job["cluster"], CLUSTERS)
    if job["output_format"] is not None:
        check_choice("--output-format", job["output_format"], OUTPUT_FORMATS)
    common = {"folder": job["model"], "source_column": job["source_column"], "skip_invalid": job["skip_invalid"]}
    if job["target_column"] is not None:
        common["target_column"] = job["target_column"]
    task = create_task(common, **options)
    with _display(task.name, quiet=job["quiet"]) as show:
        summary = run(
            task,
            job["inputs"],
            job["out"],
            cluster=job["cluster"],
            workers=job["workers"],
            threads=job["threads"],
            device=job["device"],
            rows_per_shard=job["rows_per_shard"],
            output_format=job["output_format"],
            id_column=job["id_column"],
            share=_parse_share(job["shard"]),
            plugins=ctx.find_root().params.get("plugin") or (),
            on_event=show,
        )
    _print_summary(summary, as_json=job["as_json"])


def _parse_share(text: str | None) -> tuple[int, int] | None:
    """Return K and N of K/N.

    >>> _parse_share("3/16")
    (3, 16)
    """
    from regard.errors import ConfigError

    if text is None:
        return None
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None:
        raise ConfigError(f"--shard {text}: should be K/N, such as 3/16 for the third of 16 parts.")
    return int(match[1]), int(match[2])


def _print_summary(summary: "BatchSummary", *, as_json: bool) -> None:
    for reason, count in summary.skipped.items():
        example = summary.examples[reason]
        print_text(f"regard: {count:,} rows without a result: {reason}. {example}", file=sys.stderr)
    if summary.truncated:
        print_text(f"regard: {summary.truncated:,} texts were too long and truncated.", file=sys.stderr)
    if as_json:
        print_text(json.dumps(asdict(summary), ensure_ascii=False, indent=2))
        return
    if summary.complete:
        shards = "1 shard" if summary.shards == 1 else f"{summary.shards:,} shards"
        print_text(f"{summary.rows:,} rows in {shards}, each row once: {summary.out}/shards")
        print_text(f"Manifest: {summary.manifest}")
    else:
        print_text(
            f"{summary.finished_shards:,} of {summary.shards:,} shards are finished ({summary.rows:,} rows); "
            "the manifest is written when all are."
        )


@contextmanager
def _display(task: str, *, quiet: bool) -> "Iterator[Callable[[Event, JobProgress], None]]":
    """Yield a function that shows events on stderr: a bar on a terminal, lines in a log file."""
    if quiet:
        yield lambda event, progress: None
    elif not sys.stderr.isatty():
        yield _Log(task).show
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bar(*columns, console=Console(file=sys.stderr)) as bar:
            row = bar.add_task(task, total=None)

            def show(event: "Event", progress: "JobProgress") -> None:
                shards = f"{task}: {progress.shards:,} of {progress.total_shards:,} shards"
                bar.update(row, description=shards, total=progress.total_rows, completed=progress.rows)
                if event.kind == "lost":
                    bar.console.print(_lost_message(event), markup=False)

            yield show


class _Log:
    """Prints the progress, at most once in `LOG_SECONDS`."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._start = self._last = time.monotonic()
        self._rows_before = 0

    def show(self, event: "Event", progress: "JobProgress") -> None:
        """Print an event, if it is due."""
        now = time.monotonic()
        shards = f"{progress.shards:,} of {progress.total_shards:,} shards"
        if event.kind == "planned":
            self._rows_before = progress.rows
            rows = f"{progress.rows:,} of {progress.total_rows:,} rows"
            print_text(f"regard: {self._task}: {rows} and {shards} are finished.", file=sys.stderr, flush=True)
        elif event.kind == "lost":
            print_text(_lost_message(event), file=sys.stderr, flush=True)
        elif now - self._last >= LOG_SECONDS:
            self._last = now
            rate = max(progress.rows - self._rows_before, 1) / (now - self._start)
            minutes = (progress.total_rows - progress.rows) / rate / 60
            rows = f"{progress.rows:,} of {progress.total_rows:,} rows ({progress.rows / progress.total_rows:.0%})"
            speed = f"{rate:,.1f} rows per second, {minutes:,.0f} min left"
            print_text(f"regard: {self._task}: {rows}, {shards}, {speed}", file=sys.stderr, flush=True)


def _lost_message(event: "Event") -> str:
    worker = "a worker" if event.process is None else f"worker {event.process}"
    return f"regard: {worker} {event.reason}; its shard is processed again."
