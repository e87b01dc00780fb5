"""A trained model, ready for use: what `regard.load` gives.

    model = regard.load("runs/en-it")
    model.translate(["I love you very much."])
    model.generate("Once upon a time")
    model.fill("The man [MASK] a small dinosaur.")

Everything is loaded when it is first needed: with the CTranslate2 engine, torch never is.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from regard.config import Config
from regard.data.examples import Pair
from regard.data.given import given_texts
from regard.data.pair_batches import encode_parsed
from regard.data.readers.parses import ParseSource, attach_parses
from regard.data.tokenizer import Tokenizer, load_tokenizer
from regard.decoding.engines.engine import (
    Engine,
    EngineName,
    Precision,
    choose_engine,
    unsupported_sampling,
    unsupported_search,
)
from regard.decoding.generator import GenerationSession, Generator, StartSession, prompt_ids
from regard.decoding.options import DEFAULT_GENERATED_TOKENS, GenerationOptions, SamplingOptions, TranslationOptions
from regard.decoding.results import Generation, ScoredToken, TextChunk, Translation
from regard.decoding.translator import Translator, check_parses
from regard.errors import ConfigError, InputError, ModelError
from regard.interop.ctranslate2_support import MAX_POSITIONS
from regard.models.folder_files import (
    CONFIG_FILE,
    TARGET_TOKENIZER_FILE,
    TOKENIZER_FILE,
    read_config,
    resolve_model_folder,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.decoding.fill_mask import MaskFiller
    from regard.decoding.results import Classification, FilledText
    from regard.decoding.text_encoder import Pooling, TextEncoder, TextOrPair
    from regard.interpret.trace import Trace
    from regard.models import Network

TOGETHER = 512  # lines of an iterator that are translated at once


class Model:
    """One trained model, or several that vote."""

    def __init__(self, folder: Path, *more: Path) -> None:
        self.folder = folder
        self.folders = (folder, *more)
        self.config: Config = read_config(folder)
        for other in more:
            _check_alike(folder, self.config, other)
        self._engines: dict[tuple[str, str], Engine] = {}
        self._writers: dict[str, StartSession] = {}

    @cached_property
    def networks(self) -> "list[Network]":
        """The networks of all folders, in torch."""
        from regard.models.folder import load as load_network

        return [load_network(folder).network for folder in self.folders]

    @property
    def network(self) -> "Network":
        """The network of the first folder, in torch."""
        return self.networks[0]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; of a translator with two, the source's."""
        path = self.folder / TOKENIZER_FILE
        if not path.exists():
            raise ModelError(f"{path}: is missing, so {self.folder} can take no text; copy the folder again.")
        return load_tokenizer(path)

    @cached_property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of the target language."""
        path = self.folder / TARGET_TOKENIZER_FILE
        return load_tokenizer(path) if path.exists() else self.tokenizer

    def translate(
        self,
        texts: Iterable[str],
        wish: TranslationOptions = TranslationOptions(),  # noqa: B008  # frozen
        *,
        parses: ParseSource | None = None,
        engine: EngineName = "auto",
        precision: Precision = "int8",
    ) -> Any:
        """Translate a text, a list of them, or an iterator, which may be endless; the answer is of the same kind.

        A model with syntax positions reads `parses`: the path of a CoNLL-U file, or a text in CoNLL-U for each.
        """
        if isinstance(texts, str):
            return self.translations([texts], wish, parses=parses, engine=engine, precision=precision)[0].text
        each = given_texts("translate", texts)
        if isinstance(texts, Sequence):
            found = self.translations(list(each), wish, parses=parses, engine=engine, precision=precision)
            return [one.text for one in found]
        return self._translate_stream(each, wish, parses, engine, precision)

    def translations(
        self,
        texts: Sequence[str],
        wish: TranslationOptions = TranslationOptions(),  # noqa: B008
        *,
        parses: ParseSource | None = None,
        engine: EngineName = "auto",
        precision: Precision = "int8",
    ) -> list[Translation]:
        """Translate texts, with everything that is known about each translation."""
        texts = list(given_texts("translate", texts))
        ready = self.translator(wish, engine=engine, precision=precision)
        return ready.translate(
            texts, wish, None if parses is None else [parse for _, parse in attach_parses(texts, parses)]
        )

    def translator(
        self, wish: TranslationOptions, *, engine: EngineName = "auto", precision: Precision = "int8"
    ) -> Translator:
        """What carries out such wishes."""
        if not self.config.model.translates:
            raise ConfigError(f"{self.folder}: is of the kind {self.config.model.family}, which does not translate.")
        ensemble = len(self.folders) > 1
        hindrance = unsupported_search(wish, is_ensemble=ensemble)
        name = choose_engine(engine, self.config, hindrance)
        return Translator(self._engine(name, precision), self.config, self.tokenizer, self.target_tokenizer)

    def generate(
        self,
        prompts: str | Sequence[str] = "",
        wish: GenerationOptions = GenerationOptions(),  # noqa: B008
        *,
        engine: EngineName = "auto",
        precision: Precision = "int8",
        seeded: bool = True,
    ) -> str | list[str]:
        """What follows a prompt, or each of several; for several samples, all of them one after the other.

        Without `seeded`, draws need not be repeatable, and a faster engine may be taken.
        """
        found: list[Generation] = []
        for _ in self.stream(prompts, wish, found, engine=engine, precision=precision, seeded=seeded):
            pass
        texts = [one.text for one in found]
        return texts[0] if isinstance(prompts, str) and wish.samples == 1 else texts

    def stream(
        self,
        prompts: str | Sequence[str] = "",
        wish: GenerationOptions = GenerationOptions(),  # noqa: B008
        into: list[Generation] | None = None,
        *,
        engine: EngineName = "auto",
        precision: Precision = "int8",
        seeded: bool = True,
    ) -> Iterator[TextChunk]:
        """The same as it is written, part by part; `into` is filled with the whole continuations."""
        if not self.config.model.generates:
            raise ConfigError(f"{self.folder}: is of the kind {self.config.model.family}, which continues no text.")
        several = list(given_texts("generate", prompts))
        name = self.writing_engine(several, wish, engine=engine, seeded=seeded)
        if name == "ctranslate2" and precision not in self._writers:
            from regard.decoding.engines.ctranslate2 import ctranslate2_sessions

            self._writers[precision] = ctranslate2_sessions(self.folder, self.config, precision)
        begin_writing = self._writers[precision] if name == "ctranslate2" else self._begin_torch
        writer = Generator(begin_writing, self.config, self.tokenizer)
        return writer.stream(several, wish, into if into is not None else [])

    @overload
    def fill(self, texts: str, best: int = 5) -> "FilledText": ...  # type: ignore[overload-overlap]  # a text is a sequence

    @overload
    def fill(self, texts: Sequence[str], best: int = 5) -> "list[FilledText]": ...

    def fill(self, texts: str | Sequence[str], best: int = 5) -> "FilledText | list[FilledText]":
        """What may stand at each `[MASK]` of a text, or of each of several: so many tokens with their probabilities."""
        found = self.filler().fill(list(given_texts("fill", texts)), best)
        return found[0] if isinstance(texts, str) else found

    def filler(self) -> "MaskFiller":
        """What fills holes."""
        from regard.decoding.fill_mask import MaskFiller

        model, tokens = self.config.model, self.config.tokens
        if model.task != "masked":
            raise ConfigError(
                f"{self.folder}: is of the kind {model.family} and has no head that guesses hidden tokens; "
                "train one with regard train masked."
            )
        if tokens.mask is None:
            raise ModelError(
                f"{self.folder / CONFIG_FILE}: does not say which token is the mask; set tokens.mask in it."
            )
        return MaskFiller(self.networks, self.tokenizer, tokens, model.max_length)

    def writing_engine(
        self, prompts: Sequence[str], wish: GenerationOptions, *, engine: EngineName = "auto", seeded: bool = True
    ) -> Literal["torch", "ctranslate2"]:
        """What continues such prompts."""
        room = self._has_room(prompts, wish.sampling)
        hindrance = unsupported_sampling(
            wish.sampling, is_seeded=seeded, is_ensemble=len(self.folders) > 1, fits_window=room
        )
        return choose_engine(engine, self.config, hindrance)

    def score(
        self, texts: Sequence[str], targets: Sequence[str] | None = None, *, parses: ParseSource | None = None
    ) -> list[list[float]]:
        """The log-probability of each token of texts, their ends included; of `targets`, as translations of them.

        `parses` of the texts are given as to `translate`.
        """
        from regard.decoding.scoring import pair_log_probabilities, text_log_probabilities

        texts, targets = (
            list(given_texts("score", texts)),
            None if targets is None else list(given_texts("score", targets)),
        )
        if targets is not None and len(targets) != len(texts):
            raise InputError(f"score: {len(texts):,} texts have {len(targets):,} targets; give one for each.")
        check_parses(self.config.model, has_parses=parses is not None)
        tokens, longest = self.config.tokens, self.config.model.max_length or MAX_POSITIONS
        if targets is None:
            return text_log_probabilities(self.networks, self.tokenizer.encode_batch(texts), tokens, longest)
        ids = self.target_tokenizer.encode_batch(targets)
        if parses is None:
            return pair_log_probabilities(self.networks, self.tokenizer.encode_batch(texts), ids, tokens)
        pairs = [Pair(text.strip(), "", parse=parse) for text, parse in attach_parses(texts, parses)]
        sources, facts = encode_parsed(pairs, self.tokenizer)
        return pair_log_probabilities(self.networks, sources, ids, tokens, facts)

    def score_prompts(self, prompts: Sequence[str], candidates: int = 0) -> list[list[ScoredToken]]:
        """Each token of prompts, as `generate` reads them: its log-probability, and what else was most probable.

        The first of a prompt has none where nothing comes before it: not every language model has a start token.
        """
        from regard.decoding.scoring import score_tokens

        tokens, longest = self.config.tokens, self.config.model.max_length or MAX_POSITIONS
        found = []
        for prompt in given_texts("score_prompts", prompts):
            ids = prompt_ids(prompt, self.config, self.tokenizer)
            scored = score_tokens(self.networks, ids, tokens, candidates, longest)
            begun = bool(ids) and ids[0] == tokens.start
            found.append(scored if begun else [ScoredToken(ids[0], None), *scored])
        return found

    def look(
        self,
        text: str,
        wish: TranslationOptions | GenerationOptions | None = None,
        *,
        target: str | None = None,
        parses: ParseSource | None = None,
    ) -> "Trace":
        """Everything between a text and what the model makes of it: tokens, every number inside, every step.

        With `target`, that text is forced instead of decoding one. `parses` holds the text's, given as to `translate`.
        Of several models, there is no one trace.
        """
        from regard.interpret.decode import TracedModel
        from regard.interpret.trace import look

        if len(self.folders) > 1:
            raise ConfigError("a trace is of one network, and several vote here; load one of them to look at it.")
        check_parses(self.config.model, has_parses=parses is not None)
        parse = None
        if parses is not None:
            ((_, parse),) = attach_parses([text], parses)
        return look(
            TracedModel(self.network, self.config, self.tokenizer, self.target_tokenizer, str(self.folder)),
            text,
            wish,
            target,
            parse,
        )

    @cached_property
    def reader(self) -> "TextEncoder":
        """What gives vectors and labels to texts, where the model is an encoder."""
        from regard.decoding.text_encoder import TextEncoder

        return TextEncoder.for_network(self.network, self.config, self.tokenizer, str(self.folder))

    def classify(self, texts: "TextOrPair | Sequence[TextOrPair]") -> Any:
        """The label of a text, or of each of several; a pair of texts is a tuple of two."""
        if isinstance(texts, str | tuple):
            return self.classifications([texts])[0].label
        return [found.label for found in self.classifications(texts)]

    def classifications(self, texts: "Sequence[TextOrPair]") -> "list[Classification]":
        """The label of each text, with the probabilities of all."""
        from regard.decoding.labeling import classify

        return classify(self.reader, texts, str(self.folder))

    def tag(self, sentences: "Sequence[str | Sequence[str]]") -> "list[list[tuple[str, str]]]":
        """The words of each sentence with their tags; sentences are lists of words, or words apart by spaces."""
        from regard.decoding.labeling import tag

        words = [one.split() if isinstance(one, str) else list(one) for one in sentences]
        tagged = tag(self.reader, words, str(self.folder))
        return [[(word.text, word.tag) for word in sentence] for sentence in tagged]

    def embed(
        self, texts: "TextOrPair | Sequence[TextOrPair]", *, pooling: "Pooling | None" = None, normalise: bool = False
    ) -> "NDArray[np.float32]":
        """The vector of a text (C,), or one for each of several (N, C)."""
        from regard.decoding.text_encoder import embed

        one = isinstance(texts, str | tuple)
        found = embed(self.reader, [texts] if one else texts, pooling, normalize=normalise).vectors  # type: ignore[list-item]
        return found[0] if one else found

    def _translate_stream(
        self,
        texts: Iterator[str],
        wish: TranslationOptions,
        parses: ParseSource | None,
        engine: EngineName,
        precision: Precision,
    ) -> Iterator[str]:
        ready = self.translator(wish, engine=engine, precision=precision)
        if parses is not None:
            rows = attach_parses(texts, parses)
            while pairs := list(islice(rows, TOGETHER)):
                found = ready.translate([text for text, _ in pairs], wish, [parse for _, parse in pairs])
                yield from (one.text for one in found)
            return
        while several := list(islice(texts, TOGETHER)):
            yield from (found.text for found in ready.translate(several, wish))

    def _engine(self, name: str, precision: Precision) -> Engine:
        key = (name, precision if name == "ctranslate2" else "")
        if key not in self._engines:
            self._engines[key] = self._ctranslate2(precision) if name == "ctranslate2" else self._torch()
        return self._engines[key]

    def _torch(self) -> Engine:
        from regard.decoding.engines.pytorch import TorchEngine

        return TorchEngine(self.networks, self.config)

    def _ctranslate2(self, precision: Precision) -> Engine:
        from regard.decoding.engines.ctranslate2 import CTranslate2Engine

        return CTranslate2Engine(self.folder, self.config, precision)

    def _begin_torch(
        self, prompts: list[list[int]], streams: list[int], sampling: SamplingOptions
    ) -> GenerationSession:
        from regard.decoding.sampling import Sampler

        spelling = self.tokenizer.token_strings() if sampling.constraints.suppressed_words else ()
        tokens, window = self.config.tokens, self.config.context_window
        return Sampler(self.networks, prompts, streams, tokens, sampling, window, spelling)

    def _has_room(self, prompts: Sequence[str], sampling: SamplingOptions) -> bool:
        window = self.config.context_window or MAX_POSITIONS
        longest = max((len(ids) for ids in self.tokenizer.encode_batch(prompts)), default=0)
        return longest + 1 + (sampling.constraints.max_length or DEFAULT_GENERATED_TOKENS) <= window


def load(folder: str | Path, *more: str | Path) -> Model:
    """The model in a model folder, or the best of a run's; with several, they vote on every token."""
    return Model(resolve_model_folder(folder), *(resolve_model_folder(other) for other in more))


def _check_alike(folder: Path, config: Config, other: Path) -> None:
    """Models that vote must mean the same by the same id."""
    theirs = read_config(other)
    if theirs.model.family != config.model.family:
        raise ConfigError(
            f"{other}: is of the kind {theirs.model.family}, and cannot vote with {folder}, "
            f"which is of the kind {config.model.family}."
        )
    if theirs.model.needs_parses != config.model.needs_parses:
        reads, other_reads = (other, folder) if theirs.model.needs_parses else (folder, other)
        raise ConfigError(f"{reads}: reads parses, and cannot vote with {other_reads}, which reads none.")
    for name in (TOKENIZER_FILE, TARGET_TOKENIZER_FILE):
        ours, other_one = folder / name, other / name
        if ours.exists() != other_one.exists() or (ours.exists() and ours.read_bytes() != other_one.read_bytes()):
            raise ConfigError(
                f"{other_one}: is not the same as {ours}; models that vote must share one vocabulary: "
                "train them with one tokenizer.file."
            )
    if theirs.tokens != config.tokens:
        raise ConfigError(f"{other}: has other special tokens than {folder}; models that vote must share them.")
