"""What the report shows of outputs: the best, the worst, and some drawn at random."""

from collections.abc import Mapping, Sequence

from regard.training.state import generator

SHOWN = 5  # in each list
Row = Mapping[str, str | float]


def ranked(rows: Sequence[Row], ratings: Sequence[float], longer: str) -> dict[str, list[Row]]:
    """Rows by their ratings; of equally good ones, that with the longer text called `longer` comes first.

    >>> rows = [{"source": "a"}, {"source": "bb"}, {"source": "c"}]
    >>> [row["source"] for row in ranked(rows, [0.5, 0.5, 0.9], "source")["best"]]
    ['c', 'bb', 'a']
    """
    order = sorted(range(len(rows)), key=lambda n: (-ratings[n], -len(str(rows[n][longer]))))
    chosen = generator(0).permutation(len(rows))[:SHOWN]
    best, worst = [rows[n] for n in order[:SHOWN]], [rows[n] for n in order[::-1][:SHOWN]]
    return {"best": best, "worst": worst, "random": [rows[n] for n in chosen]}
