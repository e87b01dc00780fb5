"""Random dependency trees, and CoNLL-U sentences of a toy language."""

import random
from collections.abc import Sequence


def random_heads(words: int, draw: random.Random) -> list[int]:
    """Return the heads of a random tree, which may be non-projective: the number of each head, 0 for the root."""
    order = draw.sample(range(1, words + 1), words)
    heads = [0] * words
    for n, word in enumerate(order[1:], start=1):
        heads[word - 1] = draw.choice(order[:n])
    return heads


def conllu(words: Sequence[str], heads: Sequence[int]) -> str:
    """Return a sentence in CoNLL-U, with its final empty line."""
    rows = [
        "\t".join([str(n), word, "_", "_", "_", "_", str(head), "_", "_", "_"])
        for n, (word, head) in enumerate(zip(words, heads, strict=True), start=1)
    ]
    return "\n".join([f"# text = {' '.join(words)}", *rows, "", ""])


def distance(heads: Sequence[int], i: int, j: int, *, edges_only: bool = False) -> int:
    """Return rel(i, j) of Wang et al. 2019 by walking up from both words, which are numbered from 1."""
    above_i, above_j = up(heads, i), up(heads, j)
    depth_i, depth_j = len(above_i) - 1, len(above_j) - 1
    if j in above_i[: 2 if edges_only else None] or i in above_j[: 2 if edges_only else None]:
        return depth_i - depth_j
    return (1 if i > j else -1) * (depth_i + depth_j)


def up(heads: Sequence[int], word: int) -> list[int]:
    """Return a word and its ancestors, up to the root."""
    walked = [word]
    while heads[walked[-1] - 1]:
        walked.append(heads[walked[-1] - 1])
    return walked
