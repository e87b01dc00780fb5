"""The PyTorch engine: beam search and greedy search with any network or ensemble, and with every option.

B sentences · S source length
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from regard.config import Config
from regard.data.batching import BatchSampler, pad_features, pad_sequences
from regard.decoding.beam_search import SearchObserver, beam_search
from regard.decoding.engines.engine import SearchRequest, max_target_lengths
from regard.decoding.greedy import greedy_search
from regard.decoding.incremental import IncrementalDecoder
from regard.decoding.logits_processors import (
    DecodingContext,
    ForcedPrefix,
    LogitsProcessor,
    constraint_processors,
    custom_processors,
)
from regard.decoding.results import Hypothesis
from regard.models.network import Network

SEARCH_BATCH_TOKENS = 4096  # source tokens times hypotheses per batch


class TorchEngine:
    """Searches with one network, or with an ensemble that shares a vocabulary.

    Args:
        networks: The networks.
        config: Their configuration.
        check: Called before each batch; may raise to stop the search.
        observer: Receives the steps of beam searches; it numbers sentences within a batch, so use it with one batch.
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

    def search(self, request: SearchRequest) -> list[list[Hypothesis]]:
        """Search in batches of sentences of similar length."""
        results: list[list[Hypothesis]] = [[] for _ in request.sources]
        if not request.sources:
            return results
        max_lengths = max_target_lengths(request, self.config)
        lengths = np.array([[len(source) + 1 for source in request.sources]])
        for examples in BatchSampler(lengths, max(1, SEARCH_BATCH_TOKENS // request.search.beam)).epoch(0):
            self._check()
            batch = self._search_batch(request, examples.tolist(), max_lengths)
            for n, hypotheses in zip(examples, batch, strict=True):
                results[n] = hypotheses
        return results

    @torch.inference_mode()
    def _search_batch(
        self, request: SearchRequest, examples: list[int], max_lengths: list[int]
    ) -> list[list[Hypothesis]]:
        tokens = self.config.tokens
        rows = [np.array(request.sources[n], np.int64) for n in examples]
        ids, mask = (
            torch.from_numpy(array).to(self._device)
            for array in pad_sequences(rows, after=[tokens.end], pad_id=tokens.pad)
        )
        padded = pad_features([request.features[n] for n in examples] if request.features else [])
        features = {name: torch.from_numpy(values).to(self._device) for name, values in padded.items()}
        decoder = IncrementalDecoder(self.networks, ids, mask, features)
        limits = torch.tensor([max_lengths[n] for n in examples], device=self._device)
        context = DecodingContext(tokens, request.search.constraints, request.token_texts)
        processors: list[LogitsProcessor] = [*constraint_processors(context), *custom_processors(context)]
        if request.prefixes is not None:
            processors.append(ForcedPrefix([request.prefixes[n] for n in examples]))
        if request.search.beam == 1 and not request.attention and not request.search.coverage_penalty:
            return greedy_search(decoder, limits, tokens, request.search, processors, token_scores=request.token_scores)
        return beam_search(
            decoder,
            limits,
            tokens,
            request.search,
            processors,
            source_mask=mask,
            attention=request.attention,
            observer=self._observer,
        )
