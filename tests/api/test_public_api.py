"""The public names of the package: documented, typed without Any, imported lazily."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import get_type_hints

import pytest

import regard
from regard.api.generation import GenerateKeywords
from regard.api.translation import TranslateKeywords

NAMES = [name for name in regard.__all__ if not name.startswith("__")]


def public_functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """All public functions, and the public methods of public classes that this package defines."""
    for name in NAMES:
        member = getattr(regard, name)
        if inspect.isfunction(member):
            yield name, member
        elif inspect.isclass(member):
            for method_name, method in inspect.getmembers(member, inspect.isroutine):
                public = not method_name.startswith("_") or method_name == "__init__"
                if public and getattr(method, "__module__", "").startswith("regard."):
                    yield f"{name}.{method_name}", getattr(method, "__func__", method)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_a_docstring(name: str) -> None:
    member = getattr(regard, name)
    assert (inspect.getdoc(member) or "").strip()


def test_every_public_function_has_a_docstring_and_no_any_in_its_signature() -> None:
    functions = dict(public_functions())
    assert {"load", "train", "Model.translate", "Model.look", "Translation.as_dict"} <= functions.keys()
    undocumented = [name for name, function in functions.items() if not name.endswith("__") and not function.__doc__]
    assert undocumented == []
    untyped = [name for name, function in functions.items() if "Any" in annotations(function)]
    assert set(untyped) <= {"Trace.as_dict", "Trace.outline"}  # JSON documents


def annotations(function: Callable[..., object]) -> set[str]:
    """The words in the annotations of a signature as they are written."""
    signature = inspect.signature(function)
    written = [parameter.annotation for parameter in signature.parameters.values()] + [signature.return_annotation]
    text = " ".join(item if isinstance(item, str) else inspect.formatannotation(item) for item in written)
    return set("".join(letter if letter.isalnum() else " " for letter in text).split())


@pytest.mark.parametrize(
    ("method", "keywords"),
    [
        (regard.Model.translate, TranslateKeywords),
        (regard.Model.generate, GenerateKeywords),
        (regard.Model.stream, GenerateKeywords),
    ],
)
def test_overloads_have_the_keywords_of_the_implementation(
    method: Callable[..., object], keywords: type[object]
) -> None:
    parameters = inspect.signature(method).parameters.values()
    implemented = {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    assert implemented == set(keywords.__annotations__)


def test_the_detailed_methods_have_all_keywords_of_the_simple_ones() -> None:
    for name in ("translate", "generate", "score", "tag", "embed"):
        simple, detailed = (inspect.signature(getattr(regard.Model, n)) for n in (name, f"{name}_detailed"))
        for parameter in list(simple.parameters.values())[2:]:
            assert detailed.parameters[parameter.name].default == parameter.default


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = (
        "import sys, regard\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'tokenizers', 'ctranslate2'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
        "assert set(regard.__all__) - {'__version__'} <= set(dir(regard))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_results_and_errors_are_importable_without_torch() -> None:
    program = (
        "import sys\n"
        "from regard import Classification, ConfigError, Generation, ModelError, Translation\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_type_hints_of_the_model_resolve() -> None:
    assert get_type_hints(regard.load)["return"] is regard.Model
