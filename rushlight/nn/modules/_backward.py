"""Backward hooks of modules: identity nodes around the module's inputs and outputs that carry the hooks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight.autograd.function import Function
from rushlight.core.tensor import Tensor

__all__ = ["BackwardHook", "BackwardHookFunction", "setup_plain_hooks"]


class BackwardHookFunction(Function):
    """The identity on several tensors: one node that sees all their gradients at once."""

    @staticmethod
    def forward(ctx: Any, *args: Tensor) -> tuple[Tensor, ...]:
        ctx.mark_non_differentiable(*[a for a in args if not a.requires_grad])
        return args

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return grads


class BackwardHook:
    """Runs the full backward hooks and backward pre-hooks of one call of `module`."""

    def __init__(self, module: Any, user_hooks: list[Callable], user_pre_hooks: list[Callable]) -> None:
        self.module, self.user_hooks, self.user_pre_hooks = module, user_hooks, user_pre_hooks
        self.grad_outputs: tuple | None = None
        self.n_inputs = self.n_outputs = -1
        self.input_indices: list[int] | None = None
        self.output_indices: list[int] | None = None

    def setup_input_hook(self, args: tuple) -> tuple:
        """`args` with their tensors passed through an identity node whose hook sees the gradients of the inputs."""
        result, self.input_indices = self._through_node(lambda node: node.register_hook(self._at_inputs), args)
        self.n_inputs = len(args)
        return result

    def setup_output_hook(self, result: Any) -> Any:
        """`result` with its tensors passed through an identity node whose hook sees the gradients of the outputs."""
        single = not isinstance(result, tuple)
        values = (result,) if single else result
        values, self.output_indices = self._through_node(lambda node: node.register_hook(self._at_outputs), values)
        self.n_outputs = len(values)
        return values[0] if single else values

    def _through_node(self, attach: Callable[[Any], Any], values: tuple) -> tuple[tuple, list[int] | None]:
        indices = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
        tensors = [values[i] for i in indices]
        if not (any(t.requires_grad for t in tensors) and rushlight.is_grad_enabled()):
            return values, None
        passed = BackwardHookFunction.apply(*tensors)
        node = next((t.grad_fn for t in passed if t.grad_fn is not None), None)
        if node is None:
            raise RuntimeError(f"backward hooks of {type(self.module).__name__}: none of its {len(tensors)} tensors "
                               "got a gradient node although one of them requires grad")
        attach(node)
        out = list(values)
        for i, t in zip(indices, passed, strict=True):
            out[i] = t
        return (tuple(out) if type(values) is tuple else type(values)(*out)), indices

    @staticmethod
    def _spread(indices: list[int] | None, values: Any, size: int) -> tuple:
        out: list[Any] = [None] * size
        for i, v in zip(indices or (), values, strict=indices is not None):
            out[i] = v
        return tuple(out)

    def _at_inputs(self, grad_inputs: tuple, _grad_outputs: tuple) -> tuple | None:
        if self.grad_outputs is None:  # backward did not pass through the module's outputs
            return None
        result: Any = self._spread(self.input_indices, grad_inputs, self.n_inputs)
        for hook in self.user_hooks:
            changed = hook(self.module, result, self.grad_outputs)
            if changed is None:
                continue
            if len(changed) != len(result):
                raise RuntimeError("Backward hook returned an invalid number of grad_input, got "
                                   f"{len(changed)}, but expected {len(result)}")
            result = changed
        self.grad_outputs = None
        return tuple(result[i] for i in self.input_indices or ())

    def _at_outputs(self, _grad_inputs: tuple, grad_outputs: tuple) -> tuple:
        self.grad_outputs = self._spread(self.output_indices, grad_outputs, self.n_outputs)
        for hook in self.user_pre_hooks:
            changed = hook(self.module, self.grad_outputs)
            if changed is None:
                continue
            if len(changed) != len(self.grad_outputs):
                raise RuntimeError("Backward pre hook returned an invalid number of grad_output, got "
                                   f"{len(changed)}, but expected {len(self.grad_outputs)}")
            self.grad_outputs = tuple(changed)
        outputs = self.grad_outputs
        if self.input_indices is None:
            warnings.warn("Full backward hook is firing when gradients are computed with respect to module outputs "
                          "since no inputs require gradients. See "
                          "https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html"
                          "#torch.nn.Module.register_full_backward_hook "
                          "for more details.", stacklevel=5)
            for hook in self.user_hooks:
                changed = hook(self.module, (None,) * self.n_inputs, outputs)
                if changed is not None and not (isinstance(changed, tuple) and all(c is None for c in changed)):
                    raise RuntimeError("Backward hook for Modules where no input requires gradient should always "
                                       "return None or None for all gradients.")
            self.grad_outputs = None
        return tuple(outputs[i] for i in self.output_indices or ())


def setup_plain_hooks(module: Any, hooks: list[Callable], inputs: Any, result: Any) -> None:
    """The deprecated `register_backward_hook`: hooks on the node that made the (first) output."""
    first = result
    while not isinstance(first, Tensor):
        first = next(v for v in first.values() if isinstance(v, Tensor)) if isinstance(first, dict) else first[0]
    node = first.grad_fn
    if node is None:
        return
    from .module import _WrappedHook

    for hook in hooks:
        node.register_hook(_WrappedHook(hook, module))
    problem = _plain_hook_problem(inputs, result, node)
    if problem:
        warnings.warn(problem, FutureWarning, stacklevel=5)


_FULL = " Please use register_full_backward_hook to get the documented behavior."


def _plain_hook_problem(inputs: Any, result: Any, node: Any) -> str | None:
    """The warning that PyTorch gives where a non-full hook sees less than the module's gradients."""
    results = (result,) if isinstance(result, Tensor) else result
    if not (isinstance(results, tuple) and all(isinstance(r, Tensor) for r in results)):
        return ("Using non-full backward hooks on a Module that does not return a single Tensor or a tuple of "
                "Tensors is deprecated and will be removed in future versions. This hook will be missing some of the "
                "grad_output."
                + _FULL)
    given = (inputs,) if isinstance(inputs, Tensor) else inputs
    if not (isinstance(given, tuple) and all(isinstance(i, Tensor) for i in given)):
        return ("Using non-full backward hooks on a Module that does not take as input a single Tensor or a tuple of "
                "Tensors is deprecated and will be removed in future versions. This hook will be missing some of the "
                "grad_input." + _FULL)
    made_by = {r.grad_fn for r in results if r.grad_fn is not None}
    if len(made_by) == 0 or (len(made_by) == 1 and node not in made_by):
        return ("Using a non-full backward hook when outputs are nested in python data structure is deprecated and "
                "will be removed in future versions. This hook will be missing some grad_output.")
    if len(made_by) > 1:
        return ("Using a non-full backward hook when outputs are generated by different autograd Nodes is deprecated "
                "and will be removed in future versions. This hook will be missing some grad_output." + _FULL)
    if {i.grad_fn for i in given if i.grad_fn is not None} != {n[0] for n in node.next_functions}:
        return ("Using a non-full backward hook when the forward contains multiple autograd Nodes is deprecated and "
                "will be removed in future versions. This hook will be missing some grad_input." + _FULL)
    return None
