"""`Model.classify`, `Model.tag`, `Model.fill` and `Model.embed`, each with a detailed variant."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, overload

from regard.api.base import ModelBase, check_texts, map_batches
from regard.decoding.results import Classification, Embeddings, FilledText, TaggedWord
from regard.errors import ConfigError, ModelError
from regard.models.folder_files import CONFIG_FILE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.data.encoder_batches import TextOrPair
    from regard.decoding.encoder_inference import MaskFiller, TextEncoder
    from regard.registry import Pooling

ENCODER_ITERATOR_BATCH = 512  # texts of an iterator that are encoded at once


class EncoderMethods(ModelBase):
    """The methods of text encoders."""

    @overload
    def classify(self, texts: "TextOrPair") -> str: ...  # type: ignore[overload-overlap]  # str is a Sequence[str]

    @overload
    def classify(self, texts: "Sequence[TextOrPair]") -> list[str]: ...

    @overload
    def classify(self, texts: "Iterator[TextOrPair]") -> Iterator[str]: ...

    def classify(self, texts: "TextOrPair | Iterable[TextOrPair]") -> str | list[str] | Iterator[str]:
        """Return the most probable label of texts.

        Args:
            texts: A text, a sequence of texts, or an iterator. A tuple of two texts is classified as a pair.

        Returns:
            A str for one text or pair, a list for a sequence, an iterator for any other iterable.

        Raises:
            ConfigError: The model has no classification head.

        Example:
            model = regard.load("runs/sentiment")
            model.classify("What a film!")
            model.classify([("A man sleeps.", "A person is asleep."), ("A man sleeps.", "A man runs.")])
        """
        if isinstance(texts, str | tuple):
            return self.classify_detailed([texts])[0].label
        if isinstance(texts, Sequence):
            return [classification.label for classification in self.classify_detailed(texts)]
        classifications = map_batches(self.classify_detailed, texts, ENCODER_ITERATOR_BATCH)
        return (classification.label for classification in classifications)

    def classify_detailed(self, texts: "Sequence[TextOrPair]") -> list[Classification]:
        """Return the label of each text with the probabilities of all labels."""
        from regard.decoding.encoder_inference import classify

        return classify(self.text_encoder, texts, str(self.folder))

    @overload
    def tag(self, sentences: str, *, split_punctuation: bool = False) -> list[tuple[str, str]]: ...  # type: ignore[overload-overlap]  # str is a Sequence[str]

    @overload
    def tag(
        self, sentences: Sequence[str | Sequence[str]], *, split_punctuation: bool = False
    ) -> list[list[tuple[str, str]]]: ...

    @overload
    def tag(
        self, sentences: Iterator[str | Sequence[str]], *, split_punctuation: bool = False
    ) -> Iterator[list[tuple[str, str]]]: ...

    def tag(
        self, sentences: str | Iterable[str | Sequence[str]], *, split_punctuation: bool = False
    ) -> list[tuple[str, str]] | list[list[tuple[str, str]]] | Iterator[list[tuple[str, str]]]:
        """Return the words of sentences with their tags.

        Args:
            sentences: A sentence, a sequence of sentences, or an iterator. A sentence is a str, which is split at
                spaces, or a sequence of words.
            split_punctuation: Treat punctuation around words as words of its own, as corpora do.

        Returns:
            A list of (word, tag) for one str, a list of them for a sequence, an iterator for any other iterable.

        Raises:
            ConfigError: The model has no tagging head.

        Example:
            regard.load("runs/names").tag("Ada Lovelace lived in London")   # [("Ada", "B-PER"), …]
        """

        def tag_batch(batch: Sequence[str | Sequence[str]]) -> list[list[tuple[str, str]]]:
            tagged = self.tag_detailed(batch, split_punctuation=split_punctuation)
            return [[(word.text, word.tag) for word in words] for words in tagged]

        if isinstance(sentences, str):
            return tag_batch([sentences])[0]
        if isinstance(sentences, Sequence):
            return tag_batch(sentences)
        return map_batches(tag_batch, sentences, ENCODER_ITERATOR_BATCH)

    def tag_detailed(
        self, sentences: Sequence[str | Sequence[str]], *, split_punctuation: bool = False
    ) -> list[list[TaggedWord]]:
        """Return the words of each sentence with their tags and probabilities; the arguments are those of `tag`."""
        from regard.data.sentence_splitting import split_words
        from regard.decoding.encoder_inference import tag

        words = [
            [word.text for word in split_words(sentence, split_punctuation=split_punctuation)]
            if isinstance(sentence, str)
            else list(sentence)
            for sentence in sentences
        ]
        return tag(self.text_encoder, words, str(self.folder))

    @overload
    def fill(self, texts: str) -> str: ...  # type: ignore[overload-overlap]  # str is a Sequence[str]

    @overload
    def fill(self, texts: Sequence[str]) -> list[str]: ...

    @overload
    def fill(self, texts: Iterator[str]) -> Iterator[str]: ...

    def fill(self, texts: str | Iterable[str]) -> str | list[str] | Iterator[str]:
        """Replace each `[MASK]` of texts by the most probable token.

        Args:
            texts: A text, a sequence of texts, or an iterator; each has at least one `[MASK]`.

        Returns:
            A str for a str, a list for a sequence, an iterator for any other iterable.

        Raises:
            ConfigError: The model is not a masked language model.
            InputError: A text has no `[MASK]`, or is too long.

        Example:
            regard.load("runs/encoder").fill("The man [MASK] a small dinosaur.")
        """
        checked = check_texts("fill", texts)
        filler = self.mask_filler()

        def fill_batch(batch: list[str]) -> list[str]:
            return [filled.text for filled in filler.fill(batch, top_k=1)]

        if isinstance(texts, str):
            return fill_batch(list(checked))[0]
        if isinstance(texts, Sequence):
            return fill_batch(list(checked))
        return map_batches(fill_batch, checked, ENCODER_ITERATOR_BATCH)

    def fill_detailed(self, texts: str | Iterable[str], *, top_k: int = 5) -> list[FilledText]:
        """Return the `top_k` most probable tokens for each `[MASK]` of texts, with their probabilities.

        Example:
            (filled,) = model.fill_detailed("The man [MASK] a small dinosaur.")
            [(candidate.text, candidate.probability) for candidate in filled.masks[0]]
        """
        return self.mask_filler().fill(list(check_texts("fill_detailed", texts)), top_k)

    @overload
    def embed(
        self, texts: "TextOrPair | Sequence[TextOrPair]", *, pooling: "Pooling | None" = None, normalize: bool = False
    ) -> "NDArray[np.float32]": ...

    @overload
    def embed(
        self, texts: "Iterator[TextOrPair]", *, pooling: "Pooling | None" = None, normalize: bool = False
    ) -> "Iterator[NDArray[np.float32]]": ...

    def embed(
        self,
        texts: "TextOrPair | Iterable[TextOrPair]",
        *,
        pooling: "Pooling | None" = None,
        normalize: bool = False,
    ) -> "NDArray[np.float32] | Iterator[NDArray[np.float32]]":
        """Return vectors of texts.

        Args:
            texts: A text, a sequence of texts, or an iterator. A tuple of two texts is encoded as a pair.
            pooling: "mean", "first", "first-dense" or "first-relu"; None: as the model was trained.
            normalize: Scale vectors to length 1.

        Returns:
            A vector (C,) for one text, a matrix (N, C) for a sequence, an iterator of vectors for any other iterable.

        Raises:
            ConfigError: The model is not an encoder, or lacks the layer that the pooling needs.

        Example:
            vectors = regard.load("models/minilm").embed(["a cat", "a kitten"], normalize=True)
            vectors[0] @ vectors[1]   # cosine similarity
        """
        if isinstance(texts, str | tuple):
            vector: NDArray[np.float32] = self.embed_detailed([texts], pooling=pooling, normalize=normalize).vectors[0]
            return vector
        if isinstance(texts, Sequence):
            return self.embed_detailed(texts, pooling=pooling, normalize=normalize).vectors

        def embed_batch(batch: "list[TextOrPair]") -> "list[NDArray[np.float32]]":
            return list(self.embed_detailed(batch, pooling=pooling, normalize=normalize).vectors)

        return map_batches(embed_batch, texts, ENCODER_ITERATOR_BATCH)

    def embed_detailed(
        self, texts: "Sequence[TextOrPair]", *, pooling: "Pooling | None" = None, normalize: bool = False
    ) -> Embeddings:
        """Return vectors of texts and the number of texts that were truncated; the arguments are those of `embed`."""
        from regard.decoding.encoder_inference import embed

        return embed(self.text_encoder, texts, pooling, normalize=normalize)

    @cached_property
    def text_encoder(self) -> "TextEncoder":
        """The encoder network with its tokenizer; raises ConfigError if the model is not an encoder."""
        from regard.decoding.encoder_inference import TextEncoder

        return TextEncoder.for_network(self.network, self.config, self.tokenizer, str(self.folder))

    def mask_filler(self) -> "MaskFiller":
        """Return the masked language model with its tokenizer; raises ConfigError if the model is not one."""
        from regard.decoding.encoder_inference import MaskFiller

        model, tokens = self.config.model, self.config.tokens
        if not model.fills_masks:
            raise ConfigError(
                f"{self.folder}: is a model of type {model.family} without a head that predicts masked tokens; "
                "train one with regard train masked."
            )
        if tokens.mask is None:
            raise ModelError(f"{self.folder / CONFIG_FILE}: does not set the mask token; set tokens.mask in it.")
        return MaskFiller(self.networks, self.tokenizer, tokens, model.max_length)
