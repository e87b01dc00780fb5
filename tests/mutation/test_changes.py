"""Generated mutants: which changes are made, and that live functions get them."""

import ast
import importlib.util
from pathlib import Path

import packages
import pytest
from changes import changed_tree, possible_changes
from mutate import ROOT, known_mutants
from packages import replace_code

SOURCE = '''
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

LIMIT: "1 + 1" = 3

def clamp(x: int, items: list[int]) -> int:
    """Return 1 + 1."""
    if not items:
        raise ValueError(f"{1 + 1}")
    items.append(x)
    for a, b in zip(items, items, strict=True):
        x += a - b
    return min(x, LIMIT) if x > 0 and True else 0
'''


def test_operators_constants_conditions_and_calls_are_changed_but_not_annotations_and_messages() -> None:
    changes = [f"{change.line} {change.what}" for change in possible_changes(ast.parse(SOURCE))]
    assert sorted(changes) == sorted(
        [
            "7 3 -> 4", "11 condition negated", "13 call of items.append removed", "15 Add -> Sub", "15 Sub -> Add",
            "16 condition negated", "16 And -> Or", "16 Gt -> GtE", "16 0 -> 1", "16 True -> False", "16 min -> max",
            "16 0 -> 1",
        ]
    )  # fmt: skip
    for number in range(len(changes)):
        tree, _ = changed_tree(SOURCE, number)
        assert ast.unparse(tree) != ast.unparse(ast.parse(SOURCE))


@pytest.mark.slow
def test_live_functions_get_the_changed_code(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("def double(x):\n    return x * 2\n", "utf-8")
    specification = importlib.util.spec_from_file_location("module", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    double = module.double
    tree, change = changed_tree(path.read_text("utf-8"), 0)
    assert (change.what, double(6)) == ("Mult -> Div", 12)
    assert replace_code(path, tree)
    assert double(6) == 3


@pytest.mark.slow
def test_tests_that_import_a_module_come_first() -> None:
    tests = packages.tests_of("src/regard/training/schedules.py")
    assert tests[0] == "tests/training/test_schedules.py"
    assert "tests/training/test_resume.py" in tests
    assert len(tests) == len(set(tests))


def test_known_mutants_change_one_place_and_name_tests() -> None:
    names = [mutant.name for mutant in known_mutants()]  # ends with a message if a text is not there once
    assert len(names) == len(set(names))
    for mutant in known_mutants():
        ast.parse(mutant.content)
        assert mutant.content != (ROOT / mutant.file).read_text("utf-8")
        assert all((ROOT / test.partition("::")[0]).exists() for test in mutant.tests), mutant.name
