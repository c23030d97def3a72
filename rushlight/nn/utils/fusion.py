"""Folding a batch normalisation in evaluation mode into the layer before it."""

from __future__ import annotations

import copy
from typing import Any

import rushlight
from rushlight.core.tensor import Tensor

from ..parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def _fuse(weight: Tensor, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float, scale: Tensor | None,
          shift: Tensor | None, channel_dim: int) -> tuple[Parameter, Parameter]:
    bias = rushlight.zeros_like(mean) if bias is None else bias
    scale = rushlight.ones_like(mean) if scale is None else scale
    shift = rushlight.zeros_like(mean) if shift is None else shift
    factor = scale * rushlight.rsqrt(var + eps)
    shape = [1] * weight.dim()
    shape[channel_dim] = -1
    fused_weight = (weight * factor.reshape(shape)).to(weight.dtype)
    fused_bias = ((bias - mean) * factor + shift).to(bias.dtype)
    return Parameter(fused_weight.detach(), weight.requires_grad), Parameter(fused_bias.detach(), bias.requires_grad)


def fuse_conv_bn_weights(conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
                         bn_w: Tensor | None, bn_b: Tensor | None,
                         transpose: bool = False) -> tuple[Parameter, Parameter]:
    """(weight, bias) of the convolution that equals a convolution followed by the batch normalisation."""
    return _fuse(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_weights(linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
                           bn_w: Tensor, bn_b: Tensor) -> tuple[Parameter, Parameter]:
    """(weight, bias) of the linear layer that equals a linear layer followed by the batch normalisation."""
    return _fuse(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def _fused_copy(layer: Any, bn: Any, transpose: bool) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    fused = copy.deepcopy(layer)
    fused.weight, fused.bias = _fuse(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight,
                                     bn.bias,
                                     1 if transpose else 0)
    return fused


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of `conv` that does what `bn(conv(x))` does; both must be in evaluation mode."""
    return _fused_copy(conv, bn, transpose)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of `linear` that does what `bn(linear(x))` does; both must be in evaluation mode."""
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    return _fused_copy(linear, bn, False)
