"""Attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..core import dtype as D
from .declare import composite
from .nn_common import f

if TYPE_CHECKING:
    from ..core.tensor import Tensor


@composite(ns="nn.functional", random=True)
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False):
    """softmax(query @ key.T * scale + mask) @ value. Shapes (..., L, E), (..., S, E), (..., S, Ev); `scale` is 1 / sqrt(E) by default. A
    boolean mask is True where attention takes part; `is_causal`: position i sees positions up to i; `enable_gqa`: groups of
    query heads share a head of key and value."""
    for name, t in (("query", query), ("key", key), ("value", value)):
        if t.dim() < 2:
            raise ValueError(f"Expected query, key, and value to all be  at least 2 dimensional, but got {name}.dim: {t.dim()} instead.")
    if not query.dtype == key.dtype == value.dtype:
        raise ValueError("Expected query, key, and value to have the same dtype, but got query.dtype: "
                         f"{query.dtype} key.dtype: {key.dtype} and value.dtype: {value.dtype} instead.")
    if attn_mask is not None and is_causal:
        raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    if enable_gqa:
        q, k = query.shape[-3], key.shape[-3]
        if k == 0 or q % k or value.shape[-3] != k:
            raise RuntimeError("Number of heads in key and value must divide the number of heads in query")
        if q != k:
            key, value = key.repeat_interleave(q // k, -3), value.repeat_interleave(q // k, -3)
    half = query.dtype if query.dtype.itemsize < 4 else None
    if half is not None:     # scores are sums of many products, and exponents after that
        query, key, value = query.float(), key.float(), value.float()
        attn_mask = attn_mask.float() if attn_mask is not None and attn_mask.is_floating_point() else attn_mask
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None and query.shape[-1] else scale if scale is not None else 1.0
    scores = f("matmul")(query * factor, key.transpose(-2, -1))
    hidden = None
    if is_causal:
        n, m = scores.shape[-2:]
        hidden = f("ones")((n, m), dtype=D.bool_, device=query.device).tril().logical_not()
    elif attn_mask is not None and attn_mask.dtype is D.bool_:
        hidden = attn_mask.logical_not()
    elif attn_mask is not None:
        scores = scores + attn_mask
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    p = f("nn.functional.softmax")(scores, -1)
    if hidden is not None and not is_causal:     # rows that see nothing give 0, not nan
        p = p.masked_fill(hidden.all(-1, True), 0.0)
    if dropout_p > 0.0:
        p = f("nn.functional.dropout")(p, dropout_p, True)
    out = f("matmul")(p, value)
    return out if half is None else out.to(half)


def _additive(mask: Any, name: str, dtype: Any) -> Any:
    """A mask as something to add to scores: boolean ones are True where attention is forbidden."""
    if mask is None:
        return None
    if mask.dtype is D.bool_:
        return f("zeros")(tuple(mask.shape), dtype=dtype, device=mask.device).masked_fill(mask, -math.inf)
    if not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return mask


def _check_batch(query: Any, key: Any, value: Any, key_padding_mask: Any, attn_mask: Any, num_heads: int) -> bool:
    """Whether the input has a batch dimension."""
    if query.dim() not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor")
    d = query.dim()
    kind = "batched (3-D)" if d == 3 else "unbatched (2-D)"
    if key.dim() != d or value.dim() != d:
        raise AssertionError(f"For {kind} `query`, expected `key` and `value` to be {d}-D but found {key.dim()}-D and {value.dim()}-D tensors respectively")
    if key_padding_mask is not None and key_padding_mask.dim() != d - 1:
        raise AssertionError(f"For {kind} `query`, expected `key_padding_mask` to be `None` or {d - 1}-D but found {key_padding_mask.dim()}-D tensor instead")
    if attn_mask is not None and attn_mask.dim() not in (2, 3):
        raise AssertionError(f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.dim()}-D tensor instead")
    if d == 2 and attn_mask is not None and attn_mask.dim() == 3 and tuple(attn_mask.shape) != (num_heads, query.shape[0], key.shape[0]):
        raise AssertionError(f"Expected `attn_mask` shape to be {(num_heads, query.shape[0], key.shape[0])} but got {tuple(attn_mask.shape)}")
    return d == 3


def _project(query: Any, key: Any, value: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any]:
    """The three projections that are stacked in `weight`; one product where the operands are the same tensor."""
    linear = f("nn.functional.linear")
    if query is key and key is value:
        return tuple(linear(query, weight, bias).chunk(3, -1))
    weights = weight.chunk(3)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    if key is value:
        n = query.shape[-1]
        k, v = linear(key, weight.narrow(0, n, 2 * n), None if bias is None else bias.narrow(0, n, 2 * n)).chunk(2, -1)
        return linear(query, weights[0], biases[0]), k, v
    return tuple(linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))  # type: ignore[return-value]


@composite(ns="nn.functional", random=True)
def multi_head_attention_forward(query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None,
                                 in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float,
                                 out_proj_weight: Tensor, out_proj_bias: Tensor | None, training: bool = True, key_padding_mask: Tensor | None = None,
                                 need_weights: bool = True, attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False,
                                 q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None,
                                 static_k: Tensor | None = None, static_v: Tensor | None = None, average_attn_weights: bool = True,
                                 is_causal: bool = False):
    """Multi-head attention with its projections: (result (L, N, E), weights (N, L, S) or None). Inputs are (length, batch, features) or
    (length, features); boolean masks are True where attention is forbidden, others are added to the scores."""
    batched = _check_batch(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        same, packed = query is key and key is value, key is value
        query, key0 = query.unsqueeze(1), key
        key = query if same else key0.unsqueeze(1)
        value = key if packed else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, n, width = query.shape
    source = key.shape[0]
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint. You may use the Transformer module method `generate_square_subsequent_mask` to "
                           "create this mask.")
    padding = _additive(key_padding_mask, "key_padding_mask", query.dtype)
    mask = _additive(attn_mask, "attn_mask", query.dtype)
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    head = width // num_heads
    if head * num_heads != width:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if use_separate_proj_weight:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
        linear = f("nn.functional.linear")
        biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
        for name, w in zip("qkv", weights, strict=True):
            if w is None:
                raise AssertionError(f"use_separate_proj_weight is True but {name}_proj_weight is None")
        q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    else:
        if key.shape != value.shape:
            raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
        if in_proj_weight is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
        q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias)
    if mask is not None:
        want = (length, source) if mask.dim() == 2 else (n * num_heads, length, source)
        if tuple(mask.shape) != want:
            raise RuntimeError(f"The shape of the {mask.dim()}D attn_mask is {mask.shape}, but should be {want}.")
        mask = mask.reshape((1, 1, length, source) if mask.dim() == 2 else (n, num_heads, length, source))
    if (bias_k is None) != (bias_v is None):
        raise AssertionError("bias_k is set but bias_v is None" if bias_v is None else "bias_v is set but bias_k is None")
    more = 0
    if bias_k is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError(f"bias cannot be added to static {'key' if static_k is not None else 'value'}.")
        k, v = (f("cat")([x, b.expand((1, n, width))]) for x, b in ((k, bias_k), (v, bias_v)))
        more += 1
    q, k, v = (x.reshape((x.shape[0], n, num_heads, head)).permute(1, 2, 0, 3) for x in (q, k, v))
    for name, x in (("k", static_k), ("v", static_v)):
        if x is None:
            continue
        for d, size in ((0, n * num_heads), (2, head)):
            if x.shape[d] != size:
                raise AssertionError(f"expecting static_{name}.size({d}) of {size}, but got {x.shape[d]}")
        x = x.reshape((n, num_heads, x.shape[1], head))
        k, v = (x, v) if name == "k" else (k, x)
    if add_zero_attn:
        zero = f("zeros")((n, num_heads, 1, head), dtype=k.dtype, device=k.device)
        k, v = f("cat")([k, zero], 2), f("cat")([v, zero], 2)
        more += 1
    pad = f("nn.functional.pad")
    if more:      # the added positions are always seen
        mask = None if mask is None else pad(mask, (0, more))
        padding = None if padding is None else pad(padding, (0, more))
    if padding is not None:
        if tuple(padding.shape) != (n, k.shape[2]):
            raise AssertionError(f"Expected key_padded_mask.shape to be {(n, k.shape[2])}, but got {tuple(padding.shape)}")
        padding = padding.reshape((n, 1, 1, k.shape[2]))
        mask = padding if mask is None else mask + padding
    dropped = dropout_p if training else 0.0
    weights = None
    if need_weights:
        scores = f("matmul")(q * math.sqrt(1.0 / head), k.transpose(-2, -1))
        weights = f("nn.functional.softmax")(scores if mask is None else scores + mask, -1)
        if dropped > 0.0:
            weights = f("nn.functional.dropout")(weights, dropped)
        out = f("matmul")(weights, v)
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        out = scaled_dot_product_attention(q, k, v, mask, dropped)
    out = out.permute(2, 0, 1, 3).reshape((length * n, width))
    out = f("nn.functional.linear")(out, out_proj_weight, out_proj_bias)
    out = out.reshape((length, n, out.shape[1]))
    if not batched:
        out, weights = out.squeeze(1), None if weights is None else weights.squeeze(0)
    return out, weights


# --- Inputs for the generated tests (ops.samples) ---
scaled_dot_product_attention.samples(lambda s: [s.call(s((2, 3, 4)), s((2, 5, 4)), s((2, 5, 2))), s.call(s((1, 3, 2)), s((1, 3, 2)), s((1, 3, 2)), is_causal=True),
                                                s.call(s((3, 2)), s((4, 2)), s((4, 2)), s.bools((3, 4)), scale=0.7)])
