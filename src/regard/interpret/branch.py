"""A branch of the search that was not taken, as a trace of its own: what was looked at on the way to any node."""

from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.interpret.written import Written

if TYPE_CHECKING:
    from regard.interpret.trace import Trace


def branch(trace: "Trace", number: int) -> "Trace":
    """The trace of the tokens from the root to a node, read as the search read them."""
    from regard.interpret.trace import Trace

    if trace.tree is None:
        raise InputError("Nothing was searched here, so there is no tree; look at a translation that was not forced.")
    if not 0 < number < len(trace.tree.nodes):
        raise InputError(f"There is no node {number}; the nodes after the root are 1 to {len(trace.tree.nodes) - 1}.")
    path = trace.tree.path(trace.tree.nodes[number])
    read = [trace.subject.config.tokens.start, *path[:-1]]
    written = Written(trace.written.source, read, path, len(path), ended=False, facts=trace.written.facts)
    return Trace(trace.subject, trace.text, trace.wish, written, trace.subject.target.decode(path))
