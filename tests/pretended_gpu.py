"""A pretended GPU: its tensors say `cuda:0`, are computed on the processor, and are refused where a GPU would refuse them.

Code for a GPU goes wrong in few ways that a processor hides: a tensor that was left on the processor, an index on the wrong
device, an array of numpy made from the GPU's memory. Inside `pretended_gpu()` these raise, and results are those of the
processor. Speed, rounding and CUDA's own kernels are not pretended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

GPU = torch.device("cuda:0")
PROPERTIES = {"device": GPU, "is_cuda": True, "is_cpu": False}
MOVES = {"to", "cpu"}
INDEXING = {"__getitem__", "__setitem__"}
PACKING = {"_pack_padded_sequence", "_pad_packed_sequence"}
MIXING = {*MOVES, *PACKING, "copy_", "gru", "lstm", "__set__", "_has_compatible_shallow_copy_type"}
"""Functions that take tensors of both devices."""
NOWHERE = 2**62
"""Added to addresses, so that a compiled kernel of the processor cannot read there."""


class PretendedTensor(Tensor):
    """A tensor on the pretended GPU; `held` is its content."""

    held: Tensor

    @staticmethod
    def of(held: Tensor) -> PretendedTensor:
        """Return a tensor on the GPU with this content, without a copy."""
        tensor = Tensor._make_subclass(PretendedTensor, torch.empty(0))
        tensor.held = held
        return tensor

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse every use outside of `pretended_gpu()`; inside, the mode below comes first."""
        raise RuntimeError(f"{function.__name__} of a tensor whose pretended GPU has gone")


class PretendedGpu(TorchFunctionMode):
    """Calls torch's functions for tensors of both devices."""

    def __torch_function__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Call the function with the contents of the tensors, and put its results on the GPU if they belong there."""
        kwargs, name = kwargs or {}, function.__name__
        tensors = _tensors((args, kwargs))
        on_gpu = [tensor for tensor in tensors if isinstance(tensor, PretendedTensor)]
        on_processor = [tensor for tensor in tensors if not isinstance(tensor, PretendedTensor)]
        is_from_gpu = isinstance(args[0], PretendedTensor) if name in MOVES else bool(on_gpu)
        is_to_gpu = _is_to_gpu(name, args, kwargs, is_from_gpu)
        if not on_gpu and not is_to_gpu:
            return function(*args, **kwargs)
        if name == "__get__" and function.__self__.__name__ in PROPERTIES:
            return PROPERTIES[function.__self__.__name__]
        if on_gpu:
            _refuse(name, args, on_processor)
        if name == "__set__" and on_gpu and on_processor:  # a module's `to` gives each parameter other data
            return _move_parameter(args[0], args[1])
        plain_args, plain_kwargs = _mapped(lambda one: one.held if isinstance(one, PretendedTensor) else one, (args, kwargs))
        if _is_gpu(kwargs.get("device")):
            plain_kwargs["device"] = "cpu"
        if name == "to":
            plain_args = tuple("cpu" if _is_gpu(argument) else argument for argument in plain_args)
        result = function(*plain_args, **plain_kwargs)
        if name in MOVES and is_from_gpu != is_to_gpu:
            result = result.clone()
        if name == "data_ptr":
            return result and result + NOWHERE
        if name in PACKING:
            return PretendedTensor.of(result[0]), result[1]
        if not is_to_gpu:
            return result
        same = {id(tensor): tensor for tensor in on_processor} | {id(tensor.held): tensor for tensor in on_gpu}
        return _mapped(lambda one: same[id(one)] if id(one) in same else PretendedTensor.of(one), result)


def _mapped(change: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Return arguments or results with their tensors changed; `torch.utils._pytree` takes ten times as long."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, list | tuple):
        parts, kind = [_mapped(change, part) for part in tree], type(tree)
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    return {key: _mapped(change, part) for key, part in tree.items()} if isinstance(tree, dict) else tree


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def _move_parameter(parameter: Any, data: PretendedTensor) -> None:
    """Put a parameter on the GPU in place, as torch does: modules that share it go on to do so."""
    held = data.held.detach().requires_grad_(parameter.requires_grad)
    parameter.__class__ = PretendedTensor
    parameter.held, parameter._is_param = held, True


def _is_gpu(device: object) -> bool:
    return isinstance(device, str | torch.device) and str(device).startswith("cuda")


def _is_to_gpu(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], is_from_gpu: bool) -> bool:
    """Return whether the tensors that a call returns are on the GPU."""
    device = kwargs.get("device")
    if name == "cpu":
        return False
    if name == "to":
        like = [argument for argument in args[1:] if isinstance(argument, str | torch.device | Tensor)]
        device = next((GPU if isinstance(one, PretendedTensor) else one for one in like), device)
    return is_from_gpu if device is None else _is_gpu(device)


def _refuse(name: str, args: tuple[Any, ...], on_processor: list[Tensor]) -> None:
    """Raise the error of a GPU for arguments beside its tensors that it does not take."""
    if name in ("numpy", "__array__"):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")
    if name in ("gru", "lstm") and torch.is_autocast_enabled():
        # Autocast gives cuDNN float16, whatever type was asked for, and torch does not join that to bfloat16.
        raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
    misplaced = [tensor for tensor in on_processor if tensor.dim() and name not in MIXING]
    if name in INDEXING and isinstance(args[0], PretendedTensor):  # an index may be on the processor, a value may not
        misplaced = [value for value in _tensors(args[2:]) if not isinstance(value, PretendedTensor) and value.dim()]
    if name in PACKING:  # packed values are on the GPU, their lengths on the processor
        misplaced = [value for value in args[1:2] if isinstance(value, PretendedTensor)]
    if misplaced:
        raise RuntimeError(f"Expected all tensors to be on the same device, or lengths on the processor, in {name}")


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """Let torch see one GPU until the block ends."""
    cuda = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "is_bf16_supported": lambda: True,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_name": lambda device=None: "a pretended GPU",
        "device": nullcontext,
        "synchronize": lambda device=None: None,
    }
    with ExitStack() as stack:
        for name, value in cuda.items():
            stack.enter_context(patch.object(torch.cuda, name, value))
        stack.enter_context(patch.object(torch.backends.cudnn, "is_acceptable", lambda tensor: False))
        stack.enter_context(PretendedGpu())
        yield
