"""Names that settings, arguments and command-line options choose from, for checks without torch."""

from typing import Literal, get_args

Activation = Literal["relu", "gelu", "gelu-tanh", "swish"]
EngineName = Literal["auto", "torch", "ctranslate2"]
Pooling = Literal["mean", "first", "first-dense"]
Precision = Literal["int8", "float32"]  # of the weights of CTranslate2
TextFormat = Literal["text", "html"]

ENGINES: tuple[EngineName, ...] = get_args(EngineName)
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
TEXT_FORMATS: tuple[TextFormat, ...] = get_args(TextFormat)
