"""How commands are found, parsed and explained: lazy imports, several files after one option, the text of `--help`.

Shells expand patterns, so that `--data a.txt b.txt` means `--data a.txt --data b.txt`. Help texts are printed as they
are, and flags without a type. The help of a group looks like that of a command, but is written here without rich, whose
import takes longer than everything else in `regard --help`.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from regard.cli.options import FILE, PANELS
from regard.errors import explain_missing_packages

_DIM, _NAME, _RESET = "\x1b[2m", "\x1b[1;36m", "\x1b[0m"  # styles of a terminal: frames, names of options
_ANSI = re.compile(r"\x1b\[[\d;]*m")


def repeat_file_options(
    arguments: Sequence[str], takes_value: Mapping[str, bool], file_options: frozenset[str]
) -> list[str]:
    """Return the arguments of a command with each file option repeated for all files that follow it.

    If there is no other argument without an option, the last one is not a file but the argument of the command, as in
    `regard train --data a.txt gpt`.

    Args:
        arguments: what the user typed.
        takes_value: all options of the command, and whether a value follows.
        file_options: options that take several files.

    >>> options = {"--data": True, "--quiet": False}
    >>> repeat_file_options(["gpt", "--data", "a", "b", "--quiet"], options, frozenset(["--data"]))
    ['gpt', '--data', 'a', '--data', 'b', '--quiet']
    >>> repeat_file_options(["--data", "a", "b", "gpt"], options, frozenset(["--data"]))
    ['--data', 'a', '--data', 'b', 'gpt']
    """
    parts: list[list[str]] = []  # options with their values, and other arguments
    extra: list[int] = []  # parts that may be further files
    has_argument, option = False, ""
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            rest = list(remaining)
            has_argument = has_argument or bool(rest)
            parts.append([argument, *rest])
        elif argument.startswith("-") and argument != "-":
            option = argument if argument in file_options else ""
            value = next(remaining, None) if takes_value.get(argument, False) else None
            parts.append([argument] if value is None else [argument, value])
        elif option:
            extra.append(len(parts))
            parts.append([option, argument])
        else:
            has_argument = True
            parts.append([argument])
    if extra and not has_argument:
        parts[extra[-1]] = parts[extra[-1]][1:]
    return [argument for part in parts for argument in part]


class Command(TyperCommand):
    """A command; brackets in its help, as in `mine[en-it]=folder`, are not markup of rich.

    Several files may follow one file option, and the panels of all commands have the same order.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.sort(key=_panel_number)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        options = [option for option in self.get_params(ctx) if isinstance(option, TyperOption)]
        takes_value = {name: not option.is_flag for option in options for name in option.opts}
        files = [name for option in options if option.multiple and option.metavar == FILE for name in option.opts]
        return super().parse_args(ctx, repeat_file_options(args, takes_value, frozenset(files)))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a missing package is an error with one message."""
        with explain_missing_packages(f"regard {self.name}"):
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # of click, or of the copy of it in newer typer
        """Write the help."""
        with _plain_help(self, self.get_params(ctx), self):
            super().format_help(ctx, formatter)


class Group(TyperGroup):
    """A group of commands."""

    def summaries(self) -> dict[str, str]:
        """Return the description of each command."""
        return {name: (command.help or "").partition("\n\n")[0] for name, command in self.commands.items()}

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        panels: dict[str, list[list[str]]] = {"Options": []}
        for option in self.get_params(ctx):
            if not isinstance(option, TyperOption) or option.hidden:
                continue
            names = [name for name in option.opts if name.startswith("--")]
            short = [name for name in option.opts if not name.startswith("--")]
            row = [",".join(names), ",".join(short), option.metavar or "", option.help or ""]
            panels.setdefault(option.rich_help_panel or "Options", []).append(row)
        panels["Commands"] = [list(row) for row in self.summaries().items()]
        width = get_terminal_size().columns
        lines = ["", f" {self.get_usage(ctx)}", "", *(f" {line}" for line in wrap(self.help or "", width - 2)), ""]
        for title, rows in panels.items():
            lines += _panel(title, rows, width) if rows else []
        text = "\n".join(lines)
        print(text if _shows_colors() else _ANSI.sub("", text))


class CommandEntry(NamedTuple):
    """Where a command is defined, and its description in the list of commands."""

    path: str
    """`module:function` of a command, `module:app` of a group."""
    summary: str
    """The first paragraph of its help, so that the list is printed without importing it."""
    examples: str = "EXAMPLES"
    """The name of the end of its `--help` in the same module."""
    command_class: str = ""
    """The name of its class in the same module; `Command` by default."""

    def load(self, name: str) -> Any:
        """Import the command."""
        module_name, _, attribute = self.path.partition(":")
        module = import_module(module_name)
        target = getattr(module, attribute)
        if not isinstance(target, typer.Typer):
            app = typer.Typer(add_completion=False)
            command_class = getattr(module, self.command_class) if self.command_class else Command
            app.command(name, cls=command_class, epilog=getattr(module, self.examples))(target)
            return typer.main.get_command(app)
        group = typer.main.get_group(target)
        group.name = name
        return group


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name, each imported when it is first looked up."""

    def __init__(self, entries: Mapping[str, CommandEntry]) -> None:
        self._entries: dict[str, Any] = dict(entries)

    def __getitem__(self, name: str) -> Any:
        entry = self._entries[name]
        if isinstance(entry, CommandEntry):
            entry = self._entries[name] = entry.load(name)
        return entry

    def __setitem__(self, name: str, command: Any) -> None:
        self._entries[name] = command

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _panel_number(parameter: object) -> int:
    """Return the place of a parameter among the panels; those without one, such as arguments, come first."""
    panel = getattr(parameter, "rich_help_panel", None)
    return PANELS.index(panel) if panel in PANELS else -1


