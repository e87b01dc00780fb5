"""BLEU of a translator with and without sentence splitting, on lines of several sentences and on pairs without context.

    python benchmarks/sentences.py --model runs/demo

`several sentences`: the lines of the data that have more than one. `random pairs`: two single sentences of the data
that have nothing to do with each other, joined to one line.
"""

import argparse
import random

from common import print_markdown

import regard
from regard.data.readers.base import Pair
from regard.data.readers.builtin import builtin_pairs
from regard.data.sentence_splitting import split_sentences
from regard.evaluation.metrics import score_translations

RULES = {"--no-split-sentences": False, "--split-sentences": True, "default": None}


def random_pairs(pairs: list[Pair], count: int, max_words: int) -> list[Pair]:
    """Join two random sentences of at most `max_words` words together."""
    draw, joined = random.Random(0), list[Pair]()
    ended = [pair for pair in pairs if pair.source[-1] in ".!?" and pair.target[-1] in ".!?"]
    while len(joined) < count:
        first, second = draw.sample(ended, 2)
        if len(f"{first.source} {second.source}".split()) <= max_words:
            joined.append(Pair(f"{first.source} {second.source}", f"{first.target} {second.target}"))
    return joined


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", nargs="+", default=["builtin:phrasebook-dev", "builtin:phrasebook-test"])
    parser.add_argument("--pairs", type=int, default=150)
    parser.add_argument("--max-words", type=int, default=11)
    arguments = parser.parse_args()
    pairs = [pair for name in arguments.data for pair in builtin_pairs(name)]
    several = [pair for pair in pairs if len(split_sentences(pair.source)) > 1]
    single = [pair for pair in pairs if len(split_sentences(pair.source)) == 1]
    sets = {
        "several sentences": several,
        "random pairs": random_pairs(single, arguments.pairs, arguments.max_words),
    }
    model = regard.load(arguments.model)
    rows = [["lines", "number", *RULES]]
    for name, lines in sets.items():
        references = [[pair.target] for pair in lines]
        scores = []
        for rule in RULES.values():
            outputs = model.translate([pair.source for pair in lines], split_sentences=rule)
            scores.append(f"{score_translations(outputs, references).values['bleu']:.1f}")
        rows.append([name, str(len(lines)), *scores])
    print_markdown(rows)


if __name__ == "__main__":
    main()
