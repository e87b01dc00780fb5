"""The torch engine: searches with networks as they are, one or several; everything can be asked of it.

B sentences · S source length
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from regard.config import Config
from regard.data.batching import BatchSampler
from regard.data.pair_batches import pad_features, pad_sequences
from regard.decoding.beam_search import SearchObserver, beam_search
from regard.decoding.engines.engine import SearchRequest, max_target_lengths
from regard.decoding.greedy import greedy
from regard.decoding.incremental import IncrementalDecoder
from regard.decoding.logits_processors import ForcedPrefix, LogitsProcessor, SuppressWords, constraint_processors
from regard.decoding.results import Hypothesis
from regard.models.network import Network

SEARCH_BATCH_TOKENS = 4096  # of hypotheses that are followed side by side


class TorchEngine:
    """Searches with one network, or with several that share their vocabulary; `check` is called between batches.

    An observer sees beam searches as they go; it numbers the sentences of a batch, so it is for one batch.
    """

    name = "torch"

    def __init__(
        self,
        networks: Sequence[Network],
        config: Config,
        check: Callable[[], None] = lambda: None,
        observer: SearchObserver | None = None,
    ) -> None:
        self.networks = networks
        self.config = config
        self._check = check
        self._observer = observer
        self._device = next(networks[0].parameters()).device

    def search(self, task: SearchRequest) -> list[list[Hypothesis]]:
        """Sentences of about equal length go side by side."""
        found: list[list[Hypothesis]] = [[] for _ in task.sources]
        if not task.sources:
            return found
        longest = max_target_lengths(task, self.config)
        lengths = np.array([[len(source) + 1 for source in task.sources]])
        for examples in BatchSampler(lengths, max(1, SEARCH_BATCH_TOKENS // task.search.width)).epoch(0):
            self._check()
            batch = self._batch(task, examples.tolist(), longest)
            for n, hypotheses in zip(examples, batch, strict=True):
                found[n] = hypotheses
        return found

    @torch.inference_mode()
    def _batch(self, task: SearchRequest, examples: list[int], longest: list[int]) -> list[list[Hypothesis]]:
        tokens = self.config.tokens
        rows = [np.array(task.sources[n], np.int64) for n in examples]
        ids, real = (
            torch.from_numpy(array).to(self._device)
            for array in pad_sequences(rows, after=[tokens.end], pad_id=tokens.pad)
        )
        facts = pad_features([task.facts[n] for n in examples] if task.facts else [])
        known = {name: torch.from_numpy(fact).to(self._device) for name, fact in facts.items()}
        predictor = IncrementalDecoder(self.networks, ids, real, known)
        room = torch.tensor([longest[n] for n in examples], device=self._device)
        rules: list[LogitsProcessor] = constraint_processors(task.search.bounds, tokens)
        if task.search.bounds.words:
            rules.append(SuppressWords(task.search.bounds.words, task.spelling, tokens.end))
        if task.prefixes is not None:
            rules.append(ForcedPrefix([task.prefixes[n] for n in examples]))
        if task.search.width == 1 and not task.watched and not task.search.coverage_penalty:
            return greedy(predictor, room, tokens, task.search, rules, scored=task.scored)
        return beam_search(
            predictor,
            room,
            tokens,
            task.search,
            rules,
            source_real=real,
            watch=task.watched,
            observer=self._observer,
        )
