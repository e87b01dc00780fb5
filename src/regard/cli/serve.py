"""`regard serve`: models behind an HTTP API."""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Engine, Precision, check_choice, examples

EXAMPLES = examples("regard serve en-it=runs/en-it --port 8000")


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
    open_to_all: Annotated[
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
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait for each model.")] = 256,
    deadline: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds after which a request is given up.")
    ] = 30.0,
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
    access = resolve_access(
        host, key=key, open_to_all=open_to_all, names=tuple(allow_host or ()), origins=tuple(cors or ())
    )
    limits = Limits(
        body=max_body,
        characters=max_characters,
        texts=max_texts,
        beam=max_beam,
        tokens=max_tokens,
        queue=queue,
        deadline=deadline,
    )
    served = load_models(
        models,
        pair=(source_language, target_language),
        engine=engine,  # type: ignore[arg-type]  # checked above
        precision=precision,  # type: ignore[arg-type]
    )
    taken = bind_socket(host, port)
    names = ", ".join(_described(model.name, model.source, model.target, model.translates) for model in served)

    def say(url: str) -> None:
        if not quiet:
            print(f"regard: {names} at {url} (Ctrl-C stops)", file=sys.stderr, flush=True)

    _log(logging.ERROR if quiet else logging.INFO if verbose else logging.WARNING)
    serve(Service(served, limits, access, beam), taken, say)


def _log(level: int) -> None:
    """What the server has to say goes to stderr, with the time."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger = logging.getLogger("regard")
    logger.addHandler(handler)
    logger.setLevel(level)


def _described(name: str, source: str, target: str, translates: bool) -> str:
    return f"{name} ({source}-{target})" if translates else name
