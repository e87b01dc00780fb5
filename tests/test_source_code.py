"""The source code keeps a file to one idea, and a class name to one class."""

import ast
import re
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "regard"
MAX_LINES = 400


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert {str(path.relative_to(SOURCE)): length for path, length in lengths.items() if length > MAX_LINES} == {}


def test_no_two_classes_have_the_same_name() -> None:
    files = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                files[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in files.items() if len(paths) > 1} == {}


def test_variables_are_named_after_what_they_hold() -> None:
    names = r"(?:\w+, )*(?:one|each|several)(?:, \w+)*"
    bound = re.compile(rf"\bfor {names} in\b|\blambda {names}:|^ *{names} = ", re.MULTILINE)
    texts = {path: path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    assert {
        str(path.relative_to(SOURCE)): match[0] for path, text in texts.items() if (match := bound.search(text))
    } == {}
