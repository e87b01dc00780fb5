"""The files of the page in memory: one script, one style sheet, and the page with its icon; compressed and cacheable.

The sources are plain ES modules, so that there is no build step: the server combines them when it starts. The combined
files have a hash of their content in their names and never change. The sources themselves are served as well.
"""

import base64
import gzip
import hashlib
import mimetypes
import posixpath
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

INDEX = "index.html"
MIN_COMPRESSED_BYTES = 500
IMMUTABLE = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"  # a browser may keep the file, and asks whether it has changed
_STYLE = re.compile(r'[ ]*<link rel="stylesheet" href="([^"]+)" />\n')
_SCRIPT = re.compile(r'(<script type="module" src=")([^"]+)("></script>)')
_ICON = re.compile(r'(<link rel="icon" href=")([^"]+\.svg)"')
_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async function\*?|function\*?|const|class) (\w+))", re.MULTILINE)
_OTHER_SYNTAX = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


@dataclass(frozen=True)
class PageFile:
    """A file with its compressed form and its cache headers."""

    content: bytes
    compressed: bytes | None
    media_type: str
    etag: str
    cache_control: str

    @classmethod
    def of(cls, name: str, content: bytes, cache_control: str = REVALIDATE) -> "PageFile":
        """Return a file with a name and a content."""
        compressed = gzip.compress(content, 9, mtime=0) if len(content) >= MIN_COMPRESSED_BYTES else None
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return cls(content, compressed, media_type, f'W/"{content_hash(content)}"', cache_control)

    async def respond(self, request: Request) -> Response:
        """Return the file; a client that has it already gets status 304."""
        headers = {"etag": self.etag, "cache-control": self.cache_control, "vary": "Accept-Encoding"}
        known = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
        if self.etag in known:
            return Response(status_code=304, headers=headers)
        if self.compressed is None or "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self.content, headers=headers, media_type=self.media_type)
        return Response(self.compressed, headers={**headers, "content-encoding": "gzip"}, media_type=self.media_type)


Handler = Callable[[Request], Awaitable[Response]]


@cache
def page_handlers(web: Path) -> Mapping[str, Handler]:
    """Return the handler of each path of the page whose sources are in a folder."""
    sources = {path.relative_to(web).as_posix(): path.read_bytes() for path in web.rglob("*") if path.is_file()}
    files = {name: PageFile.of(name, content) for name, content in sources.items()}
    index = sources[INDEX].decode()
    texts = {name: content.decode() for name, content in sources.items() if name.endswith((".css", ".js"))}
    styles = _STYLE.findall(index)
    if styles:
        name, files[name] = _combined("css", "".join(texts[style] for style in styles))
        index = _STYLE.sub("", index).replace("  </head>", f'    <link rel="stylesheet" href="{name}" />\n  </head>')
    script = _SCRIPT.search(index)
    if script:
        name, files[name] = _combined("js", combine_modules(script[2], texts))
        index = _SCRIPT.sub(rf"\g<1>{name}\g<3>", index)
    index = _ICON.sub(lambda match: f'{match[1]}{_data_url(sources[match[2]])}"', index)
    files[INDEX] = PageFile.of(INDEX, index.encode())
    return {"/": files[INDEX].respond, **{f"/{name}": file.respond for name, file in sorted(files.items())}}


def _combined(suffix: str, text: str) -> tuple[str, PageFile]:
    content = text.encode()
    name = f"page-{content_hash(content)}.{suffix}"
    return name, PageFile.of(name, content, IMMUTABLE)


def _data_url(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def content_hash(content: bytes) -> str:
    """Return a short hash of a content."""
    return hashlib.sha256(content).hexdigest()[:16]


def combine_modules(entry: str, sources: Mapping[str, str]) -> str:
    """Return one script with a module and all that it imports, each as a function that returns its exports.

    >>> sources = {"main.js": 'import { one as x } from "./one.js";\\nf(x);', "one.js": "export const one = 1;"}
    >>> print(combine_modules("main.js", sources))
    // one.js
    const $one_js = (() => {
    const one = 1;
    return { one };
    })();
    // main.js
    const $main_js = (() => {
    const { one: x } = $one_js;
    f(x);
    return {  };
    })();
    <BLANKLINE>
    """
    combined: dict[str, str] = {}
    _add_module(entry, sources, combined, ())
    return "".join(combined.values())


def _add_module(name: str, sources: Mapping[str, str], combined: dict[str, str], importers: tuple[str, ...]) -> None:
    """Add a module after the modules that it imports."""
    if name in importers:
        raise ValueError(f"{' → '.join((*importers, name))}: modules that import each other cannot be combined.")
    if name in combined:
        return
    source = sources[name]
    folder = posixpath.dirname(name)

    def bind(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        _add_module(path, sources, combined, (*importers, name))
        return f"const {{{match[1].replace(' as ', ': ')}}} = {_variable(path)};"

    body = _EXPORT.sub(r"\1", _IMPORT.sub(bind, source))
    other = _OTHER_SYNTAX.search(body)
    if other:
        raise ValueError(f"{name}: {other[0]!r} cannot be combined; import names in braces, and export declarations.")
    exports = ", ".join(match[2] for match in _EXPORT.finditer(source))
    head, end = f"// {name}\nconst {_variable(name)} = (() => {{", f"return {{ {exports} }};\n}})();"
    combined[name] = f"{head}\n{body.rstrip()}\n{end}\n"


def _variable(name: str) -> str:
    return "$" + re.sub(r"\W", "_", name)
