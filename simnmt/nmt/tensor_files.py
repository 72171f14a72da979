"""Named tensors in safetensors files: reading one runs no code, whatever it holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor, nn

from simnmt.files import written_whole


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: Mapping[str, str] | None = None) -> None:
    """Write tensors, no two of which share memory, whole; raises `OSError` and `SafetensorError`."""
    with written_whole(path) as partial:
        partial.touch()
        usual = partial.stat().st_mode & 0o777
        save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
            partial,
            dict(note) if note else None,
        )
        partial.chmod(usual)  # the library makes a file of its own, readable to nobody else


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Weights and buffers by name, without those whose memory an earlier name holds: tied embeddings are written once."""
    first: dict[int, str] = {}
    state = model.state_dict()
    return {name: tensor for name, tensor in state.items() if first.setdefault(tensor.data_ptr(), name) == name}
