"""Mutation score of whole packages: a sample of small changes, each tried with the fast tests of its module.

    python tests/mutation/packages.py nn decoding training serving --limit 30 --seconds 10 --json results.json
    python tests/mutation/packages.py nn decoding training serving --limit 30 --seconds 90 --retry results.json

Only changes inside functions are made. The tests are collected once; for each mutant a process is forked that replaces
the code of the changed function, and runs the tests until one fails or the processor time is over: first the test files
that import the module or share a word with its name, then the others of the package. Processes that tests start see the
mutant too, since it is also written to the copy of the source in which everything runs. The exit code is 1 if a mutant
survives: it needs a test, or changes nothing that matters.
"""

import argparse
import ast
import gc
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FunctionType

import pytest
from changes import changed_tree, possible_changes

ROOT = Path(__file__).parent.parent.parent
IGNORED = (".git", ".venv", "site", "__pycache__", ".mypy_cache", "results")
PATIENCE = 30  # a mutant that takes this many times its processor time loops or waits, and counts as noticed
NOT_APPLICABLE, BROKEN = 77, 78  # exit codes: no live function has the changed code; a fault of this script


@dataclass(frozen=True)
class Site:
    """A possible change inside a function."""

    file: str
    number: int
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


def sites(package: str, limit: int, seed: int) -> list[Site]:
    """Return changes drawn from all functions of a package; longer modules have more of them."""
    found = []
    for path in sorted((ROOT / "src/regard" / package).rglob("*.py")):
        tree, file = ast.parse(path.read_text("utf-8")), str(path.relative_to(ROOT))
        lines = {line for node in _functions(tree) for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)}
        changes = enumerate(possible_changes(tree))
        found += [Site(file, number, change.line, change.what) for number, change in changes if change.line in lines]
    return random.Random(seed).sample(found, min(limit, len(found)))


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@cache
def tests_of(file: str) -> list[str]:
    """Return the tests of a module and then the other tests of its package."""
    module = file.removeprefix("src/").removesuffix(".py").replace("/", ".")
    package, words = module.split(".")[1], set(module.rpartition(".")[2].split("_"))
    tests = _imports_of_tests()
    named = [test for test in tests if words & set(Path(test).stem.split("_"))]
    importing = [test for test, names in tests.items() if module in names]
    of_package = [test for test in tests if test.startswith(f"tests/{package}/")]
    using = [test for test, names in tests.items() if any(name.startswith(f"regard.{package}") for name in names)]
    ranked = sorted(dict.fromkeys([*named, *importing]), key=lambda test: (test not in importing, test not in named))
    return list(dict.fromkeys([*ranked, *of_package, *using]))


