"""`--help` of the commands: texts are printed as they are, and flags without a type."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption

from regard.cli.file_lists import repeat_file_options
from regard.cli.options import FILE


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
