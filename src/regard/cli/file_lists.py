"""Several files after one option, as shells expand patterns: `--data a.txt b.txt` means `--data a.txt --data b.txt`."""

from collections.abc import Mapping, Sequence


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
