"""Registries: built-in, decorated and installed components, and what a user reads when a name is wrong."""

import sys
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from unittest.mock import patch

import pytest

from regard.errors import ConfigError
from regard.registry import Registry


def test_builtins_are_imported_on_first_use() -> None:
    sys.modules.pop("colorsys", None)
    registry: Registry[object] = Registry("things", {"rgb": "colorsys:rgb_to_hsv"})
    assert registry.names() == ["rgb"]
    assert "colorsys" not in sys.modules
    assert callable(registry["rgb"])
    assert "colorsys" in sys.modules


def test_a_decorator_adds_a_component() -> None:
    registry: Registry[type] = Registry("things")

    @registry.register("mine")
    class Mine:
        pass

    assert registry["mine"] is Mine
    assert list(registry) == ["mine"]


def test_a_name_is_registered_once() -> None:
    registry: Registry[object] = Registry("things", {"sqrt": "math:sqrt"})
    with pytest.raises(ConfigError, match="'sqrt' is already registered"):
        registry.register("sqrt")(object())


def test_an_unknown_name_suggests_the_nearest() -> None:
    registry: Registry[object] = Registry("things", {"rotary": "math:sqrt", "alibi": "math:sqrt"})
    with pytest.raises(ConfigError, match=r"'rotari' .*did you mean 'rotary'.*available: alibi, rotary"):
        registry["rotari"]


def test_installed_packages_add_entry_points() -> None:
    point = EntryPoint("square", "math:pow", "regard.things")
    with patch("importlib.metadata.entry_points", return_value=[point]) as entry_points:
        registry: Registry[object] = Registry("things")
        assert "square" in registry
        assert callable(registry["square"])
    entry_points.assert_called_once_with(group="regard.things")


def test_a_broken_entry_point_names_its_path() -> None:
    point = EntryPoint("broken", "no_such_module:Thing", "regard.things")
    with patch("importlib.metadata.entry_points", return_value=[point]):
        registry: Registry[object] = Registry("things")
        with pytest.raises(ConfigError, match=r"'broken'.*'no_such_module:Thing'.*reinstall or remove"):
            registry["broken"]


def test_a_builtin_wins_over_an_entry_point_of_the_same_name() -> None:
    point = EntryPoint("sqrt", "no_such_module:Thing", "regard.things")
    with patch("importlib.metadata.entry_points", return_value=[point]):
        registry: Registry[object] = Registry("things", {"sqrt": "math:sqrt"})
        assert registry.names() == ["sqrt"]
        assert callable(registry["sqrt"])


def test_the_modules_of_a_package_register_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "shapes_of_test"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from regard.registry import Registry\nSHAPES = Registry('shapes', package=__name__)\n"
    )
    (package / "round.py").write_text("from shapes_of_test import SHAPES\nSHAPES.register('circle')('a circle')\n")
    monkeypatch.syspath_prepend(tmp_path)
    shapes: Registry[str] = import_module("shapes_of_test").SHAPES
    assert "shapes_of_test.round" not in sys.modules
    assert shapes["circle"] == "a circle"
    assert shapes.names() == ["circle"]
