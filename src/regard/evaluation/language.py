"""How well a language model predicts documents."""

from collections.abc import Iterable

from regard.errors import DataError
from regard.evaluation.likelihood import Likelihood, Scored, together
from regard.evaluation.scoring import Counting, Predicting, score_texts


def evaluate(
    model: Predicting,
    documents: Iterable[Iterable[str]],
    name: str,
    context: int,
    counting: Counting,
) -> Likelihood:
    """The likelihood of documents, one by one; a token sees at least half a `context` before it, if there is so much.

    Empty documents are left out. `name` is what the data are called.
    """
    scored: list[Scored] = []
    size = 0
    for document in documents:
        text = "".join(document)
        if text:
            scored += score_texts(model, [text], context)
            size += len(text.encode())
            counting("scoring bytes", size, None)
    if not scored:
        raise DataError(f"{name}: has no text to evaluate a model on; give some.")
    return together(scored, size)
