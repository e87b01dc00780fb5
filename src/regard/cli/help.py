"""How commands are parsed and explained: several files after one option, and the text of `--help`.

Shells expand patterns, so that `--data a.txt b.txt` means `--data a.txt --data b.txt`. Help texts are printed as they
are, and flags without a type.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption

from regard.cli.options import FILE
from regard.errors import explain_missing_packages


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

    Several files may follow one file option.
    """

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
    """A group of commands; their descriptions are not markup either."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        with _plain_help(self, self.get_params(ctx), *self.commands.values()):
            super().format_help(ctx, formatter)


@contextmanager
def _plain_help(owner: Any, parameters: Any, *commands: Any) -> Iterator[None]:
    """Escape brackets in all texts of a help page and hide the type of flags, and restore both."""
    from rich.markup import escape

    changes: list[tuple[Any, str, Any]] = []
    for part in {id(part): part for part in (owner, *commands, *parameters)}.values():
        changes += [
            (part, name, escape(text)) for name in ("help", "epilog") if (text := getattr(part, name, None)) is not None
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