@contextmanager
def _plain_help(owner: Any, parameters: Any, *commands: Any) -> Iterator[None]:
    """Escape brackets in all texts of a help page and hide the type of flags, and restore all.

    The opposite of a flag is named after its description: a column of its own would cut names short.
    """
    from rich.markup import escape

    changes: list[tuple[Any, str, Any]] = []
    for part in {id(part): part for part in (owner, *commands, *parameters)}.values():
        opposite = ", ".join(part.secondary_opts) if isinstance(part, TyperOption) else ""
        if opposite:
            changes.append((part, "secondary_opts", []))
        changes += [
            (part, name, escape(f"{text} Opposite: {opposite}." if opposite else text))
            for name in ("help", "epilog")
            if (text := getattr(part, name, None)) is not None
        ]
        if isinstance(part, TyperOption) and part.is_flag and part.metavar is None:
            changes.append((part, "metavar", ""))
    originals = [(part, name, getattr(part, name)) for part, name, _ in changes]
    try:
        for part, name, value in changes:
            setattr(part, name, value)
        yield
    finally:
        for part, name, value in originals:
            setattr(part, name, value)


def _shows_colors() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _panel(title: str, rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield the lines of a box with a table, whose last column is wrapped; columns without text are left out.

    >>> rows = [["--beam", "Width of the beam search."]]
    >>> print("\\n".join(_ANSI.sub("", line) for line in _panel("Options", rows, 36)))
    ╭─ Options ────────────────────────╮
    │ --beam  Width of the beam        │
    │         search.                  │
    ╰──────────────────────────────────╯
    """
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    indent = sum(size + 2 for size in widths if size)
    inner = width - 4
    yield f"{_DIM}╭─ {title} {'─' * (inner - len(title) - 1)}╮{_RESET}"
    for *cells, description in rows:
        names = "".join(f"{cell:{size}}  " for cell, size in zip(cells, widths, strict=True) if size)
        for number, line in enumerate(wrap(description, max(20, inner - indent)) or [""]):
            shown = f"{_NAME}{names}{_RESET}" if number == 0 else " " * indent
            yield f"{_DIM}│{_RESET} {shown}{line:{max(0, inner - indent)}} {_DIM}│{_RESET}"
    yield f"{_DIM}╰{'─' * (width - 2)}╯{_RESET}"
