"""What settings, keys of prepared data and the command line need to know of a task, without torch."""

from collections.abc import Sequence
from typing import ClassVar, cast

from regard.registry import TASK_REGISTRY, ExampleType


class TaskInfo:
    """Names, defaults and help of a task; `regard.training.task.Task` adds what it does."""

    name: ClassVar[str]
    """The name in `regard train NAME` and in the registry."""
    title: ClassVar[str]
    """What is trained, as reports call it."""
    help: ClassVar[str]
    """One line for `regard train --help`."""
    metrics: ClassVar[tuple[str, ...]] = ("loss",)
    """Scores that validation.metric may name; all but the loss are better when they are higher."""
    supports_freezing: ClassVar[bool] = False
    """Whether training.freeze_encoder makes sense: there is a head to train alone."""
    unsupported_options: ClassVar[tuple[str, ...]] = ()
    """Options of `regard train` that do not apply to this task."""
    suggested_for: ClassVar[ExampleType | None] = None
    """Examples in a data file for which messages suggest this task."""
    reads_aligned_files: ClassVar[bool] = False
    """Whether `--source` and `--target` name its data, and both are needed."""
    chooses_size: ClassVar[bool] = False
    """Whether `--size` and `--minutes` decide the size of its network."""
    uses_chat_template: ClassVar[bool] = False
    """Whether its prepared data depend on the chat template of the model that training starts from."""
    key_name: ClassVar[str] = ""
    """Its name in keys of prepared data, if version 0.1 had another one."""


def task_info(name: str) -> type[TaskInfo]:
    """Return the description of a registered task.

    >>> task_info("gpt").title, task_info("translation").metrics
    ('language model', ('loss', 'bleu', 'chrf'))
    """
    return cast(type[TaskInfo], TASK_REGISTRY[name])


def suggested_tasks(types: Sequence[ExampleType]) -> list[tuple[str, ExampleType]]:
    """Return the tasks that are suggested for these types of examples, in the order of the types.

    >>> suggested_tasks(["pairs", "labeled", "documents"])
    [('translation', 'pairs'), ('classify', 'labeled'), ('gpt', 'documents')]
    """
    return [(name, type_) for type_ in types for name in TASK_REGISTRY if task_info(name).suggested_for == type_]


def sized_tasks() -> list[str]:
    """Return the names of the tasks that `--size` applies to.

    >>> "gpt" in sized_tasks(), "chat" in sized_tasks()
    (True, False)
    """
    return [name for name in TASK_REGISTRY.names() if task_info(name).chooses_size]
