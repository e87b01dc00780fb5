"""The model card: what a model folder says about itself to a person."""

from torch import nn

from regard.config import Config, ModelConfig, RecurrentConfig
from regard.version import __version__


def card(name: str, network: nn.Module, config: Config, origin: str = "") -> str:
    """The text of a model folder's `README.md`."""
    model = config.model
    parameters = sum(parameter.numel() for parameter in network.parameters())
    table = model.model_dump(mode="json", exclude_none=True)
    lines = [
        f"# {name}",
        "",
        f"{model.family[0].upper()}{model.family[1:]} with {parameters:,} parameters: {model.layers} layers, "
        f"width {model.width}, {_kind_of_layer(model)}, vocabulary {model.vocab_size:,}. {origin}".rstrip(),
        "",
        f"Made with regard {__version__}. In Python, `regard.load` reads this folder; "
        "in a terminal, `regard model` shows its parts.",
        "",
        "## Settings",
        "",
        "| setting | value |",
        "|---|---|",
        *(f"| {key} | {_value(value)} |" for key, value in table.items()),
    ]
    return "\n".join(lines) + "\n"


def _kind_of_layer(model: ModelConfig) -> str:
    return f"{model.cell} cells" if isinstance(model, RecurrentConfig) else f"{model.heads} heads"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(inner)}" for key, inner in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)
