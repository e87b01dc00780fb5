"""Write conversations with an Italian teacher, and preference pairs, from the sentences of the phrasebook.

    python conversations.py FOLDER

The teacher translates, explains and corrects. The held-out conversations are about sentences of the phrasebook's test
split, which occur in no other file.
"""

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from regard.phrasebook import AlignedPair, split

SYSTEM = "You are a teacher of Italian. You answer briefly."
TO_ITALIAN = ["How do I say “{}” in Italian?", "Translate into Italian: {}", "And “{}”?", "“{}” in Italian, please."]
TO_ENGLISH = ["What does “{}” mean?", "Translate into English: {}", "I read “{}”. What is that?"]
CORRECT = ["Is “{1}” right for “{0}”?", "I wrote “{1}” for “{0}”. Is that correct?"]


def turn(pair: AlignedPair, other: AlignedPair, draw: random.Random) -> list[dict[str, str]]:
    """A question about a sentence and its answer; `other` is taken for a wrong translation."""
    kind = draw.choices(["italian", "english", "correct"], [5, 3, 2])[0]
    if kind == "italian":
        question, answer = draw.choice(TO_ITALIAN).format(pair.source), f"“{pair.target}”"
    elif kind == "english":
        question, answer = draw.choice(TO_ENGLISH).format(pair.target), f"It means “{pair.source}”"
    else:
        is_right = draw.random() < 0.5
        question = draw.choice(CORRECT).format(pair.source, pair.target if is_right else other.target)
        answer = "Yes, that is right." if is_right else f"No. “{pair.source}” is “{pair.target}” in Italian."
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def conversation(pairs: Sequence[AlignedPair], draw: random.Random) -> dict[str, list[dict[str, str]]]:
    """One to three questions, mostly after a system prompt."""
    messages = [{"role": "system", "content": SYSTEM}] if draw.random() < 0.7 else []
    for _ in range(draw.randint(1, 3)):
        messages += turn(draw.choice(pairs), draw.choice(pairs), draw)
    return {"messages": messages}


def preference(pairs: Sequence[AlignedPair], draw: random.Random) -> dict[str, object]:
    """A question with its translation, and with the translation of another sentence."""
    pair, other = draw.sample(pairs, 2)
    messages = [{"role": "system", "content": SYSTEM}]
    messages.append({"role": "user", "content": draw.choice(TO_ITALIAN).format(pair.source)})
    return {"messages": messages, "chosen": f"“{pair.target}”", "rejected": f"“{other.target}”"}


def main(folder: Path) -> None:
    """Write all files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "train.jsonl": (conversation, "train", 3000),
        "valid.jsonl": (conversation, "dev", 60),
        "test.jsonl": (conversation, "test", 120),
        "preferences.jsonl": (preference, "train", 1000),
        "preferences-valid.jsonl": (preference, "dev", 60),
    }
    for name, (make, part, count) in files.items():
        pairs, draw = list(split(part)), random.Random(name)
        lines = (json.dumps(make(pairs, draw), ensure_ascii=False) + "\n" for _ in range(count))
        (folder / name).write_text("".join(lines), "utf-8")
        print(f"{folder / name}: {count:,} lines")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
