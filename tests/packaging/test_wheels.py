"""The wheels of `make dist`, installed into a new environment without a compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest

DIST = os.environ.get("SIMNMT_DIST", "")
"""Folder that `make dist` filled; empty: tests that install it are skipped, for they download packages (`make check-dist`)."""


def wheel(pattern: str) -> Path:
    (path,) = Path(DIST).glob(pattern)
    return path


class Installation:
    """A new virtual environment in a folder."""

    def __init__(self, folder: Path) -> None:
        (folder / "bin").mkdir()
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CC", "VIRTUAL_ENV")}
        self.folder, self.environment = folder, {**kept, "PATH": str(folder / "bin")}
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        self.bin = folder / "venv" / "bin"

    def install(self, *arguments: str | Path) -> None:
        command = [sys.executable, "-m", "pip", "--python", self.bin / "python", "install", "--quiet", *arguments]
        subprocess.run(command, check=True, cwd=self.folder, env={**self.environment, "PATH": os.environ["PATH"]})

    def simnmt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the installed command."""
        return subprocess.run(
            [self.bin / "simnmt", *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=True
        )

    def weight_bytes(self) -> int:
        """What the installed packages take on the disk, in whole blocks, without pip."""
        (packages,) = (self.folder / "venv" / "lib").glob("python*/site-packages")
        return sum(512 * path.lstat().st_blocks for path in packages.rglob("*"))


needs_wheels = pytest.mark.skipif(not DIST, reason="`make check-dist` builds wheels and runs these with them")
RUN = ["run", "@quickstart", "--requests", "2000", "--replications", "2"]


@needs_wheels
def test_the_wheel_for_every_platform_makes_the_choices_of_the_compiled_one(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    installation.install(wheel("*-py3-none-any.whl"))
    refused = subprocess.run(
        [installation.bin / "python", "-m", "simnmt.base.compile"],
        cwd=tmp_path, env=installation.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (refused.returncode, "no C compiler" in refused.stderr) == (1, True), "this environment must have no compiler"
    installation.simnmt(*RUN, "--out", "reference")
    installation.install("--force-reinstall", "--no-deps", wheel("*-manylinux_*.whl"))
    installation.simnmt(*RUN, "--out", "compiled")
    engines = [json.loads((tmp_path / out / "manifest.json").read_text())["engines"] for out in ("reference", "compiled")]
    assert [set(by_policy.values()) for by_policy in engines] == [{"reference"}, {"compiled"}]
    first, second = (pd.read_parquet(tmp_path / out / "requests.parquet") for out in ("reference", "compiled"))
    pd.testing.assert_frame_equal(first, second, rtol=1e-6)


@needs_wheels
def test_the_wheels_differ_by_the_compiled_libraries_alone() -> None:
    pure, platform = (set(zipfile.ZipFile(wheel(name)).namelist()) for name in ("*-py3-none-any.whl", "*-manylinux_*.whl"))
    assert not pure - platform
    added = {Path(name).name for name in platform - pure if not name.endswith("/")}
    assert {"libworld-portable.so", "libkernels-portable.so", "libkernels-avx2.so"} <= added
    assert all(name.startswith(("libworld-", "libkernels-")) and name.endswith(".so") for name in added)
    assert {"simnmt/world/compiled/world.c", "simnmt/kernels/native/activations.c"} <= pure
