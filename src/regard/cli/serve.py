"""`regard serve`: models behind an HTTP API."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Engine, Precision, check_choice, examples

EXAMPLES = examples("regard serve en-it=runs/en-it --port 8000")

if TYPE_CHECKING:
    from regard.serving.loaded_models import LoadedModel


def run(
    models: Annotated[
        list[str], typer.Argument(help="Model or run folders; name=folder or name[en-it]=folder too.", metavar="MODEL…")
    ],
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 is any that is free.")] = 8000,
    source_language: Annotated[str | None, typer.Option(help="Of translators that say none, such as en.")] = None,
    target_language: Annotated[str | None, typer.Option(help="Likewise, such as it.")] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="A file with the key that clients must know; else REGARD_API_KEY.")
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Let others ask without a key, if --host lets them in.")
    ] = False,
    allow_host: Annotated[list[str] | None, typer.Option(help="Another name of this server; may be repeated.")] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(help="A page that may ask, as https://example.org, or *; may be repeated.", metavar="ORIGIN"),
    ] = None,
    beam: Annotated[int, typer.Option(min=1, help="Hypotheses, where a request does not say.")] = 4,
    engine: Engine = "auto",
    precision: Precision = "int8",
    max_queue: Annotated[int, typer.Option(min=1, help="Queued requests per model.")] = 256,
    timeout: Annotated[float, typer.Option(min=0.1, max=86_400, help="Seconds until a request is aborted.")] = 30.0,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 1_000_000,
    max_characters: Annotated[int, typer.Option(min=1, help="Characters of the texts of a request.")] = 20_000,
    max_texts: Annotated[int, typer.Option(min=1, help="Texts of a request.")] = 256,
    max_beam: Annotated[int, typer.Option(min=1, help="Hypotheses that a request may ask for.")] = 16,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens that a request may ask for.")] = 1_000,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but what fails.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log every request, and which engine is used, and why.")
    ] = False,
) -> None:
    """Serve models over HTTP with LibreTranslate, OpenAI and native routes; see docs/how-to/serve.md."""
    from regard.errors import ConfigError
    from regard.serving.access import read_api_key, resolve_access
    from regard.serving.limits import Limits
    from regard.serving.loaded_models import load_models
    from regard.serving.server import bind_socket, serve
    from regard.serving.service import Service

    check_choice("--engine", engine, ("auto", "torch", "ctranslate2"))
    check_choice("--precision", precision, ("int8", "float32"))
    if beam > max_beam:
        raise ConfigError(f"--beam {beam}: is more than --max-beam {max_beam}; raise that, or lower this.")
    key = read_api_key(api_key_file, os.environ.get("REGARD_API_KEY"))
    access = resolve_access(host, key=key, no_auth=no_auth, names=tuple(allow_host or ()), origins=tuple(cors or ()))
    limits = Limits(
        max_body_bytes=max_body,
        max_characters=max_characters,
        max_texts=max_texts,
        max_beam=max_beam,
        max_tokens=max_tokens,
        max_queue=max_queue,
        timeout=timeout,
    )
    loaded = load_models(
        models,
        languages=(source_language, target_language),
        engine=engine,  # type: ignore[arg-type]  # checked above
        precision=precision,  # type: ignore[arg-type]
    )
    bound = bind_socket(host, port)
    names = ", ".join(_describe(model) for model in loaded)

    def report_url(url: str) -> None:
        if not quiet:
            print(f"regard: {names} at {url} (Ctrl-C stops)", file=sys.stderr, flush=True)

    _log_to_stderr(logging.ERROR if quiet else logging.INFO if verbose else logging.WARNING)
    serve(Service(loaded, limits, access, beam), bound, report_url)


def _log_to_stderr(level: int) -> None:
    """Write the log of the package to stderr, with the time."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger = logging.getLogger("regard")
    logger.addHandler(handler)
    logger.setLevel(level)


def _describe(model: "LoadedModel") -> str:
    return f"{model.name} ({model.source_language}-{model.target_language})" if model.translates else model.name