@cache
def _imports_of_tests() -> dict[str, set[str]]:
    """Return the modules, and the names in modules, that each test file imports."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return {str(path.relative_to(ROOT)): _imports(ast.parse(path.read_text("utf-8"))) for path in files}


def _imports(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def replace_code(file: Path, tree: ast.Module) -> bool:
    """Give the live functions of a file the code of a changed syntax tree; return whether any changed."""
    changed = {(code.co_qualname, code.co_firstlineno): code for code in _code_objects(compile(tree, file, "exec"))}
    replaced = False
    for function in [found for found in gc.get_objects() if type(found) is FunctionType]:
        code = function.__code__
        new = changed.get((code.co_qualname, code.co_firstlineno))
        if code.co_filename == str(file) and new is not None and new != code:
            with suppress(ValueError):  # another number of free variables
                function.__code__ = new
                replaced = True
    return replaced


def _code_objects(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _code_objects(constant)


class MutationLoop:
    """A pytest plugin that runs the collected tests once per mutant, each time in a forked process."""

    def __init__(self, sites: Sequence[Site], seconds: float, results: Path | None) -> None:
        self._sites = sites
        self._seconds = seconds
        self._results = results
        self.noticed: dict[str, bool] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each mutant."""
        by_file: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            by_file.setdefault(str(item.path.relative_to(Path.cwd())), []).append(item)
        for file in dict.fromkeys(site.file for site in self._sites[:20:5]):
            if self._run(session, by_file, None, file) != 0:
                raise pytest.UsageError(f"{file}: its tests fail without a change; fix them first")
        for site in self._sites:
            started = time.monotonic()
            code = self._run(session, by_file, site, site.file)
            if code == BROKEN:
                raise pytest.UsageError(f"{site}: cannot be applied")
            if code == NOT_APPLICABLE:
                continue
            self.noticed[str(site)] = code != 0
            verdict = "noticed " if code else "SURVIVED"
            print(f"{verdict}  {site}  ({time.monotonic() - started:.0f} s)", file=sys.__stdout__, flush=True)
            if self._results is not None:
                self._results.write_text(json.dumps(self.noticed, indent=2), "utf-8")
        return True

    def _run(
        self, session: pytest.Session, items: Mapping[str, list[pytest.Item]], site: Site | None, file: str
    ) -> int:
        """Run the tests of a file with a change, or without one; return 0 if they pass."""
        path = Path.cwd() / file
        original = path.read_text("utf-8")
        tree = None if site is None else changed_tree(original, site.number)[0]
        if tree is not None:
            path.write_text(ast.unparse(tree), "utf-8")
        pid = os.fork()
        if pid == 0:
            os.setsid()  # so that processes which tests start can be ended with this one
            try:
                if tree is not None and not replace_code(path, tree):
                    os._exit(NOT_APPLICABLE)
            except BaseException:
                traceback.print_exc(file=sys.__stderr__)
                os._exit(BROKEN)
            try:
                os._exit(self._run_items(session, _in_order(items, tests_of(file))))
            except BaseException:
                os._exit(1)  # nothing of the parent may be cleaned up here
        end, status = time.monotonic() + PATIENCE * self._seconds, None
        while status is None and time.monotonic() < end:
            done, raw = os.waitpid(pid, os.WNOHANG)
            status = raw if done else None
            time.sleep(0.05)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if status is None:
            os.waitpid(pid, 0)
        path.write_text(original, "utf-8")
        return 1 if status is None else os.waitstatus_to_exitcode(status)

    def _run_items(self, session: pytest.Session, items: list[pytest.Item]) -> int:
        end = _processor_seconds() + self._seconds
        for n, item in enumerate(items):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=items[n + 1] if n + 1 < len(items) else None)
            if session.testsfailed:
                return 1
            if _processor_seconds() > end:
                break
        return 0


def _in_order(items: Mapping[str, list[pytest.Item]], files: Sequence[str]) -> list[pytest.Item]:
    return [item for file in files for item in items.get(file, [])]


def _processor_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    """Try the mutants, and print the score."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("packages", nargs="+", metavar="PACKAGE")
    parser.add_argument("--limit", type=int, default=30, help="mutants per package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30, help="processor time for the tests of a mutant")
    parser.add_argument("--only", default="", help="mutants whose name contains this text")
    parser.add_argument("--retry", type=Path, help="results of a run whose survivors are tried again, with more time")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()
    drawn = [site for package in options.packages for site in sites(package, options.limit, options.seed)]
    random.Random(options.seed).shuffle(drawn)  # so that a run that is stopped early covers all packages
    tried = [site for site in drawn if options.only in str(site)]
    if options.retry is not None:
        before = json.loads(options.retry.read_text("utf-8"))
        tried = [site for site in tried if before.get(str(site)) is False]
    loop = MutationLoop(tried, options.seconds, options.json and options.json.absolute())
    tests = list(dict.fromkeys(test for site in tried for test in tests_of(site.file)))
    with TemporaryDirectory() as folder:
        copy = Path(folder).resolve() / "regard"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*IGNORED))
        os.chdir(copy)
        os.environ |= {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        sys.dont_write_bytecode = True
        sys.path[:0] = [str(copy / "src")]
        fast = ["-m", "not slow and not browser", "--hypothesis-profile", "quick"]
        code = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *fast, *tests], [loop])
        os.chdir(ROOT)
    if not loop.noticed:
        sys.exit(int(code) or 1)
    print(f"{sum(loop.noticed.values())} of {len(loop.noticed)} mutants were noticed.")
    sys.exit(not all(loop.noticed.values()))


if __name__ == "__main__":
    main()
