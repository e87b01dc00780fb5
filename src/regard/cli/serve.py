"""`regard serve`: models behind an HTTP API."""

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from regard.cli.input_output import print_text
from regard.cli.options import (
    DECODING_PANEL,
    LIMITS_PANEL,
    MODEL_PANEL,
    OUTPUT_PANEL,
    SERVER_PANEL,
    DeviceOption,
    EngineOption,
    PrecisionOption,
    argument,
    check_choice,
    check_engine,
    examples,
    option,
)

EXAMPLES = examples(
    "regard serve en-it=runs/en-it --port 8000",
    "regard serve en-it=runs/demo book=runs/book --host 0.0.0.0 --api-key-file key.txt",
    "regard serve en-it@v1=runs/a en-it@v2=runs/b --default en-it@v1 --workers 4",
)
LOG_FORMATS = ("text", "json")

if TYPE_CHECKING:
    from regard.serving.service import Service


def run(
    models: Annotated[
        list[str],
        argument(
            "Model or run folders, or name=folder; a version after @, as in mine@v2=runs/new; a translator's languages "
            "in brackets, as in mine[en-it]=runs/demo.",
            "MODEL",
        ),
    ],
    host: Annotated[str, option(SERVER_PANEL, help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option(SERVER_PANEL, help="Port to listen on; 0 is any free port.")] = 8000,
    workers: Annotated[
        int, option(SERVER_PANEL, min=1, max=256, help="Processes that serve the port; each loads the models.")
    ] = 1,
    threads: Annotated[
        int | None,
        option(SERVER_PANEL, min=1, help="CPU threads of each worker; by default the cores divided by the workers."),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        option(
            SERVER_PANEL, help="File with the API key that clients must send; default: REGARD_API_KEY.", metavar="FILE"
        ),
    ] = None,
    no_auth: Annotated[
        bool,
        option(SERVER_PANEL, "--no-auth", help="Allow other machines without an API key, with a --host they reach."),
    ] = False,
    allow_host: Annotated[
        list[str] | None, option(SERVER_PANEL, help="Additional host name of this server. Repeatable.", metavar="NAME")
    ] = None,
    cors: Annotated[
        list[str] | None,
        option(
            SERVER_PANEL,
            help="Origin of a site that may send requests, as https://example.org, or *. Repeatable.",
            metavar="ORIGIN",
        ),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        option(
            SERVER_PANEL,
            help="Address or network of a proxy whose X-Forwarded-For names the client in the log. Repeatable.",
            metavar="ADDRESS",
        ),
    ] = None,
    default: Annotated[
        list[str] | None,
        option(
            MODEL_PANEL,
            help="Model that requests get for its name without a version; by default the newest. Repeatable.",
            metavar="NAME@VERSION",
        ),
    ] = None,
    source_language: Annotated[
        str | None,
        option(MODEL_PANEL, help="Source language of translators that name none, such as en.", metavar="CODE"),
    ] = None,
    target_language: Annotated[
        str | None,
        option(MODEL_PANEL, help="Target language of translators that name none, such as it.", metavar="CODE"),
    ] = None,
    beam: Annotated[
        int | None, option(DECODING_PANEL, min=1, help="Beam width of requests that set none; by default the model's.")
    ] = None,
    engine: EngineOption = "auto",
    precision: PrecisionOption = "int8",
    max_queue: Annotated[int, option(LIMITS_PANEL, min=1, help="Queued requests per model.")] = 256,
    timeout: Annotated[
        float, option(LIMITS_PANEL, min=0.1, max=86_400, help="Seconds until a request is aborted.")
    ] = 30.0,
    drain_seconds: Annotated[
        float | None,
        option(
            LIMITS_PANEL,
            min=0,
            max=86_400,
            help="Seconds for running requests when the server shuts down; by default --timeout.",
        ),
    ] = None,
    max_body: Annotated[int, option(LIMITS_PANEL, min=1, help="Bytes of a request body.")] = 1_000_000,
    max_characters: Annotated[int, option(LIMITS_PANEL, min=1, help="Characters of all texts of a request.")] = 20_000,
    max_texts: Annotated[int, option(LIMITS_PANEL, min=1, help="Texts of a request.")] = 256,
    max_beam: Annotated[int, option(LIMITS_PANEL, min=1, help="Beam width of a request.")] = 16,
    max_tokens: Annotated[int, option(LIMITS_PANEL, min=1, help="Generated tokens per text.")] = 1_000,
    max_batch: Annotated[
        int, option(LIMITS_PANEL, min=1, max=1024, help="Texts that a language model generates at a time.")
    ] = 16,
    prefix_cache_mb: Annotated[
        int, option(LIMITS_PANEL, min=0, help="Memory for the beginnings of prompts, per language model; 0: none.")
    ] = 256,
    log_format: Annotated[
        str, option(OUTPUT_PANEL, help="Format of the log: text, or json for one object per line.", metavar="NAME")
    ] = "text",
    quiet: Annotated[
        bool, option(OUTPUT_PANEL, "--quiet", "-q", help="Log failures only, and do not print the URL.")
    ] = False,
    verbose: Annotated[
        bool, option(OUTPUT_PANEL, "--verbose", "-v", help="Log every request, and which engine is used, and why.")
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """Serve models over HTTP with LibreTranslate's, OpenAI's and regard's own routes; see docs/how-to/serve.md."""
    from regard.errors import ConfigError

    check_engine(engine, precision)
    check_choice("--log-format", log_format, LOG_FORMATS)
    if beam is not None and beam > max_beam:
        raise ConfigError(f"--beam {beam}: is more than --max-beam {max_beam}; lower --beam, or raise --max-beam.")
    # before the imports, some of which read the environment
    with _errors_in_format(log_format), _prepared(workers, threads):
        from regard.serving.access import read_api_key, resolve_access
        from regard.serving.limits import Limits
        from regard.serving.loaded_models import check_arguments, load_models
        from regard.serving.server import bind_socket, drain_seconds_of, serve, socket_url
        from regard.serving.service import Service
        from regard.serving.workers import Supervisor

        key = read_api_key(api_key_file, os.environ.get("REGARD_API_KEY"))
        access = resolve_access(
            host,
            key=key,
            no_auth=no_auth,
            names=tuple(allow_host or ()),
            origins=tuple(cors or ()),
            proxies=tuple(trusted_proxy or ()),
        )
        limits = Limits(
            max_body_bytes=max_body,
            max_characters=max_characters,
            max_texts=max_texts,
            max_beam=max_beam,
            max_tokens=max_tokens,
            max_batch=max_batch,
            prefix_cache_mb=prefix_cache_mb,
            max_queue=max_queue,
            timeout=timeout,
            drain_seconds=drain_seconds,
        )

        def make_service() -> Service:
            loaded = load_models(
                models,
                languages=(source_language, target_language),
                device=device,
                engine=engine,  # type: ignore[arg-type]  # checked above
                precision=precision,  # type: ignore[arg-type]
                defaults=default or (),
            )
            return Service(loaded, limits, access, beam)

        def report(names: str, url: str) -> None:
            if not quiet:
                by = f" with {workers} workers" if workers > 1 else ""
                _report(f"{names} at {url}{by} (Ctrl-C stops)", log_format)

        if workers > 1:
            check_arguments(models, default or ())
            bound = bind_socket(host, port)
            _log_to_stderr(logging.ERROR if quiet else logging.INFO if verbose else logging.WARNING, log_format)
            url = socket_url(bound)
            Supervisor(
                make_service,
                bound,
                workers,
                drain_seconds=drain_seconds_of(limits),
                describe=_describe,
                on_ready=lambda names: report(names, url),
            ).run()
            return
        service = make_service()
        bound = bind_socket(host, port)
        _log_to_stderr(logging.ERROR if quiet else logging.INFO if verbose else logging.WARNING, log_format)
        serve(service, bound, lambda url: report(_describe(service), url))


@contextmanager
def _prepared(workers: int, threads: int | None) -> Iterator[None]:
    """Set up the environment of the server's processes."""
    from regard.machine import limited_cores
    from regard.serving.workers import prepared_workers

    if workers > 1:
        with prepared_workers(workers, threads):
            yield
    elif threads is not None:
        with limited_cores(threads, overrides=True):
            yield
    else:
        yield


@contextmanager
def _errors_in_format(log_format: str) -> Iterator[None]:
    """Write the error that ends the server as JSON if its log is JSON: programs that collect logs parse every line."""
    from regard.errors import RegardError

    try:
        yield
    except RegardError as error:
        if log_format != "json":
            raise
        record = {"levelno": logging.ERROR, "levelname": "ERROR", "msg": str(error)}
        print_text(JsonFormatter().format(logging.makeLogRecord(record)), file=sys.stderr)
        raise SystemExit(error.exit_code) from None


class JsonFormatter(logging.Formatter):
    """Formats a log record as one JSON object; requests have fields of their own."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON text of a record."""
        content = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": record.process,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)
        return json.dumps(content, ensure_ascii=False)


def _log_to_stderr(level: int, log_format: str) -> None:
    """Write the log of the package to stderr, with the time."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S")
    handler.setFormatter(JsonFormatter() if log_format == "json" else text)
    logger = logging.getLogger("regard")
    logger.addHandler(handler)
    logger.setLevel(level)


def _report(message: str, log_format: str) -> None:
    """Print a message in the format of the log, whatever its level."""
    if log_format == "json":
        logger = logging.getLogger("regard.serving")
        logger.handle(logger.makeRecord(logger.name, logging.INFO, __file__, 0, message, (), None))
    else:
        print_text(f"regard: {message}", file=sys.stderr, flush=True)


def _describe(service: "Service") -> str:
    """Return the names of the models, with the languages of translators."""
    return ", ".join(
        f"{model.name} ({model.source_language}-{model.target_language})" if model.translates else model.name
        for model in service.models
    )
