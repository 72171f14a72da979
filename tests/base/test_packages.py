from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from simnmt.base.errors import InputError
from simnmt.base.packages import EXTRAS, LEFT_OUT, MissingPackage, install_command, named_if_missing

PROJECT = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "pynvml": "nvidia-ml-py",
    "prometheus_client": "prometheus-client",
}


@pytest.mark.parametrize(("package", "extra"), EXTRAS.items())
def test_the_extra_of_a_remedy_installs_the_package(package: str, extra: str) -> None:
    requirements = re.search(rf"^{extra} = \[(.*?)\]$", PROJECT, re.MULTILINE | re.DOTALL)
    assert requirements is not None and f'"{DISTRIBUTIONS.get(package, package)}>=' in requirements[1]
    *first, last = install_command(extra).split(", then ")
    assert last == f"pip install 'simnmt[{extra}]'"
    assert bool(first) == (extra in {"models", "live"}), "the build of torch without CUDA"


def test_a_missing_package_is_an_input_error_with_the_extra_to_install() -> None:
    with (
        pytest.raises(InputError, match="^this needs the package torch .*" + re.escape(install_command("models"))),
        named_if_missing(),
    ):
        raise ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")
    with pytest.raises(MissingPackage, match=re.escape(install_command("live"))), named_if_missing("live"):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    with pytest.raises(MissingPackage, match=r"scipy \(pip install simnmt, with its dependencies\)$"), named_if_missing("live"):
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy")


@pytest.mark.parametrize("name", ["simnmt.nothing", "a_users_module", None])
def test_a_module_that_no_extra_installs_keeps_its_error(name: str | None) -> None:
    with pytest.raises(ModuleNotFoundError), named_if_missing():
        raise ModuleNotFoundError("No such module", name=name)


def test_the_library_refuses_a_missing_package_by_its_error() -> None:
    code = (
        "import sys, simnmt\nsys.modules['plotly'] = None\n"
        "try:\n    simnmt.run('@quickstart', requests=20, replications=1).figure('latency')\n"
        "except simnmt.InputError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert "plotly" in LEFT_OUT
    assert (done.stdout, done.stderr) == ("this needs the package plotly (pip install simnmt, with its dependencies)\n", "")
