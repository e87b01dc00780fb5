"""Mutation testing: change one line of the source at a time, and check that a test notices.

    python tests/mutation/mutate.py                    # the known mutants of mutants.toml
    python tests/mutation/mutate.py --only layout      # those whose name contains a text
    python tests/mutation/mutate.py --generate src/regard/nn/layout.py --tests tests/nn tests/models --limit 30

A known mutant names a file, a text in it, its replacement and the tests that must fail. Generated mutants (changes.py)
are drawn with `--seed`; packages.py draws them from whole packages. Each mutant is tried in a copy of the source, so
the working tree is never changed. The exit code is 1 if a mutant survives.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from changes import changed_tree, possible_changes

ROOT = Path(__file__).parent.parent.parent
KNOWN = Path(__file__).with_name("mutants.toml")
TIMEOUT = 600  # seconds; a mutant that loops forever counts as noticed


@dataclass(frozen=True)
class Mutant:
    """A changed file."""

    name: str
    file: str
    content: str
    tests: Sequence[str]


def known_mutants() -> Iterator[Mutant]:
    """Yield the mutants of mutants.toml."""
    for entry in tomllib.loads(KNOWN.read_text("utf-8"))["mutant"]:
        source = (ROOT / entry["file"]).read_text("utf-8")
        if source.count(entry["old"]) != 1:
            sys.exit(f"{entry['name']}: the text occurs {source.count(entry['old'])} times in {entry['file']}; fix it.")
        yield Mutant(entry["name"], entry["file"], source.replace(entry["old"], entry["new"]), entry["tests"])


def generated_mutants(file: str, tests: Sequence[str], limit: int, seed: int) -> Iterator[Mutant]:
    """Yield mutants of a file, in random order."""
    source = (ROOT / file).read_text("utf-8")
    count = sum(1 for _ in possible_changes(ast.parse(source)))
    for number in random.Random(seed).sample(range(count), min(limit, count)):
        tree, change = changed_tree(source, number)
        yield Mutant(f"{file}:{change.line}: {change.what}", file, ast.unparse(tree), tests)


def is_noticed(mutant: Mutant, copy: Path) -> bool:
    """Return whether the tests fail with the mutant."""
    path = copy / mutant.file
    original = path.read_text("utf-8")
    path.write_text(mutant.content, "utf-8")
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests]
        environment = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=copy, capture_output=True, env=environment, timeout=TIMEOUT)
        if done.returncode > 2:  # neither failed tests nor code that cannot be imported
            sys.exit(f"{mutant.name}: the tests cannot run:\n{done.stdout.decode()}{done.stderr.decode()}")
        return done.returncode > 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(original, "utf-8")


def main() -> None:
    """Try the mutants and print those that survive."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="known mutants whose name contains this text")
    parser.add_argument("--generate", nargs="+", metavar="FILE", help="generate mutants of these files instead")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="tests that should notice generated mutants")
    parser.add_argument("--limit", type=int, default=20, help="generated mutants per file")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.generate:
        files = options.generate
        mutants = [
            mutant for file in files for mutant in generated_mutants(file, options.tests, options.limit, options.seed)
        ]
    else:
        mutants = [mutant for mutant in known_mutants() if options.only in mutant.name]
    survivors = []
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "regard"
        ignored = shutil.ignore_patterns(".git", ".venv", "site", "__pycache__", ".mypy_cache", "results")
        shutil.copytree(ROOT, copy, ignore=ignored)
        for mutant in mutants:
            noticed = is_noticed(mutant, copy)
            print(f"{'noticed ' if noticed else 'SURVIVED'}  {mutant.name}", flush=True)
            survivors += [] if noticed else [mutant]
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants were noticed.")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
