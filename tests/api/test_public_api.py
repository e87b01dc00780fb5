"""The public names of the package: documented, typed without Any, imported lazily."""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import get_args, get_type_hints

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
                if public and (getattr(method, "__module__", "") or "").startswith("regard."):
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
    assert [name for name, function in functions.items() if "Any" in annotations(function)] == []


def annotations(function: Callable[..., object]) -> set[str]:
    """The words in the annotations of a signature as they are written."""
    signature = inspect.signature(function)
    written = [parameter.annotation for parameter in signature.parameters.values()] + [signature.return_annotation]
    text = " ".join(item if isinstance(item, str) else inspect.formatannotation(item) for item in written)
    text = text.replace("numpy.ndarray[tuple[typing.Any, ...],", "")  # NDArray, which is evaluated in dataclasses
    return set("".join(letter if letter.isalnum() else " " for letter in text).split())


ELSEWHERE = {  # classes in public signatures that are not in `regard.__all__`, and why
    "Continuations": "beam search calls a search tree with it while it runs",
    **dict.fromkeys(
        ("BatchRequest", "ContinuousBatch", "MaskFiller", "PrefixCache", "SharedWeights", "TextEncoder", "Translator"),
        "the server shares these parts of a model between its requests; programs call the methods of Model instead",
    ),
    "ParsedWord": "a parse is passed to the constructor of a trace, which `look` calls",
}


def test_classes_in_public_signatures_are_importable_from_regard() -> None:
    exported = {getattr(regard, name) for name in NAMES}
    missing = {
        f"{cls.__module__}.{cls.__qualname__} in {where}"
        for where, cls in classes_in_signatures()
        if cls not in exported and cls.__name__ not in ELSEWHERE
    }
    # settings have a package of their own, whose classes are the tables of the configuration reference
    missing = {entry for entry in missing if not entry.startswith("regard.config.")}
    assert sorted(missing) == []


def test_all_errors_are_importable_from_regard() -> None:
    errors, found = [regard.RegardError], set()
    while errors:
        found.add(errors[-1].__name__)
        errors += [error for error in errors.pop().__subclasses__() if error.__module__ == "regard.errors"]
    assert found <= set(regard.__all__)
    assert {"RunFolderError", "ServerError", "MissingPackageError", "UnwritableModelError"} <= found


def test_the_reference_page_has_all_public_names() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "python.md").read_text("utf-8")
    assert [name for name in NAMES if not re.search(rf"\bregard\.{name}\b", page)] == []
    listed = set(re.findall(r"^::: regard\.(\w+)", page, re.MULTILINE))
    assert listed <= set(regard.__all__)


def classes_in_signatures() -> Iterator[tuple[str, type[object]]]:
    """Classes of the package in the signatures of public functions and methods, and in the fields of classes."""
    for name in NAMES:
        member = getattr(regard, name)
        annotated = dict([item for item in public_functions() if item[0].partition(".")[0] == name])
        if inspect.isclass(member) and member.__module__.startswith("regard."):
            hints = type_hints(member)
            public = [hint for field, hint in hints.items() if not field.startswith("_")]
            yield from ((name, cls) for hint in public for cls in classes_in(hint))
            for attribute, value in inspect.getmembers_static(member):
                getter = value.fget if isinstance(value, property) else getattr(value, "func", None)
                if (
                    callable(getter)
                    and not attribute.startswith("_")
                    and (getattr(getter, "__module__", "") or "").startswith("regard.")
                ):
                    annotated[f"{name}.{attribute}"] = getter
        for where, function in annotated.items():
            yield from ((where, cls) for hint in type_hints(function).values() for cls in classes_in(hint))


def type_hints(annotated: object) -> dict[str, object]:
    """The annotations of a function or class; names that only type checkers import are imported here."""
    owners = annotated.__mro__ if inspect.isclass(annotated) else [inspect.unwrap(annotated)]  # type: ignore[arg-type]
    names: dict[str, object] = {}
    for module in {owner.__module__ for owner in owners if owner.__module__.startswith("regard.")}:
        names |= vars(sys.modules[module]) | imports_of_type_checkers(module)
    return get_type_hints(annotated, localns=names)


@cache
def imports_of_type_checkers(module: str) -> dict[str, object]:
    """The names that a module imports `if TYPE_CHECKING`."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(ast.Module(block.body, []), module, "exec"), names)
    return names


def classes_in(hint: object) -> Iterator[type[object]]:
    """The classes of this package that a type consists of."""
    if inspect.isclass(hint) and hint.__module__.startswith("regard."):
        yield hint
    for argument in get_args(hint):
        for part in argument if isinstance(argument, list) else [argument]:
            yield from classes_in(part)


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
