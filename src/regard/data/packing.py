"""Packing: things of different lengths into as few rows of one length as may be."""

import numpy as np
from numpy.typing import NDArray


def pack(lengths: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    """The row that each thing goes into: long ones first, each where it leaves the least space (best fit decreasing).

    Lengths are from 1 to `capacity`.

    >>> pack(np.array([3, 5, 2, 4, 1]), capacity=5).tolist()
    [2, 0, 2, 1, 1]
    """
    order = np.argsort(-lengths, kind="stable")
    rows = np.empty(len(lengths), np.int64)
    full = int((lengths == capacity).sum())
    rows[order[:full]] = np.arange(full)
    count = full
    with_space: list[list[int]] = [[] for _ in range(capacity)]  # by how much
    spaces = 0  # bit n is set where there is a row with space n
    for thing, length in zip(order[full:].tolist(), lengths[order[full:]].tolist(), strict=True):
        if fitting := spaces >> length:
            space = length + (fitting & -fitting).bit_length() - 1  # the lowest bit: the least space that is enough
            row = with_space[space].pop()
            if not with_space[space]:
                spaces ^= 1 << space
        else:
            row, space = count, capacity
            count += 1
        rows[thing] = row
        if rest := space - length:
            with_space[rest].append(row)
            spaces |= 1 << rest
    return rows
