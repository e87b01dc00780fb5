"""`regard lab`: claims of the paper, checked."""

from typing import Annotated

import typer

from regard.errors import ConfigError
from regard.labs import LABS


def run(
    name: Annotated[str | None, typer.Argument(help="The lab to run; without it, the labs are listed.")] = None,
) -> None:
    """Run a lab: a claim of the paper, checked on real numbers."""
    if name is None:
        width = max(len(lab) for lab in LABS)
        for lab in LABS.values():
            print(f"{lab.name.ljust(width)}  {lab.claim}")
        return
    if name not in LABS:
        from regard.config.complaint import nearest

        raise ConfigError(f"there is no lab {name!r}{nearest(name, LABS)}; the labs are {', '.join(LABS)}.")
    print(LABS[name].run())
