"""The wheels of `make wheels`, installed into new environments without a compiler (`make check-wheels`).

The variable SIMNMT_WHEELS names their folder; without it the tests are skipped, since they download all requirements.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

WHEELS = os.environ.get("SIMNMT_WHEELS", "")
pytestmark = pytest.mark.skipif(not WHEELS, reason="installs wheels: make check-wheels")
RUN = ["run", "@quickstart", "--requests", "2000", "--replications", "2"]


def wheel(pattern: str) -> Path:
    (path,) = Path(WHEELS).glob(pattern)
    return path


def bare_environment(folder: Path) -> dict[str, str]:
    """An environment in which no compiler is found, and simnmt only where it is installed."""
    (folder / "bin").mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CC", "VIRTUAL_ENV")}
    return {**kept, "PATH": str(folder / "bin")}


class Installation:
    """A new virtual environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.environment = folder, bare_environment(folder)
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


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    made = Installation(tmp_path_factory.mktemp("installed"))
    made.install(wheel("*-py3-none-any.whl"))
    return made


def test_the_wheel_for_every_platform_runs_in_simpy_and_gives_the_bytes_of_the_compiled_one(installation: Installation) -> None:
    refused = subprocess.run(
        [installation.bin / "python", "-m", "simnmt.base.compile"],
        cwd=installation.folder, env=installation.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (refused.returncode, "no C compiler" in refused.stderr) == (1, True), "this environment must have no compiler"
    installation.simnmt(*RUN, "--out", "simpy")
    installation.install("--force-reinstall", "--no-deps", wheel("*-manylinux_*.whl"))
    installation.simnmt(*RUN, "--out", "compiled")
    engines = [json.loads((installation.folder / out / "manifest.json").read_text())["engine"] for out in ("simpy", "compiled")]
    assert engines == ["simpy", "compiled"]
    for name in ("summary.json", "summary.csv", "requests.parquet"):
        first, second = ((installation.folder / out / name).read_bytes() for out in ("simpy", "compiled"))
        assert first == second, name


def test_the_wheels_differ_by_the_compiled_libraries_alone() -> None:
    pure, platform = (set(zipfile.ZipFile(wheel(name)).namelist()) for name in ("*-py3-none-any.whl", "*-manylinux_*.whl"))
    assert not pure - platform
    added = {Path(name).name for name in platform - pure if not name.endswith("/")}
    assert {"libworld-portable.so", "libkernels-portable.so"} <= added
    assert all(name.startswith(("libworld-", "libkernels-")) and name.endswith(".so") for name in added)
    assert {"simnmt/world/compiled/world.c", "simnmt/kernels/native/kernels.c"} <= pure
