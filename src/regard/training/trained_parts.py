"""Which parameters a run trains: LoRA matrices on top of a frozen model, and parameters that are frozen by name."""

import re
from collections.abc import Iterable, Sequence

from regard.config import Config
from regard.errors import ConfigError, RunError
from regard.models.adapter_files import WHOLE_PARTS, Adapter, weights_checksum
from regard.models.assembly import build_meta
from regard.models.folder_files import resolve_model_folder
from regard.models.network import Network
from regard.nn.lora import add_lora, linear_layers
from regard.training.start_from import freeze_encoder

NAMES_SHOWN = 6  # of layers or parameters, in an error


def check_trained_parts(config: Config) -> None:
    """Raise a ConfigError for patterns of layers or parameters that match nothing, before the data are prepared."""
    training = config.training
    if training.lora.rank or training.freeze:
        network = build_meta(config.model)
        if training.lora.rank:
            assert training.start_from is not None
            weights_checksum(resolve_model_folder(training.start_from))  # the base must not be an adapter itself
            add_lora(network, adapted_layers(network, training.lora.modules), training.lora.rank, training.lora.alpha)
            freeze_base(network)
        freeze_by_name(network, training.freeze)


def base_checksum(config: Config) -> str | None:
    """The checksum of the model that a run adapts; None for a run that trains complete weights."""
    training = config.training
    if not training.lora.rank or training.start_from is None:
        return None
    return weights_checksum(resolve_model_folder(training.start_from))


def adapter_of(config: Config, expected_checksum: str | None) -> Adapter:
    """The adapter that a run trains; `expected_checksum` is that of the base when the run was started."""
    training = config.training
    assert training.start_from is not None
    base = resolve_model_folder(training.start_from)
    checksum = weights_checksum(base)
    if expected_checksum not in (None, checksum):
        raise RunError(
            f"{base}: has other weights than when the run was started, and its adapter fits those only; restore them, "
            "or start a new run."
        )
    layers = adapted_layers(build_meta(config.model), training.lora.modules)
    return Adapter(str(base.resolve()), checksum, training.lora.rank, training.lora.alpha, tuple(layers))


def adapt(network: Network, adapter: Adapter, dropout: float) -> str:
    """Add LoRA matrices to a network with the weights of the base; returns a message with their number."""
    add_lora(network, adapter.modules, adapter.rank, adapter.alpha, dropout)
    network.adapter = adapter
    freeze_base(network)
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    count, total = (sum(part.numel() for part in parts) for parts in (trained, network.parameters()))
    return (
        f"LoRA of rank {adapter.rank} on {len(adapter.modules)} linear layers: {count:,} of {total:,} parameters are "
        "trained."
    )


def adapted_layers(network: Network, patterns: Sequence[str]) -> list[str]:
    """The names of the linear layers that LoRA adapts; heads are trained as a whole."""
    layers = linear_layers(network, lambda name: not name.startswith(WHOLE_PARTS))
    if not layers:
        raise ConfigError(
            "training.lora.rank: this network has no linear layers that LoRA could adapt; train all weights, or select "
            "some with training.freeze."
        )
    _check_matches("training.lora.modules", patterns, layers, "linear layer")
    return [name for name in layers if not patterns or any(re.search(pattern, name) for pattern in patterns)]


def freeze_base(network: Network) -> None:
    """Train the LoRA matrices, the head, the pooling and the layer mixing of ELMo only."""
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name.endswith((".lora_a", ".lora_b")) or name.startswith(WHOLE_PARTS))


def freeze_by_name(network: Network, patterns: Sequence[str]) -> None:
    """Keep the values of parameters whose name has a match."""
    names = [name for name, _ in network.named_parameters()]
    _check_matches("training.freeze", patterns, names, "parameter")
    for name, parameter in network.named_parameters():
        if any(re.search(pattern, name) for pattern in patterns):
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ConfigError(f"training.freeze = {', '.join(patterns)}: freezes all parameters; leave some to train.")


def select_parameters(network: Network, config: Config, checksum: str | None) -> list[str]:
    """Freeze what the settings name and add LoRA matrices, to a network that is initialized; returns messages.

    `checksum` is that of the base when the run was started.
    """
    training, notes = config.training, []
    if training.freeze_encoder:
        freeze_encoder(network)
    if training.lora.rank:
        notes.append(adapt(network, adapter_of(config, checksum), training.lora.dropout))
    if training.freeze:
        freeze_by_name(network, training.freeze)
        sizes = [(parameter.numel(), parameter.requires_grad) for parameter in network.parameters()]
        trained = sum(size for size, trains in sizes if trains)
        notes.append(f"training.freeze: {trained:,} of {sum(size for size, _ in sizes):,} parameters are trained.")
    return notes


def _check_matches(key: str, patterns: Iterable[str], names: Sequence[str], what: str) -> None:
    for pattern in patterns:
        if not any(re.search(pattern, name) for name in names):
            shown = _spread(names)
            raise ConfigError(
                f"{key}: {pattern!r} matches no {what} of the network; the names are such as {', '.join(shown)}."
            )


def _spread(names: Sequence[str]) -> list[str]:
    """The names that differ in more than the number of their layer, at most a few."""
    kinds = {re.sub(r"\d+", "0", name): name for name in reversed(names)}
    return list(reversed(kinds.values()))[:NAMES_SHOWN]
