"""New virtual environments with the wheels of `make dist`; no compiler is available in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
