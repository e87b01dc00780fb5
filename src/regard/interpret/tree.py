"""The tree of a beam search: every beginning that was looked at, what became of it, and what it was worth."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from regard.data.tokenizer import Tokenizer
from regard.decoding.beam_search import Continuations
from regard.decoding.options import SearchOptions
from regard.decoding.results import Hypothesis

State = Literal["root", "kept", "pruned", "finished", "open", "cut"]
"""What became of a beginning:
kept        it was among the K best, and was continued
pruned      others were better
finished    it ended, and was kept aside
open        the search ended, as nothing could win any more, while this was among the K best
cut         nothing had ended when there was no more room, and it was taken as it was
"""


@dataclass
class Node:
    """One beginning: the path from the root to here."""

    number: int
    parent: int | None
    step: int  # at which its last token was written; the root's is −1
    token: int | None
    log_probability: float  # of its last token
    score: float  # the sum along the path, before the length penalty
    worth: float  # after it, as if the sentence ended here
    rank: int  # among the continuations of its step
    state: State = "pruned"
    best: bool = False  # whether it is on the way to what was chosen


@dataclass
class Tree:
    """An observer of the search for one sentence."""

    search: SearchOptions
    nodes: list[Node] = field(default_factory=list)
    _open: list[Node | None] = field(default_factory=list)
    _step: list[Node | None] = field(default_factory=list)
    _ended: list[tuple[float, Node]] = field(default_factory=list)

    def __post_init__(self) -> None:
        root = Node(0, None, -1, None, 0.0, 0.0, 0.0, 0, "root")
        self.nodes, self._open = [root], [root]

    def continued(self, sentences: list[int], best: Continuations, kept: Tensor) -> None:
        """Note all continuations of a step."""
        rows = zip(
            best.scores[0].tolist(),
            best.origin[0].tolist(),
            best.token[0].tolist(),
            best.token_score[0].tolist(),
            strict=True,
        )
        self._step = [self._grown(rank, *row) for rank, row in enumerate(rows)]
        self._open = [self._step[place] for place in kept[0].tolist()]
        for node in self._open:
            if node is not None:
                node.state = "kept"

    def finished(self, sentence: int, place: int, hypothesis: Hypothesis) -> None:
        """Note one that ended."""
        self._aside(self._step[place], hypothesis, "finished")

    def cut(self, sentence: int, beam: int, hypothesis: Hypothesis) -> None:
        """Note one that was taken as it was."""
        self._aside(self._open[beam], hypothesis, "cut")

    def close(self) -> "Tree":
        """The search is over: mark what is still open, and the way to the best."""
        for left in self._open:
            if left is not None and left.state == "kept":
                left.state = "open"
        if self._ended:
            node: Node | None = max(self._ended, key=lambda ended: ended[0])[1]  # the first, where several are equal
            while node is not None:
                node.best = True
                node = None if node.parent is None else self.nodes[node.parent]
        return self

    def path(self, node: Node) -> list[int]:
        """The tokens from the root to a node."""
        found: list[int] = []
        while node.parent is not None and node.token is not None:
            found.append(node.token)
            node = self.nodes[node.parent]
        return found[::-1]

    def as_dict(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """Everything, for JSON; natural logarithms."""
        pieces = tokenizer.ids_to_tokens([node.token for node in self.nodes if node.token is not None])
        return {
            "width": self.search.width,
            "length_penalty": self.search.length_penalty,
            "nodes": [
                {
                    "number": node.number,
                    "parent": node.parent,
                    "step": node.step,
                    "id": node.token,
                    "token": piece,
                    "log_probability": node.log_probability,
                    "score": node.score,
                    "worth": node.worth,
                    "rank": node.rank,
                    "state": node.state,
                    "best": node.best,
                }
                for node, piece in zip(self.nodes, ["", *pieces], strict=True)
            ],
        }

    def _grown(self, rank: int, score: float, origin: int, token: int, token_score: float) -> Node | None:
        parent = self._open[origin]
        if parent is None or not math.isfinite(score):
            return None
        step = parent.step + 1
        worth = self.search.worth(score, step + 1)
        node = Node(len(self.nodes), parent.number, step, token, token_score, score, worth, rank)
        self.nodes.append(node)
        return node

    def _aside(self, node: Node | None, hypothesis: Hypothesis, state: State) -> None:
        if node is not None:
            node.state, node.worth = state, hypothesis.score  # which has what coverage costs in it as well
            self._ended.append((hypothesis.score, node))


def chain(hypothesis: Hypothesis, end: int, search: SearchOptions) -> Tree:
    """The tree of a greedy search: one path."""
    tree = Tree(search)
    tokens = [*hypothesis.ids, end] if hypothesis.ended else hypothesis.ids
    total = 0.0
    for step, (token, score) in enumerate(zip(tokens, hypothesis.token_scores or [], strict=True)):
        total += score
        worth = search.worth(total, step + 1)
        tree.nodes.append(Node(step + 1, step, step, token, score, total, worth, 0, "kept", best=True))
    tree.nodes[0].best = True
    tree.nodes[-1].state = "finished" if hypothesis.ended else "cut"
    return tree
