"""Ready-made parametrizations: orthogonal matrices, weight and spectral normalisation."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import _missing
from rushlight.core.tensor import Tensor

from .. import functional as F
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module
from .parametrize import register_parametrization
from .weight_norm import _norm

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def _weight_of(module: Module, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


def _near_orthogonal(q: Tensor) -> bool:
    """Whether the columns are orthonormal up to rounding."""
    n, k = q.size(-2), q.size(-1)
    one = rushlight.eye(k, dtype=q.dtype, device=q.device)
    return rushlight.allclose(q.mH @ q, one, atol=10.0 * n * rushlight.finfo(q.dtype).eps)


def _orthogonalized(a: Tensor) -> Tensor:
    """The factor Q of QR, with the signs for which R's diagonal is positive."""
    factors, tau = rushlight.geqrf(a)
    q = rushlight.linalg.householder_product(factors, tau)
    return q * factors.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        self.use_trivialization = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def _mapped(self, x: Tensor) -> Tensor:
        """An n x k matrix (n >= k) with orthonormal columns, from the lower triangle of x."""
        n, k = x.size(-2), x.size(-1)
        if self.orthogonal_map == "householder":
            a = x.tril(diagonal=-1)
            q = rushlight.linalg.householder_product(a, 2.0 / (1.0 + (a * a).sum(dim=-2)))
            return q * x.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)
        low = x.tril()
        if n != k:
            low = rushlight.cat([low, low.new_zeros((*x.shape[:-2], n, n - k))], dim=-1)
        skew = low - low.mH
        if self.orthogonal_map == "matrix_exp":
            q = rushlight.matrix_exp(skew)
        else:
            one = rushlight.eye(n, dtype=x.dtype, device=x.device)
            q = rushlight.linalg.solve(rushlight.add(one, skew, alpha=-0.5), rushlight.add(one, skew, alpha=0.5))
        return q[..., :k]

    def forward(self, x: Tensor) -> Tensor:
        wide = x.size(-2) < x.size(-1)
        q = self._mapped(x.mT if wide else x)
        if self.use_trivialization and self.base is not None:
            q = self.base @ q
        return q.mT if wide else q

    @rushlight.no_grad()
    def right_inverse(self, q: Tensor) -> Tensor:
        if q.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape "
                             f"{q.shape}.")
        given = q
        wide = q.size(-2) < q.size(-1)
        q = q.mT if wide else q
        n, k = q.size(-2), q.size(-1)
        if not self.use_trivialization:
            if self.orthogonal_map in ("matrix_exp", "cayley"):
                raise NotImplementedError("It is not possible to assign to the matrix exponential or the Cayley "
                                          "parametrizations when use_trivialization=False.")
            factors, tau = rushlight.geqrf(q)
            diagonal = factors.diagonal(dim1=-2, dim2=-1)
            diagonal.sign_()  # the signs of R are what forward reads there
            diagonal[tau == 0.0] *= -1
            return factors.mT if wide else factors
        if n != k:  # the missing columns are any that complete a basis
            rest = rushlight.randn(*q.shape[:-2], n, n - k, dtype=q.dtype, device=q.device)
            q = _orthogonalized(rushlight.cat([q, rest], dim=-1))
        else:
            q = q.clone() if _near_orthogonal(q) else _orthogonalized(q)
        self.base = q
        minus = rushlight.zeros_like(given)
        minus.diagonal(dim1=-2, dim2=-1).fill_(-1.0)  # mapped to the identity by each of the maps
        return minus


def orthogonal(module: Module, name: str = "weight", orthogonal_map: str | None = None, *,
               use_trivialization: bool = True) -> Module:
    """Keeps the matrix (or batch of matrices) `name` orthogonal: orthonormal columns, or rows where it is wide.

    `orthogonal_map`: "matrix_exp" (default of square and complex ones), "cayley" or "householder" (default of others).
    With `use_trivialization` the map starts at the present value. ValueError for other maps, vectors and missing names.
    """
    weight = _weight_of(module, name)
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError('orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
                         f"Got: {orthogonal_map}")
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / _norm(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return _norm(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Splits the parameter `name` into its norm over all dimensions but `dim` (None: over all) and its direction:
    `parametrizations.<name>.original0` and `original1`. States of the old `weight_norm` load. Returns `module`."""
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def old_names(state_dict: Any, prefix: str, *rest: Any) -> None:
        g, v = f"{prefix}{name}_g", f"{prefix}{name}_v"
        if g in state_dict and v in state_dict:
            state_dict[f"{prefix}parametrizations.{name}.original0"] = state_dict.pop(g)
            state_dict[f"{prefix}parametrizations.{name}.original1"] = state_dict.pop(v)

    module._register_load_state_dict_pre_hook(old_names)
    return module


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.ndim
        if dim >= ndim or dim < -ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError("Expected n_power_iterations to be positive, but got n_power_iterations="
                             f"{n_power_iterations}")
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._matrix(weight.detach())
            rows, columns = matrix.size()
            u, v = matrix.new_empty(rows).normal_(0, 1), matrix.new_empty(columns).normal_(0, 1)
            self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    @rushlight.no_grad()
    def _iterate(self, matrix: Tensor, steps: int) -> None:
        for _ in range(steps):
            self._u.copy_(F.normalize(rushlight.mv(matrix, self._v), dim=0, eps=self.eps))
            self._v.copy_(F.normalize(rushlight.mv(matrix.mH, self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # the next forward overwrites the buffers
        return weight / rushlight.vdot(u, rushlight.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> Module:
    """Divides the weight by its largest singular value, found by power iterations that training reads advance. `dim`
    is the dimension of the outputs: default 0, 1 for transposed convolutions. Returns `module`."""
    weight = _weight_of(module, name)
    if dim is None:
        dim = 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


_missing.hint(__name__)
