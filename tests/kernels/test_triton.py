"""The Triton kernels: interpreted on the CPU against a float64 softmax, and compiled for GPUs that are not here."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaigns.harness import SCALE

HERE = Path(__file__).parent

if importlib.util.find_spec("triton") is None:
    if os.environ.get("SIMNMT_TRITON") == "required":
        raise ImportError("Triton is required here and not installed: pip install 'simnmt[triton]'")
    pytest.skip(
        "Triton is not installed" if platform.system() == "Linux" else "there is no Triton for this system",
        allow_module_level=True,
    )
if os.environ.get("SIMNMT_TRITON") != "required" and SCALE <= 1.0:
    pytest.skip("`make check` and `make check-deep` run these with Triton", allow_module_level=True)

COMPILE = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from simnmt.kernels.triton_output import BLOCKS, WARPS, _join, _stretch

def compiled(capability, kernel, arguments, constants, warps=4):
    signature = dict(zip(kernel.arg_names, arguments + ["constexpr"] * len(constants), strict=True))
    fixed = {(len(arguments) + place,): value for place, value in enumerate(constants)}
    target = GPUTarget("cuda", capability, 32)
    made = triton.compile(ASTSource(kernel, signature, constexprs=fixed), target=target, options={"num_warps": warps})
    assert made.asm["cubin"]
    print(kernel.fn.__name__, capability)

for capability, products, block in ((75, "*fp32", BLOCKS[0]), (75, "*fp16", BLOCKS[0]), (90, "*bf16", BLOCKS[1])):
    outputs = ["*fp32", "*fp32", "*fp32", "*i32"]
    arguments = [products, "*fp32", "i32", "i32", *outputs]
    compiled(capability, _stretch, arguments, [True, True, 2, block], WARPS[block])
compiled(90, _join, ["*fp32", "*fp32", "*fp32", "*i32", "i32", "*fp32", "*i64", "*fp32"], [False, 1, 32, 128])
"""


def in_own_process(arguments: list[str], **environment: str) -> str:
    run = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(HERE.parents[1])} | environment,
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_interpreted_kernels_agree_with_float64() -> None:
    """What is in triton_interpreted.py."""
    printed = in_own_process(
        ["-m", "pytest", str(HERE / "triton_interpreted.py"), "-p", "no:xdist", "-p", "no:cacheprovider"], TRITON_INTERPRET="1"
    )
    assert " passed" in printed
    assert "skipped" not in printed


def test_kernels_compile_for_old_and_new_gpus(tmp_path: Path) -> None:
    """Down to machine code, which needs no GPU; the interpreter takes what the compiler does not."""
    printed = in_own_process(
        ["-c", COMPILE], TRITON_CACHE_DIR=str(tmp_path), TRITON_DEFAULT_FP_FUSION="1", TRITON_INTERPRET="0"
    )
    assert len(printed.splitlines()) == 4
