"""Whole networks, assembled from `nn` by a typed config, and the folder they are saved in."""

from regard.models.assembly import build
from regard.models.folder import Model, load, save
from regard.models.network import Cache, Memory, Network
from regard.models.transformer import DecoderOnlyTransformer, EncoderDecoderTransformer, EncoderOnlyTransformer

__all__ = [
    "Cache",
    "DecoderOnlyTransformer",
    "EncoderDecoderTransformer",
    "EncoderOnlyTransformer",
    "Memory",
    "Model",
    "Network",
    "build",
    "load",
    "save",
]
