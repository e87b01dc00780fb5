"""A request to a running batch: its rows, and the texts that their tokens become."""

from collections.abc import Iterator, Sequence

from regard.config import SpecialTokensConfig
from regard.decoding.continuous_batch import ContinuousBatch, RequestRows, Row
from regard.decoding.generator import GeneratedTexts
from regard.decoding.results import SampledToken, TextChunk


class BatchRequest:
    """Texts that are generated in a running batch.

    Args:
        texts: The texts.
        tokens: Special tokens.
        token_texts: The text of each token by id, for suppressed words and custom processors.
    """

    def __init__(self, texts: GeneratedTexts, tokens: SpecialTokensConfig, token_texts: Sequence[str] = ()) -> None:
        self.texts = texts
        self.group = RequestRows(texts.options.sampling, tokens, token_texts)

    def join(self, batch: ContinuousBatch) -> None:
        """Let all rows wait for a place in a batch."""
        batch.add(self.group, [ids for ids, _ in self.texts.rows], self.texts.streams)

    def leave(self, batch: ContinuousBatch) -> None:
        """Stop all rows."""
        batch.close(self.group.rows)

    def accept(self, batch: ContinuousBatch, row: Row, token: SampledToken) -> list[TextChunk]:
        """Add a token that the batch has sampled for a row, which stops if its text has ended; return the new text."""
        chunks = self.texts.add(token, truncated=row.dropped > 0)
        self.texts.results[row.number].cached_tokens = row.cached_tokens
        if self.texts.must_stop(row.number):
            batch.close([row])
        return chunks if row.is_active else chunks + self.texts.finish(row.number)

    def generate(self, batch: ContinuousBatch) -> Iterator[TextChunk]:
        """Generate in a batch that no other request uses, and yield the text."""
        self.join(batch)
        try:
            while self.group.is_active:
                for row, token in batch.step():
                    yield from self.accept(batch, row, token)
        finally:
            self.leave(batch)
        if self.group.error is not None:
            raise self.group.error
