"""What is kept from training, to measure it by: pairs chosen by their text, or the end of a text."""

import hashlib
from dataclasses import replace

import numpy as np

from regard.data.corpus import Pair
from regard.data.store import TokenColumn, TokenStore


def is_held_out(pair: Pair, share: float) -> bool:
    """Whether a pair is for validation: by a hash of its text, so that equal pairs are on the same side.

    >>> sum(is_held_out(Pair(str(n), "x"), 0.1) for n in range(1000))
    111
    """
    if share == 0:
        return False
    digest = hashlib.blake2b(f"{pair.source}\t{pair.target}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < share * 2**64


def split_tail(store: TokenStore, share: float) -> tuple[TokenStore, TokenStore]:
    """A store of one column cut in two, so that the second part is the last `share` of all tokens."""
    (column,) = store.columns
    cut = round(len(column.ids) * (1 - share))
    whole = int((column.ends <= cut).sum())  # documents that end before the cut
    first, last = column.ends[:whole].tolist(), column.ends[whole:] - cut
    if len(last) and cut > (first[-1] if first else 0):
        first.append(cut)  # the document that the cut goes through is in both parts
    return (
        replace(store, columns=(TokenColumn(column.ids[:cut], np.asarray(first, np.int64)),)),
        replace(store, columns=(TokenColumn(column.ids[cut:], np.asarray(last, np.int64)),)),
    )
