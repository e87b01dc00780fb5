"""regard: train, run and inspect the Transformer of "Attention Is All You Need" and the systems around it.

    run = regard.train("config.toml", data="pairs.tsv", out="runs/en-it")
    model = regard.load("runs/en-it")
    model.translate("I love you.", beam=8)
    model.look("I love you.").alignment()

Names are imported when they are first used, so that `import regard` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.errors import explain_missing_packages
from regard.registry import lazy_exports
from regard.version import __version__

if TYPE_CHECKING:
    from regard import batch
    from regard.api import Model, load
    from regard.api.chat import ChatPrompt
    from regard.api.generation import GenerateKeywords
    from regard.api.translation import TranslateKeywords
    from regard.config import Config, load_config
    from regard.data.chat import ChatTemplate, EncodedChat, Message, RenderedChat
    from regard.data.datasets import Dataset, Datasets
    from regard.data.encoder_batches import TextOrPair
    from regard.data.syntax import ParseSource
    from regard.data.tokenizer import Tokenizer
    from regard.decoding.domain import Domain
    from regard.decoding.logits_processors import LogitsProcessor
    from regard.decoding.options import (
        GenerationOptions,
        OutputConstraints,
        SamplingOptions,
        SearchOptions,
        TranslationOptions,
    )
    from regard.decoding.results import (
        Alternative,
        Candidate,
        Classification,
        Embeddings,
        FillCandidate,
        FilledText,
        Generation,
        Hypothesis,
        ScoredToken,
        TaggedWord,
        TextChunk,
        TextScore,
        TranslatedSentence,
        Translation,
    )
    from regard.errors import (
        ArgumentError,
        ConfigError,
        DataError,
        InputError,
        InterruptedRun,
        MissingPackageError,
        ModelError,
        RegardError,
        RunError,
        RunFolderError,
        ServerError,
        UnwritableModelError,
    )
    from regard.interpret.attribution import Alignment, GradientNorms, HeadAgreement, HeadCost, ModuleGradient
    from regard.interpret.decode import DecodedText, SearchNode, SearchTree, TracedModel
    from regard.interpret.forward_pass import ActiveUnits
    from regard.interpret.interventions import Intervention, InterventionResult, StepChange
    from regard.interpret.predictions import HeadPrediction, HeadPredictions, PredictionCandidate, Predictions, Step
    from regard.interpret.tensors import Address, ProductTerms, TensorSlice
    from regard.interpret.tokens import TokenizedText, WordMerges, WordSpan
    from regard.interpret.trace import Trace, TraceDict, TraceOutline
    from regard.interpret.training_step import TrainingPosition, TrainingStep
    from regard.models import Cache, Memory, Network, build, save
    from regard.models.adapter_files import Adapter
    from regard.models.network import NetworkRows
    from regard.nn import Tap, open_taps
    from regard.nn.layout import PaddingMask
    from regard.nn.taps import Matrix, MatrixProduct, Point
    from regard.training.display import Progress, ProgressDisplay, Sample
    from regard.training.run import Callback, Run
    from regard.training.runner import train

__all__ = [
    "ActiveUnits",
    "Adapter",
    "Address",
    "Alignment",
    "Alternative",
    "ArgumentError",
    "Cache",
    "Callback",
    "Candidate",
    "ChatPrompt",
    "ChatTemplate",
    "Classification",
    "Config",
    "ConfigError",
    "DataError",
    "Dataset",
    "Datasets",
    "DecodedText",
    "Domain",
    "Embeddings",
    "EncodedChat",
    "FillCandidate",
    "FilledText",
    "GenerateKeywords",
    "Generation",
    "GenerationOptions",
    "GradientNorms",
    "HeadAgreement",
    "HeadCost",
    "HeadPrediction",
    "HeadPredictions",
    "Hypothesis",
    "InputError",
    "InterruptedRun",
    "Intervention",
    "InterventionResult",
    "LogitsProcessor",
    "Matrix",
    "MatrixProduct",
    "Memory",
    "Message",
    "MissingPackageError",
    "Model",
    "ModelError",
    "ModuleGradient",
    "Network",
    "NetworkRows",
    "OutputConstraints",
    "PaddingMask",
    "ParseSource",
    "Point",
    "PredictionCandidate",
    "Predictions",
    "ProductTerms",
    "Progress",
    "ProgressDisplay",
    "RegardError",
    "RenderedChat",
    "Run",
    "RunError",
    "RunFolderError",
    "Sample",
    "SamplingOptions",
    "ScoredToken",
    "SearchNode",
    "SearchOptions",
    "SearchTree",
    "ServerError",
    "Step",
    "StepChange",
    "TaggedWord",
    "Tap",
    "TensorSlice",
    "TextChunk",
    "TextOrPair",
    "TextScore",
    "TokenizedText",
    "Tokenizer",
    "Trace",
    "TraceDict",
    "TraceOutline",
    "TracedModel",
    "TrainingPosition",
    "TrainingStep",
    "TranslateKeywords",
    "TranslatedSentence",
    "Translation",
    "TranslationOptions",
    "UnwritableModelError",
    "WordMerges",
    "WordSpan",
    "__version__",
    "batch",
    "build",
    "load",
    "load_config",
    "open_taps",
    "save",
    "train",
]

_MODULES = {
    "regard.api": "Model load",
    "regard.api.chat": "ChatPrompt",
    "regard.api.generation": "GenerateKeywords",
    "regard.api.translation": "TranslateKeywords",
    "regard.config": "Config load_config",
    "regard.data.chat": "ChatTemplate EncodedChat Message RenderedChat",
    "regard.data.datasets": "Dataset Datasets",
    "regard.data.encoder_batches": "TextOrPair",
    "regard.data.syntax": "ParseSource",
    "regard.data.tokenizer": "Tokenizer",
    "regard.decoding.domain": "Domain",
    "regard.decoding.logits_processors": "LogitsProcessor",
    "regard.decoding.options": "GenerationOptions OutputConstraints SamplingOptions SearchOptions TranslationOptions",
    "regard.decoding.results": (
        "Alternative Candidate Classification Embeddings FillCandidate FilledText Generation Hypothesis "
        "ScoredToken TaggedWord TextChunk TextScore TranslatedSentence Translation"
    ),
    "regard.errors": (
        "ArgumentError ConfigError DataError InputError InterruptedRun MissingPackageError ModelError RegardError "
        "RunError RunFolderError ServerError UnwritableModelError"
    ),
    "regard.interpret.attribution": "Alignment GradientNorms HeadAgreement HeadCost ModuleGradient",
    "regard.interpret.decode": "DecodedText SearchNode SearchTree TracedModel",
    "regard.interpret.forward_pass": "ActiveUnits",
    "regard.interpret.interventions": "Intervention InterventionResult StepChange",
    "regard.interpret.predictions": "HeadPrediction HeadPredictions PredictionCandidate Predictions Step",
    "regard.interpret.tensors": "Address ProductTerms TensorSlice",
    "regard.interpret.tokens": "TokenizedText WordMerges WordSpan",
    "regard.interpret.trace": "Trace TraceDict TraceOutline",
    "regard.interpret.training_step": "TrainingPosition TrainingStep",
    "regard.models": "Cache Memory Network build save",
    "regard.models.adapter_files": "Adapter",
    "regard.models.network": "NetworkRows",
    "regard.nn": "Tap open_taps",
    "regard.nn.layout": "PaddingMask",
    "regard.nn.taps": "Matrix MatrixProduct Point",
    "regard.training.display": "Progress ProgressDisplay Sample",
    "regard.training.run": "Callback Run",
    "regard.training.runner": "train",
}

_import_name, _names = lazy_exports(
    __name__, {name: module for module, names in _MODULES.items() for name in names.split()}
)


def __getattr__(name: str) -> Any:
    with explain_missing_packages(f"regard.{name}"):
        return import_module("regard.batch") if name == "batch" else _import_name(name)


def __dir__() -> list[str]:
    return sorted([*_names(), "batch"])
