"""The files of the page: few requests, compressed, with cache headers."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from browsers import browser
from pages import wait_for_view
from regard.serving.app import WEB
from regard.serving.loaded_models import LoadedModel
from regard.serving.page_files import combine_modules
from regard.serving.service import Service
from servers import RunningServer, run_server

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "web-page.md"


@pytest.fixture(scope="module")
def server(loaded_models: list[LoadedModel]) -> Iterator[RunningServer]:
    with run_server(Service(loaded_models[:1])) as running:
        yield running


def combined(server: RunningServer, suffix: str) -> str:
    """Return the path of the combined file that the page names."""
    (name,) = re.findall(rf'"(page-[0-9a-f]{{16}}\.{suffix})"', server.get("/").text)
    return f"/{name}"


@pytest.mark.browser
def test_the_first_view_needs_few_requests_and_the_next_one_fewer(server: RunningServer) -> None:
    with browser() as chromium:
        context = chromium.new_context(base_url=server.url)
        page, requested = context.new_page(), list[str]()
        page.on("request", lambda request: requested.append(request.url.removeprefix(server.url)))
        page.goto("/")
        wait_for_view(page)
        sent = [path for path in requested if not path.startswith("data:")]
        assert sorted(sent) == sorted(["/", "/v1/about", combined(server, "js"), combined(server, "css")])
        page.reload()
        wait_for_view(page)
        sizes = page.evaluate(
            """performance.getEntriesByType('resource').filter(({ name }) => name.includes('/page-'))
            .map(({ transferSize }) => transferSize)"""
        )
        assert sizes == [0, 0], "the script and the style sheet come from the browser's cache"


@pytest.mark.parametrize("suffix", ["js", "css"])
def test_combined_files_are_compressed_and_never_change(server: RunningServer, suffix: str) -> None:
    path = combined(server, suffix)
    with server.client.stream("GET", path, headers={"accept-encoding": "gzip"}) as response:
        assert response.headers["content-encoding"] == "gzip"
        assert "immutable" in response.headers["cache-control"]
        assert response.headers["vary"] == "Accept-Encoding"
        compressed = b"".join(response.iter_raw())
    plain = server.get(path, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == gzip.decompress(compressed)
    assert len(compressed) < 0.4 * len(plain.content)
    again = server.get(path, headers={"if-none-match": plain.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_page_itself_is_checked_for_changes(server: RunningServer) -> None:
    first = server.get("/")
    assert first.headers["cache-control"] == "no-cache"
    assert server.get("/", headers={"if-none-match": first.headers["etag"]}).status_code == 304
    assert server.get("/", headers={"if-none-match": 'W/"0000000000000000"'}).status_code == 200


def test_the_page_is_as_small_as_the_documentation_says(server: RunningServer) -> None:
    size = 0
    for path in ("/", combined(server, "js"), combined(server, "css")):
        with server.client.stream("GET", path, headers={"accept-encoding": "gzip"}) as response:
            size += len(b"".join(response.iter_raw()))
    in_docs = re.search(r"about\s(\d+) KB", DOCS.read_text("utf-8"))
    assert in_docs
    assert size / 1000 == pytest.approx(int(in_docs[1]), abs=3)


def test_the_script_has_every_module_once(server: RunningServer) -> None:
    script = server.get(combined(server, "js")).text
    modules = re.findall(r"^// (\S+\.js)$", script, re.MULTILINE)
    assert sorted(modules) == sorted(path.relative_to(WEB).as_posix() for path in WEB.rglob("*.js"))
    assert modules[-1] == "main.js"
    assert not re.search(r"^(?:import|export)\b", script, re.MULTILINE)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"main.js": 'import x from "./x.js";'}, r"main\.js: 'import x from \"\./x\.js\";' cannot be combined"),
        ({"main.js": "export default 1;"}, r"main\.js: 'export default 1;' cannot be combined"),
        (
            {"main.js": 'import { a } from "./a.js";', "a.js": 'import { main } from "./main.js";'},
            r"main\.js → a\.js → main\.js: modules that import each other cannot be combined",
        ),
    ],
)
def test_what_cannot_be_combined_is_an_error(sources: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        combine_modules("main.js", sources)
