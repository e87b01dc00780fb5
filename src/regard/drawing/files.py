"""A picture as a file: whole or not at all, the same picture the same bytes, and SVG that can be read in the dark."""

import errno
import io
import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from regard.drawing.palette import BY_NIGHT, PAPER
from regard.drawing.style import our_style
from regard.errors import ConfigError, DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
DOTS = 160  # per inch


def check(path: Path, option: str) -> None:
    """Refuse a file that matplotlib would not know how to write, before anything is computed."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{option} {path}: should end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")


def write(figure: "Figure", path: Path) -> None:
    """Write a picture, in the format that the path's ending names."""
    content = drawn(figure, path.suffix.lower()[1:])
    draft = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        try:
            draft.write_bytes(content)
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        remedy = "make space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "choose another place"
        raise DataError(f"{path}: cannot be written ({error.strerror}); {remedy}.") from None


def drawn(figure: "Figure", kind: str) -> bytes:
    """The bytes of a picture as `png`, `svg` or `pdf`."""
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    ground = "none" if kind == "svg" else PAPER  # an SVG stands on the page that it is in
    content = io.BytesIO()
    with our_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a letter that no font here has is a box
        figure.savefig(content, format=kind, dpi=DOTS, bbox_inches="tight", facecolor=ground, metadata=dated)
    return _by_night(content.getvalue().decode()).encode() if kind == "svg" else content.getvalue()


def _by_night(svg: str) -> str:
    """The same picture, whose colours follow the reader's wish for light or dark."""
    names = {colour: f"--r{n}" for n, colour in enumerate([PAPER, *BY_NIGHT])}
    day = "".join(f"{name}:{colour};" for colour, name in names.items())
    night = "".join(f"{names[colour]}:{dark};" for colour, dark in {PAPER: "#17181a", **BY_NIGHT}.items())
    style = f"svg{{{day}}}@media(prefers-color-scheme:dark){{svg{{{night}}}}}"
    found = re.compile("|".join(names), re.IGNORECASE)
    coloured = found.sub(lambda match: f"var({names[match[0].lower()]})", svg)
    return re.sub(r"(<svg\b[^>]*>)", lambda match: f"{match[1]}<style>{style}</style>", coloured, count=1)
