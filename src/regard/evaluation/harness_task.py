"""Multiple-choice tasks of the lm-evaluation-harness: YAML files whose data are local.

    task: capitals
    dataset_path: json
    dataset_kwargs: {data_files: {test: capitals.jsonl}}
    output_type: multiple_choice
    test_split: test
    doc_to_text: "Question: {{question}}\\nAnswer:"
    doc_to_choice: "{{choices}}"
    doc_to_target: "{{answer}}"

Templates are programs in Jinja; they run in the sandbox of chat templates, within its limits. Nothing else of a file is
executed: tasks with functions in Python are refused.
"""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, TemplateError

from regard.data.chat_sandbox import BUDGET, Budget, LimitedEnvironment
from regard.errors import DataError, MissingPackageError
from regard.evaluation.multiple_choice import DELIMITER, Question, make_question, read_objects, read_questions
from regard.files import read_regular_file

SUFFIXES = (".yaml", ".yml")
MAX_TASK_BYTES = 2**20
USED_KEYS = {
    "task", "dataset_path", "dataset_kwargs", "output_type", "test_split", "validation_split", "doc_to_text",
    "doc_to_choice", "doc_to_target", "target_delimiter", "description", "num_fewshot",
}  # fmt: skip
OTHER_KEYS = {  # that change nothing here: splits for examples in the prompt, names, and metrics of other kinds
    "tag", "group", "metadata", "dataset_name", "training_split", "fewshot_split", "fewshot_delimiter", "task_alias",
    "fewshot_config", "metric_list", "repeats", "should_decontaminate", "doc_to_decontamination_query",
}  # fmt: skip


def read_task(file: str) -> tuple[str, list[Question]]:
    """Read the questions of a task, from a YAML file of the harness or from JSON Lines; returns its name too."""
    if Path(file).suffix.lower() not in SUFFIXES:
        return Path(file).name.partition(".")[0], read_questions(file)
    task = _Task(Path(file))
    return task.name, task.questions()


class _Task:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = _load(path)
        self.name = str(self.settings.get("task", path.stem))
        unknown = [key for key in self.settings if key not in USED_KEYS | OTHER_KEYS]
        if unknown:
            raise self._error(f"has the key {unknown[0]}, which is not supported here", "run it with lm_eval instead")
        if self.settings.get("output_type") != "multiple_choice":
            kind = self.settings.get("output_type", "generate_until")
            raise self._error(f"is of the type {kind}, not multiple_choice", "run it with lm_eval instead")
        if self.settings.get("num_fewshot"):
            raise self._error("has num_fewshot above 0", "set it to 0, or run it with lm_eval instead")

    def questions(self) -> list[Question]:
        """The questions of the test data, or of the validation data if there is none."""
        questions = [
            make_question(
                self._text("description", entry, location) + self._text("doc_to_text", entry, location),
                self._choices(entry, location),
                self._target(entry, location),
                location,
                delimiter=str(self.settings.get("target_delimiter", DELIMITER)),
            )
            for file in self._files()
            for entry, location in read_objects(file)
        ]
        if not questions:
            raise self._error("has no questions in its data", "add some")
        return questions

    def _files(self) -> list[str]:
        split = self.settings.get("test_split") or self.settings.get("validation_split")
        files: Any = self.settings.get("dataset_kwargs")
        files = files.get("data_files") if isinstance(files, Mapping) else None
        if self.settings.get("dataset_path") != "json" or files is None or split is None:
            raise self._error(
                "does not name local data",
                "set dataset_path: json, dataset_kwargs: {data_files: {test: FILE.jsonl}} and test_split: test",
            )
        if isinstance(files, Mapping):
            files = files.get(split)
        listed = [files] if isinstance(files, str) else files
        if not isinstance(listed, list) or not listed or not all(isinstance(name, str) for name in listed):
            raise self._error(f"has no data_files for its split {split!r}", "add them")
        in_same_folder = [self.path.parent / name for name in listed]
        return [str(path if path.exists() else name) for path, name in zip(in_same_folder, listed, strict=True)]

    def _text(self, key: str, entry: Mapping[str, object], location: str) -> str:
        value = self._field(key, entry, location, "" if key == "description" else None)
        if not isinstance(value, str):
            raise self._error(f"has a {key} that is not a text", "run it with lm_eval instead")
        return value

    def _choices(self, entry: Mapping[str, object], location: str) -> object:
        value = self._field("doc_to_choice", entry, location)
        if isinstance(value, Mapping):
            value = list(value.values())
        if not isinstance(value, str):
            return value
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise DataError(f"{location}: doc_to_choice of {self.path} gives {value!r}, which is no list.") from None

    def _target(self, entry: Mapping[str, object], location: str) -> object:
        return self._field("doc_to_target", entry, location)

    def _field(self, key: str, entry: Mapping[str, object], location: str, default: object = None) -> object:
        """A field of the entry, a rendered template, or a constant."""
        value = self.settings.get(key, default)
        if value is None:
            raise self._error(f"has no {key}", "add it")
        if not isinstance(value, str):
            return value
        return entry[value] if value in entry else self._render(key, value, entry, location)

    def _render(self, key: str, source: str, entry: Mapping[str, object], location: str) -> str:
        token = BUDGET.set(Budget(("", ""), len(source), len(str(entry))))
        try:
            return _environment().from_string(source).render(entry)
        except (TemplateError, RecursionError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            problem = str(error) or type(error).__name__
            raise DataError(f"{location}: {key} of {self.path} fails ({problem}); correct one of them.") from None
        finally:
            BUDGET.reset(token)

    def _error(self, problem: str, remedy: str) -> DataError:
        return DataError(f"{self.path}: {problem}; {remedy}.")


def _environment() -> LimitedEnvironment:
    """Jinja as the harness sets it up: white space is kept, and a name that is missing is an error."""
    environment = LimitedEnvironment()
    environment.trim_blocks = environment.lstrip_blocks = False
    environment.keep_trailing_newline = True
    environment.undefined = StrictUndefined
    return environment


def _load(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError:
        raise MissingPackageError(
            f"{path}: YAML needs the package pyyaml; install it with: pip install pyyaml, or write the questions as "
            "JSON Lines."
        ) from None
    try:
        content = read_regular_file(path, MAX_TASK_BYTES)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path.") from None
    try:
        # aliases of aliases can make a small file a value that fills the memory when it is printed
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(content, Loader=yaml.SafeLoader)):
            raise ValueError("it has an alias, such as *name")
        settings = yaml.safe_load(content)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        problem = " ".join(str(error).split())
        hint = "functions in Python are not run; use lm_eval" if "!function" in problem else "correct it"
        raise DataError(f"{path}: is not YAML that can be read here ({problem}); {hint}.") from None
    if not isinstance(settings, dict):
        raise DataError(f"{path}: should have keys such as task and doc_to_text; pass a task of the harness.")
    return settings
