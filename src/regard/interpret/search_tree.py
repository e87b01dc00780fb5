"""The tree of a beam search: every hypothesis prefix that was considered, its scores and what happened to it."""

import math
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue
from torch import Tensor

from regard.data.tokenizer import Tokenizer
from regard.decoding.beam_search import Continuations
from regard.decoding.options import SearchOptions
from regard.decoding.results import Hypothesis

NodeState = Literal["root", "kept", "pruned", "finished", "open", "cut"]
"""What happened to a prefix:
kept        it was among the best of its step and was extended
pruned      other prefixes were better
finished    it ended with the end token
open        it was among the best when the search stopped early
cut         the maximum length was reached before any hypothesis finished, and it was returned unfinished
"""


@dataclass
class SearchNode:
    """One prefix: the path from the root to this node. Logarithms are natural."""

    number: int
    parent: int | None
    step: int  # at which its last token was generated; -1 for the root
    token_id: int | None
    token_log_probability: float  # of its last token
    log_probability: float  # of the path
    score: float  # log_probability after the length penalty, as if the hypothesis ended here
    rank: int  # among the continuations of its step
    state: NodeState = "pruned"
    on_best_path: bool = False


@dataclass
class SearchTree:
    """Observer of the beam search of one sentence."""

    search: SearchOptions
    nodes: list[SearchNode] = field(default_factory=list)
    _beams: list[SearchNode | None] = field(default_factory=list)
    _continuations: list[SearchNode | None] = field(default_factory=list)
    _finished: list[tuple[float, SearchNode]] = field(default_factory=list)

    def __post_init__(self) -> None:
        root = SearchNode(0, None, -1, None, 0.0, 0.0, 0.0, 0, "root")
        self.nodes, self._beams = [root], [root]

    def on_step(self, sentences: list[int], best: Continuations, kept: Tensor) -> None:
        """Add the continuations of one step."""
        rows = zip(
            best.scores[0].tolist(),
            best.origin[0].tolist(),
            best.token[0].tolist(),
            best.token_score[0].tolist(),
            strict=True,
        )
        self._continuations = [self._add(rank, *row) for rank, row in enumerate(rows)]
        self._beams = [self._continuations[index] for index in kept[0].tolist()]
        for node in self._beams:
            if node is not None:
                node.state = "kept"

    def on_finished(self, sentence: int, place: int, hypothesis: Hypothesis) -> None:
        """Mark a continuation that ended with the end token."""
        self._finish(self._continuations[place], hypothesis, "finished")

    def on_cut(self, sentence: int, beam: int, hypothesis: Hypothesis) -> None:
        """Mark a beam that was returned unfinished at the maximum length."""
        self._finish(self._beams[beam], hypothesis, "cut")

    def close(self) -> "SearchTree":
        """Mark the remaining beams and the path to the best hypothesis, after the search."""
        for beam in self._beams:
            if beam is not None and beam.state == "kept":
                beam.state = "open"
        if self._finished:
            node: SearchNode | None = max(self._finished, key=lambda pair: pair[0])[1]  # the first of equal scores
            while node is not None:
                node.on_best_path = True
                node = None if node.parent is None else self.nodes[node.parent]
        return self

    def path(self, node: SearchNode) -> list[int]:
        """Return the token ids from the root to a node."""
        ids: list[int] = []
        while node.parent is not None and node.token_id is not None:
            ids.append(node.token_id)
            node = self.nodes[node.parent]
        return ids[::-1]

    def as_dict(self, tokenizer: Tokenizer) -> dict[str, JsonValue]:
        """Return the search options and all nodes, for JSON."""
        tokens = tokenizer.ids_to_tokens([node.token_id for node in self.nodes if node.token_id is not None])
        return {
            "beam": self.search.beam,
            "length_penalty": self.search.length_penalty,
            "nodes": [
                {
                    "number": node.number,
                    "parent": node.parent,
                    "step": node.step,
                    "token_id": node.token_id,
                    "token": token,
                    "token_log_probability": node.token_log_probability,
                    "log_probability": node.log_probability,
                    "score": node.score,
                    "rank": node.rank,
                    "state": node.state,
                    "on_best_path": node.on_best_path,
                }
                for node, token in zip(self.nodes, ["", *tokens], strict=True)
            ],
        }

    def _add(
        self, rank: int, log_probability: float, origin: int, token: int, token_log_probability: float
    ) -> SearchNode | None:
        parent = self._beams[origin]
        if parent is None or not math.isfinite(log_probability):
            return None
        step = parent.step + 1
        score = self.search.score(log_probability, step + 1)
        node = SearchNode(
            len(self.nodes), parent.number, step, token, token_log_probability, log_probability, score, rank
        )
        self.nodes.append(node)
        return node

    def _finish(self, node: SearchNode | None, hypothesis: Hypothesis, state: NodeState) -> None:
        if node is not None:
            node.state, node.score = state, hypothesis.score  # includes the coverage penalty
            self._finished.append((hypothesis.score, node))


def greedy_tree(hypothesis: Hypothesis, end: int, search: SearchOptions) -> SearchTree:
    """Return the tree of a greedy search, which is a single path."""
    tree = SearchTree(search)
    ids = [*hypothesis.ids, end] if hypothesis.ended else hypothesis.ids
    total = 0.0
    for step, (token, log_probability) in enumerate(zip(ids, hypothesis.token_scores or [], strict=True)):
        total += log_probability
        score = search.score(total, step + 1)
        tree.nodes.append(
            SearchNode(step + 1, step, step, token, log_probability, total, score, 0, "kept", on_best_path=True)
        )
    tree.nodes[0].on_best_path = True
    tree.nodes[-1].state = "finished" if hypothesis.ended else "cut"
    return tree
