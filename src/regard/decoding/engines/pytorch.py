"""The PyTorch engine: beam search and greedy search with any network or ensemble, and with every option.

B sentences · S source length · V vocabulary
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from regard.config import Config, SpecialTokensConfig
from regard.data.batching import BatchSampler, pad_features, pad_sequences
from regard.decoding.beam_search import SearchObserver, beam_search
from regard.decoding.engines import SearchRequest, max_target_lengths
from regard.decoding.incremental import IncrementalDecoder
from regard.decoding.logits_processors import (
    DecodingContext,
    ForcedPrefix,
    LogitsProcessor,
    apply_processors,
    constraint_processors,
    custom_processors,
)
from regard.decoding.options import SearchOptions
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

    def best_ids(self, request: SearchRequest) -> list[list[int]]:
        """Return only the ids of the first hypothesis of each sentence."""
        return [hypotheses[0].ids for hypotheses in self.search(request)]

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
        decoder = IncrementalDecoder(self.networks, ids, None if bool(mask.all()) else mask, features)
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


@torch.inference_mode()
def greedy_search(
    decoder: IncrementalDecoder,
    max_lengths: Tensor,
    tokens: SpecialTokensConfig,
    search: SearchOptions,
    processors: list[LogitsProcessor],
    *,
    token_scores: bool,
) -> list[list[Hypothesis]]:
    """Return one hypothesis per sentence, of at most `max_lengths` (B,) tokens.

    Finished sentences are removed from the batch. Without `token_scores`, all scores are 0.
    """
    count, device = len(max_lengths), max_lengths.device
    outputs: list[list[int]] = [[] for _ in range(count)]
    scores: list[list[float]] = [[] for _ in range(count)]
    ended = [False] * count
    rows = torch.arange(count, device=device)  # the sentence of each row of the batch
    sentences, limits = list(range(count)), max_lengths.tolist()  # the same as `rows` and `max_lengths`, as lists
    generated = torch.empty(count, 0, dtype=torch.long, device=device)
    last = torch.full((count, 1), tokens.start, device=device)
    while sentences:
        logits = apply_processors(processors, decoder.step(last), generated, rows)
        if token_scores:
            log_probabilities, chosen = logits.log_softmax(-1).max(-1)
            for sentence, value in zip(sentences, log_probabilities.tolist(), strict=True):
                scores[sentence].append(value)
        else:
            chosen = logits.argmax(-1)
        last = chosen[:, None]
        generated = torch.cat([generated, last], dim=1)
        active = []
        for row, (sentence, token) in enumerate(zip(sentences, chosen.tolist(), strict=True)):
            if token == tokens.end:
                ended[sentence] = True
                continue
            outputs[sentence].append(token)
            if generated.size(1) < limits[sentence]:
                active.append(row)
        if len(active) < len(sentences):
            sentences = [sentences[row] for row in active]
            kept = torch.tensor(active, dtype=torch.long, device=device)
            rows, last, generated = rows[kept], last[kept], generated[kept]
            if active:
                decoder.select(kept, kept)
    return [
        [_hypothesis(*output, search, token_scores=token_scores)] for output in zip(outputs, scores, ended, strict=True)
    ]


def _hypothesis(
    ids: list[int], scores: list[float], ended: bool, search: SearchOptions, *, token_scores: bool
) -> Hypothesis:
    total = sum(scores)
    score = search.score(total, len(ids) + ended)
    return Hypothesis(ids, score, total, ended, scores if token_scores else None)
