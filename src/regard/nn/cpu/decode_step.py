"""One cached step of a Transformer decoder: the same numbers as `Stack.forward` with one or few new tokens per row.

A step of a small network is a few hundred operations on tiny tensors, and reading every weight once. So the step is
prepared once per network: linear layers get copies of their weights in the order in which few rows read them fastest,
and the steps of a block call functions without taps, dropout and module calls in between. Position schemes and
attention kernels are the modules' own. `decode_step` returns None where only the plain code will do: while a hook is
registered, in training, and for layers of other types than this module knows.

R rows · T new tokens of each · C model width · N output width · H query heads · G key and value heads · D key width
E value width · B sentences · S keys · V vocabulary
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from regard.nn import cpu
from regard.nn.attention import FullAttention, scaled_dot_product_attention
from regard.nn.cache import DecoderCache, LayerCache
from regard.nn.embedding import OutputProjection
from regard.nn.experts import MixtureOfExperts
from regard.nn.feed_forward import FeedForward, GatedFeedForward
from regard.nn.layout import Layout, PaddingMask, make_layout
from regard.nn.lora import LoRALinear
from regard.nn.multihead import CrossAttention, SelfAttention
from regard.nn.positions import Positions
from regard.nn.transformer import Block, PostNorm, PreNorm, Residual, SandwichNorm, Stack

MIN_COPIED = 2**17  # weights of a layer from which it is copied: smaller ones stay in the processor's cache
MAX_TOKENS = 64  # of a row in a step, a block of a prompt: longer prompts are the plain code's
PACKED_FOR = 16  # rows that the blocked format is made for, at least
MAX_PACKED_ROWS = 64  # more rows are a matrix product that needs no preparation
Function = Callable[[Tensor], Tensor]


class UnsupportedLayerError(Exception):
    """A stack has a layer that a prepared step does not know."""


@dataclass
class _Copies:
    """Copies of a weight as it was at one time."""

    of: tuple[int, int]
    transposed: Tensor | None = None
    packed: Tensor | None = None


_COPIES = WeakTensorKeyDictionary()  # by weight: the networks of several adapters share those of their base model


def _copies_of(weight: Tensor) -> _Copies:
    state = weight.data_ptr(), weight._version
    copies: _Copies | None = _COPIES.get(weight)
    if copies is None or copies.of != state:
        copies = _COPIES[weight] = _Copies(state)
    return copies


class FewRowsLinear:
    """x Wᵀ + b for few rows x (R, C), with a copy of W (N, C) for one row and another for several, made on first use.

    Products with one row read the weights once, and PyTorch's read them at a third of the memory's speed: with Wᵀ in
    contiguous rows it is about half. Several rows take oneDNN's blocked format.
    """

    min_copied = MIN_COPIED

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = bias
        changes_are_counted = not weight.is_inference()  # or a copy could become outdated unnoticed
        copied = changes_are_counted and weight.dtype == torch.float32 and weight.numel() >= self.min_copied
        self._copies = _copies_of(weight) if copied else None

    @classmethod
    def of(cls, linear: nn.Module) -> Function:
        """Return the same function as a linear layer, with its LoRA matrices if it has some."""
        if type(linear) not in (nn.Linear, LoRALinear):
            raise UnsupportedLayerError
        assert isinstance(linear, nn.Linear)
        if type(linear.weight) is not nn.Parameter:
            raise UnsupportedLayerError
        product = cls(linear.weight, linear.bias)
        if not isinstance(linear, LoRALinear):
            return product
        lora, down, up = linear, cls(linear.lora_a, None), cls(linear.lora_b, None)
        return lambda x: product(x) + up(down(x) * lora.scale) if lora.enabled else product(x)

    def __call__(self, x: Tensor) -> Tensor:
        """(R, C) -> (R, N)"""
        copies = self._copies
        if copies is None or len(x) > MAX_PACKED_ROWS:
            return F.linear(x, self._weight, self._bias)
        if len(x) == 1:
            if copies.transposed is None:
                copies.transposed = self._weight.detach().t().contiguous()
            return x @ copies.transposed if self._bias is None else torch.addmm(self._bias, x, copies.transposed)
        if not torch.backends.mkldnn.is_available():
            return F.linear(x, self._weight, self._bias)
        return self.packed_product(x, copies)

    def packed_product(self, x: Tensor, copies: _Copies) -> Tensor:
        """Return the product with the weights in oneDNN's blocked format."""
        if copies.packed is None:
            copies.packed = torch.ops.mkldnn._reorder_linear_weight(self._weight.detach(), max(len(x), PACKED_FOR))
        return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, copies.packed, self._bias, "none", [], ""))


