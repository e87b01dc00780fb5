"""Networks, assembled from `nn` by their settings, and the folders they are saved in.

Names are imported on first use, so that the settings of a model folder can be read without torch.
"""

from typing import TYPE_CHECKING

from regard.registry import lazy_exports

if TYPE_CHECKING:
    from regard.models.assembly import build
    from regard.models.folder import LoadedNetwork, load_network, save
    from regard.models.network import Cache, Memory, Network
    from regard.models.transformer import DecoderOnlyTransformer, EncoderDecoderTransformer, EncoderOnlyTransformer

__all__ = [
    "Cache",
    "DecoderOnlyTransformer",
    "EncoderDecoderTransformer",
    "EncoderOnlyTransformer",
    "LoadedNetwork",
    "Memory",
    "Network",
    "build",
    "load_network",
    "save",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Cache": "regard.models.network",
        "DecoderOnlyTransformer": "regard.models.transformer",
        "EncoderDecoderTransformer": "regard.models.transformer",
        "EncoderOnlyTransformer": "regard.models.transformer",
        "LoadedNetwork": "regard.models.folder",
        "Memory": "regard.models.network",
        "Network": "regard.models.network",
        "build": "regard.models.assembly",
        "load_network": "regard.models.folder",
        "save": "regard.models.folder",
    },
)
