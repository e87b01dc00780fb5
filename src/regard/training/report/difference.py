"""Marking what differs between an output and its reference."""

import re
import unicodedata
from difflib import SequenceMatcher
from itertools import groupby

from regard.training.report.markup import Markup, joined, tag

MOST = 300  # words; comparing takes more than the product of both numbers


def marked(output: str, reference: str) -> Markup:
    """The output with the words that are not in their place in the reference marked.

    >>> marked("ti voglio bene", "ti amo")
    'ti <mark>voglio bene</mark>'
    """
    ours, theirs = _pieces(output), _pieces(reference)
    words = [place for place, piece in enumerate(ours) if not piece.isspace()]
    wanted = [piece for piece in theirs if not piece.isspace()]
    if not words or not wanted or max(len(words), len(wanted)) > MOST:
        return joined(output)
    differs = [True] * len(ours)
    matches = SequenceMatcher(None, [ours[place] for place in words], wanted, autojunk=False)
    for start, _, length in matches.get_matching_blocks():
        for place in words[start : start + length]:
            differs[place] = False
    for place, piece in enumerate(ours):
        if piece.isspace():  # a space is marked only between two marked words
            differs[place] = 0 < place < len(ours) - 1 and differs[place - 1] and differs[place + 1]
    content: list[str] = []
    for marking, places in groupby(range(len(ours)), key=differs.__getitem__):
        stretch = "".join(ours[place] for place in places)
        content.append(tag("mark", stretch) if marking else stretch)
    return joined(*content)


def _pieces(text: str) -> list[str]:
    """Words, spaces and punctuation; where the script has no spaces, characters."""
    if re.search(r"\s", text.strip()):
        return re.findall(r"\s+|\w+|[^\w\s]", text)
    pieces: list[str] = []
    for character in text:
        if pieces and unicodedata.category(character).startswith("M"):
            pieces[-1] += character  # an accent stays on its letter
        else:
            pieces.append(character)
    return pieces