class PreparedModules:
    """Base of prepared steps: whether they still do what their modules do."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._hooks = [hooks for part in modules for hooks in (part._forward_hooks, part._forward_pre_hooks)]
        self._children = [(part._modules, name) for part in modules for name in part._modules]
        self._weights = [(part._parameters, name) for part in modules for name in part._parameters]
        self._prepared_from = self._current_parts()

    def __deepcopy__(self, _memo: object) -> None:
        """Return None: a copy of the network prepares its own step."""

    @property
    def is_watched(self) -> bool:
        """Whether a hook is registered on any module."""
        return any(self._hooks)

    @property
    def is_current(self) -> bool:
        """Whether modules and weights are those that the step was prepared from."""
        return self._current_parts() == self._prepared_from

    def _current_parts(self) -> list[tuple[int, ...]]:
        weights = [weight for owner, name in self._weights if (weight := owner.get(name)) is not None]
        return [
            *((id(owner.get(name)),) for owner, name in self._children),
            *((id(weight), weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in weights),
        ]


class DecodeStep(PreparedModules):
    """The prepared step of one decoder with its output projection."""

    linear: type[FewRowsLinear] = FewRowsLinear

    def __init__(self, stack: Stack, output: OutputProjection) -> None:
        if type(stack) is not Stack or type(output) is not OutputProjection:
            raise UnsupportedLayerError
        super().__init__([*stack.modules(), *output.modules()])
        self._embedding = stack.embedding
        self._blocks = [
            _block_step(layer, self.attention_step(number, layer), self.linear)
            for number, layer in enumerate(map(plain_block, stack.layers))
        ]
        self.num_layers = len(self._blocks)
        self._norm = stack.norm
        self._causal = stack.causal
        self._logits = self.linear(output.weight, output.bias)
        self._cap = output.cap
        self._memory_mask: tuple[Tensor, PaddingMask] | None = None  # of the last step

    def attention_step(self, number: int, block: Block) -> "AttentionStep":
        """Return the step of the self-attention of a block, given the number of its layer."""
        return _self_attention_step(block.attention)

    def __call__(self, ids: Tensor, cache: DecoderCache, memory: Tensor | None, memory_mask: Tensor | None) -> Tensor:
        """ids (R, T) -> logits (R, T, V); adds the keys and values of the tokens to the cache."""
        layout = make_layout(ids, before=cache.length, past_mask=cache.mask, causal=self._causal, pack=False)
        cross = None if memory is None else layout.cross(memory, self._padding(memory_mask), pack=False)
        x = self._embedding(ids, layout.queries).flatten(0, 1)  # (R·T, C)
        for block, layer in zip(self._blocks, cache.layers, strict=True):
            x = block(x, layout, memory, cross, layer)
        cache.advance(ids, None)
        return self._cap(self._logits(x if self._norm is None else self._norm(x))).unflatten(0, ids.shape)

    def _padding(self, mask: Tensor | None) -> PaddingMask | None:
        """Return the mask of the memory with its copy on the CPU, which is the same at every step."""
        if mask is None:
            return None
        if self._memory_mask is None or self._memory_mask[0] is not mask:
            self._memory_mask = mask, PaddingMask.of(mask)
        return self._memory_mask[1]


def decode_step(
    stack: Stack,
    output: OutputProjection,
    ids: Tensor,
    cache: DecoderCache,
    memory: Tensor | None = None,
    memory_mask: Tensor | None = None,
) -> Tensor | None:
    """Return the logits (R, T, V) after each of a few new tokens ids (R, T).

    None: use the plain code, the cache has not changed.
    """
    if (
        ids.dim() != 2
        or not 1 <= ids.size(1) <= MAX_TOKENS
        or stack.training
        or torch.is_grad_enabled()
        or not cpu.enabled(ids.device)
    ):
        return None
    if torch.is_autocast_enabled("cpu") or (memory is not None and len(ids) % len(memory)):
        return None
    step = stack.prepared_step
    if not isinstance(step, DecodeStep) or (cache.length == 0 and not step.is_current):
        try:
            step = stack.prepared_step = DecodeStep(stack, output)
        except UnsupportedLayerError:
            return None
    return None if step.is_watched else step(ids, cache, memory, memory_mask)


BlockStep = Callable[[Tensor, Layout, Tensor | None, Layout | None, LayerCache], Tensor]
AttentionStep = Callable[[Tensor, Layout, LayerCache], Tensor]


def plain_block(block: nn.Module) -> Block:
    """Return a block, of whose type a prepared step knows everything."""
    if type(block) is not Block or type(block.attention) is not SelfAttention:
        raise UnsupportedLayerError
    return block


def _block_step(block: Block, attention: AttentionStep, linear: type[FewRowsLinear]) -> BlockStep:
    """Return the step of a block: states (R·T, C) to states (R·T, C)."""
    attention_residual = _residual(block.attention_residual)
    cross_attention = None if block.cross_attention is None else _cross_attention_step(block.cross_attention)
    cross_residual = None if block.cross_attention_residual is None else _residual(block.cross_attention_residual)
    feed_forward = None if block.feed_forward is None else _feed_forward(block.feed_forward, linear)
    feed_forward_residual = None if block.feed_forward_residual is None else _residual(block.feed_forward_residual)

    def step(
        x: Tensor, layout: Layout, memory: Tensor | None, cross_layout: Layout | None, cache: LayerCache
    ) -> Tensor:
        source = x if block.parallel else None
        x = attention_residual(x, lambda x: attention(x, layout, cache), source)
        if cross_residual is not None and cross_attention is not None:
            assert memory is not None
            assert cross_layout is not None
            x = cross_residual(x, lambda x: cross_attention(x, memory, cross_layout, cache), source)
        if feed_forward_residual is not None and feed_forward is not None:
            x = feed_forward_residual(x, feed_forward, source)
        return x

    return step


def _residual(residual: Residual) -> Callable[[Tensor, Function, Tensor | None], Tensor]:
    """Return the step of a residual connection: states x, a sub-layer, and what it reads, x itself if None."""
    norm: Function = residual.norm.forward
    if type(residual) is PreNorm:

        def add(x: Tensor, sublayer: Function, source: Tensor | None) -> Tensor:
            y = sublayer(norm(x if source is None else source))
            return x + y if residual.connected else y

    elif type(residual) is SandwichNorm:
        output_norm: Function = residual.output_norm.forward

        def add(x: Tensor, sublayer: Function, source: Tensor | None) -> Tensor:
            y = output_norm(sublayer(norm(x if source is None else source)))
            return x + y if residual.connected else y

    elif type(residual) is PostNorm:

        def add(x: Tensor, sublayer: Function, source: Tensor | None) -> Tensor:
            y = sublayer(x if source is None else source)
            return norm(x + y if residual.connected else y)

    else:
        raise UnsupportedLayerError
    return add


def _self_attention_step(attention: SelfAttention) -> AttentionStep:
    project, output = FewRowsLinear.of(attention.query_key_value), FewRowsLinear.of(attention.output)
    positions, kernel = attention.positions, attention.kernel
    rotates = type(positions).rotate is not Positions.rotate
    is_plain = type(kernel) is FullAttention and kernel.soft_cap is None and not positions.mixes
    heads, kv_heads, scale = attention.heads, attention.kv_heads, kernel.scale
    key_width, value_width, sizes = attention.key_width, attention.value_width, attention.sizes

    def step(x: Tensor, layout: Layout, cache: LayerCache) -> Tensor:
        tokens = layout.mask.queries
        q, k, v = project(x).split(sizes, dim=-1)
        q = q.view(-1, tokens, heads, key_width).transpose(1, 2)  # (R, H, T, D)
        k = k.view(-1, tokens, kv_heads, key_width).transpose(1, 2)  # (R, G, T, D)
        v = v.view(-1, tokens, kv_heads, value_width).transpose(1, 2)  # (R, G, T, E)
        q, k = attention.normed_queries(q), attention.normed_keys(k)
        if rotates:
            q, k = positions.rotate(q, layout.queries), positions.rotate(k, layout.queries)
        max_past = kernel.max_past if layout.mask.key_mask is None else None
        k, v = cache.own.append(k, v, max_past)
        bias = positions.bias(q, layout) if positions.biases else None
        if is_plain:
            out = scaled_dot_product_attention(q, k, v, layout.mask, bias, scale=scale, dropout=0.0)
        else:
            mix = partial(positions.mix, layout=layout) if positions.mixes else None
            out = kernel(q, k, v, layout, bias, mix)
        return output(out.transpose(1, 2).reshape(len(x), heads * value_width))

    return step


def _cross_attention_step(attention: CrossAttention) -> Callable[[Tensor, Tensor, Layout, LayerCache], Tensor]:
    if type(attention) is not CrossAttention or type(attention.kernel) is not FullAttention:
        raise UnsupportedLayerError
    if attention.kernel.soft_cap is not None:
        raise UnsupportedLayerError
    query, output = FewRowsLinear.of(attention.query), FewRowsLinear.of(attention.output)
    heads, key_width, value_width = attention.heads, attention.key_width, attention.value_width
    scale = attention.kernel.scale

    def step(x: Tensor, memory: Tensor, layout: Layout, cache: LayerCache) -> Tensor:
        k, v = attention.memory_heads(memory, layout, cache.cross)  # (B, G, S, D), (B, G, S, E)
        q = query(x).view(len(k), -1, heads, key_width).transpose(1, 2)  # (B, H, R/B·T, D): rows are further queries
        q = attention.normed_queries(q)
        out = scaled_dot_product_attention(q, k, v, layout.mask, None, scale=scale, dropout=0.0)
        return output(out.transpose(1, 2).reshape(len(x), heads * value_width))

    return step


def _feed_forward(module: nn.Module, linear: type[FewRowsLinear]) -> Function:
    if type(module) is FeedForward:
        inner, activation, output = linear.of(module.inner), module.activation.forward, linear.of(module.output)
        return lambda x: output(activation(inner(x)))
    if type(module) is GatedFeedForward:
        gates, out = linear.of(module.inner), linear.of(module.output)
        activate: Function = module.activation.forward

        def gated(x: Tensor) -> Tensor:
            gate, value = gates(x).chunk(2, dim=-1)
            return out(activate(gate) * value)

        return gated
    if type(module) is MixtureOfExperts:
        mixture, experts = module, [_feed_forward(expert, linear) for expert in module.experts]
        return lambda x: mixture.sparse(x, *mixture.choose(mixture.route(x)), experts)
    return module  # position-wise, so that (R·T, C) is as good as (R, T, C)
