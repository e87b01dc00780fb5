"""Exports without torch: formats by name, reports, the folders that are written, and what CTranslate2 supports.

Third-party formats are functions of the entry-point group `regard.exporters`; `regard export --to NAME` calls them.
Neither torch nor CTranslate2 is imported here, so that checks are fast.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from safetensors import SafetensorError

from regard.config import (
    AlibiPositionsConfig,
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    RecurrentConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
    TransformerConfig,
)
from regard.errors import ModelError, UnwritableModelError
from regard.files import atomic_folder, write_error_message
from regard.registry import Registry

EXAMPLE_TEXT = "I love you very much"
SUPPORTED_POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")
SUPPORTED_SCALINGS = ("linear", "llama3")
MAX_POSITIONS = 4096  # of an exported network whose positions are unlimited here: other programs store them in a table


@dataclass(frozen=True)
class ExportReport:
    """The result of an export."""

    folder: Path
    program: str
    """The program that reads the folder, such as "transformers"."""
    kind: str
    """The class or number format of the exported model, such as "MarianMTModel"."""
    notes: tuple[str, ...] = ()
    """Differences from the original, and what was missing."""
    example: tuple[str, ...] = ()
    """Lines of Python that run the exported model without regard."""


class Exporter(Protocol):
    """Writes a model in another format."""

    def __call__(self, folder: Path, out: Path, quantization: str | None = None) -> ExportReport:
        """Convert the model in `folder` and write it to the new folder `out`.

        Raises ModelError if the format cannot hold the model, and ConfigError for an unknown quantization.
        """
        ...


EXPORTERS: Registry[Exporter] = Registry(
    "exporters",
    {
        "ctranslate2": "regard.interop.ctranslate2:ctranslate2_exporter",
        "gguf": "regard.interop.gguf_export:export_gguf",
        "huggingface": "regard.interop.huggingface:huggingface_exporter",
    },
)


@contextmanager
def new_export_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to write in, which is renamed to `folder` if the body succeeds."""
    if folder.exists():
        raise ModelError(f"{folder}: already exists; choose another name or remove it first.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder) as temporary:
            yield temporary
    except (OSError, SafetensorError) as error:
        raise UnwritableModelError(write_error_message(folder, error)) from None


def quoted(text: str | Path) -> str:
    """Return a Python string literal for an example."""
    return json.dumps(str(text), ensure_ascii=False)


def load_tokenizer_line(name: str, path: Path) -> str:
    """Return the line of an example that loads a tokenizer."""
    return f"{name} = tokenizers.Tokenizer.from_file({quoted(path)})"


def missing_parts(model: TransformerConfig, name: str, *, has_experts: bool = False) -> dict[str, bool]:
    """Return reasons why a format cannot hold a Transformer that several formats share, and whether they apply."""
    positions = model.positions
    rotary = positions if isinstance(positions, RotaryPositionsConfig) else RotaryPositionsConfig()
    return {
        f"{name} does not cap attention scores, and this network does": model.attention_soft_cap is not None,
        f"{name} does not normalize what sublayers add, and this network does": model.sandwich_norm,
        f"{name} normalizes the input of its first sublayer, and this network does not": not model.first_norm,
        f"{name} has one sublayer after the other, and this network parallel ones": model.parallel_sublayers,
        f"{name} rotates whole heads, and this network parts of them": rotary.rotated_width is not None,
        f"{name} has one base of rotary positions, and this network two": rotary.window_base is not None,
        f"{name} has no {positions.kind} positions, and this network has": positions.kind == "buckets",
        f"{name} has one feed-forward layer, and this network a mixture of experts": (
            model.experts > 1 and not has_experts
        ),
    }


def unsupported_reason(config: Config) -> str | None:
    """Return why CTranslate2 does not support a model, as a clause that follows "because"; None if it does.

    >>> unsupported_reason(Config(model=EncoderDecoderConfig(feed_forward=0)))
    'CTranslate2 needs feed-forward layers, and the network has none'
    """
    model, tokens = config.model, config.tokens
    if isinstance(model, RecurrentConfig):
        return "CTranslate2 is for Transformers, and the network is recurrent"
    if not isinstance(model, EncoderDecoderConfig | DecoderOnlyConfig):
        return "CTranslate2 is for networks that generate text, and this one is an encoder"
    has_encoder = isinstance(model, EncoderDecoderConfig)
    target_size = (model.target_vocab_size if isinstance(model, EncoderDecoderConfig) else None) or model.vocab_size
    outside = max(tokens.start, tokens.unknown, tokens.end) >= target_size or tokens.end >= model.vocab_size
    positions = model.positions
    scaling = positions.scaling if isinstance(positions, RotaryPositionsConfig) else None
    reasons = {
        "CTranslate2 needs feed-forward layers, and the network has none": model.feed_forward == 0,
        **missing_parts(model, "CTranslate2"),
        "CTranslate2 needs norms, and the network has none": model.norm == "none",
        f"CTranslate2 has no activation {model.activation}, and the network has": (
            model.activation in ("relu2", "geglu", "geglu-tanh")
        ),
        "CTranslate2 normalizes queries and keys in decoder-only networks with equal head sizes, and this one is not": (
            model.qk_norm and (has_encoder or model.key_width not in (None, model.head_width) or not model.scale_scores)
        ),
        f"CTranslate2 has no rotary scaling {scaling.kind}, and the network has" if scaling is not None else "": (
            scaling is not None and scaling.kind not in SUPPORTED_SCALINGS
        ),
        "CTranslate2 does not cap logits, and the network does": model.logit_soft_cap is not None,
        "CTranslate2 needs residual connections, and the network has none": not model.residual,
        "CTranslate2 needs a causal mask, and the network's decoder has none": not model.causal_mask,
        "CTranslate2 has rotary positions in decoder-only networks, and this one has an encoder": (
            has_encoder and isinstance(positions, RotaryPositionsConfig)
        ),
        "CTranslate2 has ALiBi in decoder-only networks, and this one has an encoder": (
            has_encoder and isinstance(positions, AlibiPositionsConfig)
        ),
        "CTranslate2 shares relative positions among heads, and this network has them per head": (
            isinstance(positions, RelativePositionsConfig) and positions.per_head
        ),
        f"CTranslate2 has no {positions.kind} positions": positions.kind not in SUPPORTED_POSITIONS,
        f"CTranslate2 has full attention, and the network's is {model.attention.kind}": model.attention.kind != "full",
        "the id of its start, end or unknown token is outside of a vocabulary": outside,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)
