"""How fast models write, each on the same work, in turns: what slows the machine down for a while slows all of them."""

import time
from collections.abc import Callable, Mapping, Sequence

from regard.api import Model
from regard.decoding.engines.choice import Name
from regard.decoding.generator import Prompting
from regard.decoding.settings import Bounds, Sampling
from regard.decoding.translator import Wish

ROUNDS = 3
LENGTH, SAMPLES = 100, 8  # tokens and texts that a language model writes

Work = Callable[[], int]  # does something, and says how many tokens were written


def tokens_per_second(models: Mapping[str, Model], sentences: Sequence[str], engine: Name) -> dict[str, float]:
    """Tokens that each model writes in a second, at best; models that write nothing, or have nothing to read, are left
    out."""
    tasks = {name: work for name, model in models.items() if (work := _work(model, sentences, engine)) is not None}
    for work in tasks.values():
        work()  # loads what is needed
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, work in tasks.items():
            begun = time.perf_counter()
            tokens = work()
            best[name] = max(best.get(name, 0.0), tokens / (time.perf_counter() - begun))
    return best


def _work(model: Model, sentences: Sequence[str], engine: Name) -> Work | None:
    settings = model.config.model
    if settings.translates and sentences and not settings.reads_parses:  # these have no parses
        return lambda: _count(model, [found.text for found in model.translations(sentences, Wish(), engine=engine)])
    if settings.continues:
        length = min(LENGTH, (settings.longest or LENGTH + 1) - 1)
        wish = Prompting(Sampling(seed=1, bounds=Bounds(longest=length, shortest=length)), samples=SAMPLES)

        def write() -> int:
            model.generate("", wish, engine=engine)
            return length * SAMPLES

        return write
    return None


def _count(model: Model, texts: Sequence[str]) -> int:
    return sum(len(ids) + 1 for ids in model.target_tokenizer.encode_all(texts))  # and the end
