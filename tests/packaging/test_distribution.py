"""What `make dist` publishes: sizes, contents, versions, and a wheel that works without the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from simnmt.base import VERSION
from tests.packaging.test_wheels import DIST

ROOT = Path(__file__).parents[2]
MOST_BYTES = 3_000_000


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the files of `make dist`, or else a source distribution and the wheel for every platform, built here."""
    folder = Path(DIST) if DIST else tmp_path_factory.mktemp("dist")
    if not DIST:
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-d", folder],
            cwd=ROOT, env=os.environ | {"SIMNMT_NATIVE": "none"}, capture_output=True, check=True,
        )  # fmt: skip
    return sorted(folder.glob("simnmt-*"))


def only(distribution: list[Path], ending: str) -> Path:
    (path,) = (path for path in distribution if path.name.endswith(ending))
    return path


def test_each_published_file_has_the_version_and_is_at_most_3_mb(distribution: list[Path]) -> None:
    assert {path.suffix for path in distribution} == {".gz", ".whl"}
    assert [path.name for path in distribution if not re.match(rf"simnmt-{re.escape(VERSION)}[-.]", path.name)] == []
    assert {path.name: path.stat().st_size for path in distribution if path.stat().st_size > MOST_BYTES} == {}


def test_the_source_distribution_holds_what_the_wheel_is_built_from_and_no_tests(distribution: list[Path]) -> None:
    with tarfile.open(only(distribution, ".tar.gz")) as archive:
        names = [PurePosixPath(*PurePosixPath(name).parts[1:]) for name in archive.getnames()]
    tops = {name.parts[0] for name in names}
    assert {"simnmt", "scenarios", "hatch_build.py", "LICENSE", "README.md", "CHANGELOG.md"} <= tops
    assert tops & {"tests", "docs", "benchmarks", "dist"} == set()
    assert [name for name in names if name.suffix in (".so", ".pyc")] == []
    with zipfile.ZipFile(only(distribution, "-py3-none-any.whl")) as wheel:
        published = {f"simnmt/papers/data/{path.name}" for path in (ROOT / "simnmt/papers/data").iterdir()}
        assert published <= set(wheel.namelist()), "what the papers print"


@pytest.mark.deep
def test_the_wheel_runs_without_the_checkout(distribution: list[Path], tmp_path: Path) -> None:
    """A wheel for every platform is installed by unpacking it."""
    with zipfile.ZipFile(only(distribution, "-py3-none-any.whl")) as archive:
        archive.extractall(tmp_path / "installed")
    options = ["--requests", "50", "--replications", "1", "--jobs", "1", "--out", "run"]
    code = "import sys, simnmt.cli; print(simnmt.__file__); sys.argv[0] = 'simnmt'; simnmt.cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "@quickstart", *options],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path / "installed")}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[0] == str(tmp_path / "installed" / "simnmt" / "__init__.py")
    assert {"report.html", "summary.json", "requests.parquet"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_the_metadata_links_to_source_documentation_issues_and_changelog(distribution: list[Path]) -> None:
    with zipfile.ZipFile(only(distribution, "-py3-none-any.whl")) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    links = dict(re.findall(r"^Project-URL: (\w+), (https://\S+)$", metadata, re.MULTILINE))
    assert set(links) == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}


def test_every_file_that_states_a_version_states_this_one() -> None:
    project = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    citation = re.search(r"^version: (.+)\ndate-released: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    releases = re.findall(r"^## \[(\d\S*)\] - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert project is not None and citation is not None
    assert project[1] == VERSION
    assert (citation[1], citation[2]) == releases[0]
    assert releases[0][0] == VERSION
