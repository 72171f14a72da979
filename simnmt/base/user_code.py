"""Modules that a scenario names: each is executed under a name of its own, and anew when one of its files has changed.

The name is made of the path and the content, so that modules of two scenarios that have the same name do not meet. Modules
beside it that it imports belong to it: they are imported again with it, and their digests are recorded with its own. Its
folder is on the import path during the import alone. Modules of their names that were imported before, as in a notebook, are
left out of the import and stay as they are.

Modules of installed packages are imported as usual; the digests of the imported files of the package are recorded.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True, slots=True)
class UserModule:
    """An executed module and the files that were executed for it."""

    module: ModuleType
    digests: Mapping[str, str]
    """SHA-256 of each file, by its absolute path; that of the module is the first."""

    @property
    def is_current(self) -> bool:
        """Whether every file still has the content that was executed."""
        return all(Path(file).is_file() and _digest(Path(file)) == digest for file, digest in self.digests.items())


_executed: dict[tuple[Path, str], UserModule] = {}
"""What was executed last, by folder and name."""
_installed: dict[str, UserModule] = {}
"""Modules of installed packages that a scenario named, by name."""
_imported: dict[str, tuple[ModuleSpec | None, str]] = {}
"""By the name of an imported module of those packages: the spec by which Python imported it, and the digest of its file."""


def find_module(folder: Path, name: str) -> Path | None:
    """Return the file of a module or package in a folder; None if there is none.

    `name`: `module`, `package.module`, or a file such as `module.py`, whose folder is part of `folder`.
    """
    if name.endswith(".py"):
        candidates = [folder / name]
    elif not all(part.isidentifier() for part in name.split(".")):
        candidates = []
    else:
        stem = folder.joinpath(*name.split("."))
        candidates = [stem / "__init__.py", stem.with_name(f"{stem.name}.py")]
    return next((file for file in candidates if file.is_file()), None)


def load_module(folder: Path, name: str, expected: Mapping[str, str] | None = None) -> UserModule:
    """Return a module of a folder, executed anew if a file of it has changed since.

    Args:
        folder: where the search for the module, and for those that it imports, begins; absolute.
        name: as of `find_module`, which finds it.
        expected: digests of a module that was executed before; it is returned though a file has changed meanwhile.

    Raises what the module raises.
    """
    known = _executed.get((folder, name))
    if known is not None and (known.digests == expected or known.is_current):
        return known
    file = find_module(folder, name)
    assert file is not None
    digest = _digest(file)
    alias = f"simnmt_code_{hashlib.sha256(f'{file} {digest}'.encode()).hexdigest()[:16]}"
    _forget(key for key in sys.modules if key == alias or key.startswith(f"{alias}."))
    with _set_aside(folder), _importing_from(folder):
        before = set(sys.modules)
        try:
            module = _execute(file, alias, name, folder)
            others = {key: path for key in sys.modules.keys() - before if (path := _file_in(folder, key, alias)) is not None}
        except BaseException:
            _forget(key for key in sys.modules.keys() - before if _file_in(folder, key, alias) is not None)
            raise
        # Another scenario may have modules of these names: only those under the alias stay.
        _forget(key for key in others if key.partition(".")[0] != alias)
    digests = {str(file): digest} | {str(path): _digest(path) for path in others.values() if path != file}
    loaded = _executed[folder, name] = UserModule(module, digests)
    return loaded


def loaded_module(folder: Path, name: str) -> UserModule | None:
    """Return what was executed last for a module; None if it was not."""
    return _executed.get((folder, name))


def import_installed(name: str, files: Iterable[Path] = ()) -> UserModule:
    """Return a module of an installed package, with the digests of all imported files of the package.

    `files`: those of its distribution, which may hold several packages. Raises what the import raises, and `ImportError` if a
    file changed since it was imported.
    """
    module = importlib.import_module(name)
    digests = {}
    for key, part, file in _imported_parts(name, {str(file) for file in files}):
        digest = _digest(Path(file))
        spec, known = _imported.setdefault(key, (part.__spec__, digest))
        if spec is not part.__spec__:  # it was reloaded
            _imported[key] = part.__spec__, digest
        elif known != digest:
            raise ImportError(f"{file} has changed since it was imported, so start Python anew")
        digests[file] = digest
    loaded = _installed[name] = UserModule(module, digests)
    return loaded


def _imported_parts(name: str, files: Collection[str]) -> list[tuple[str, ModuleType, str]]:
    """Return name, module and file of each imported module of the package that holds a module, the module itself first.

    A namespace package is shared by distributions, so the package is the outermost one that has a file.
    """
    parts = name.split(".")
    prefixes = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    package = next((prefix for prefix in prefixes if getattr(sys.modules.get(prefix), "__file__", None)), name)
    inner = () if parts[0] == "simnmt" else (f"{package}.",)  # the manifest names the version of simnmt
    imported = []
    for key, module in sorted(sys.modules.items(), key=lambda item: (item[0] != name, item[0])):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not (key in (name, package) or key.startswith(inner) or file in files):
            continue
        if Path(file).is_file():
            imported.append((key, module, file))
    return imported


def installed_module(name: str) -> UserModule | None:
    """Return what `import_installed` returned last; None if it was not called."""
    return _installed.get(name)


def _execute(file: Path, alias: str, name: str, folder: Path) -> ModuleType:
    """Execute a module; of a package, its packages from the outermost one on, so that relative imports work."""
    package, *inner = [name] if name.endswith(".py") else name.split(".")
    outermost = find_module(folder, package) if inner else file
    if outermost is None:  # a folder without __init__.py
        namespace = sys.modules[alias] = ModuleType(alias)
        namespace.__path__ = [str(folder / package)]
    else:
        spec = importlib.util.spec_from_file_location(alias, outermost)
        assert spec is not None and spec.loader is not None
        sys.modules[alias] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[alias])
    return importlib.import_module(".".join([alias, *inner]))


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Put a folder first on the import path, and write no bytecode there: it would be stale after a change within a second."""
    writes_none = sys.dont_write_bytecode
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_none
        if str(folder) in sys.path:  # unless the module removed it
            sys.path.remove(str(folder))


@contextmanager
def _set_aside(folder: Path) -> Iterator[None]:
    """Take modules out of `sys.modules` that a folder has files of, lest an import in it finds those of before.

    What a regular package or module of the folder is named after goes with all below it; of a folder without `__init__.py`,
    only the modules that this folder has too. Modules of Python, of simnmt and of installed packages stay.
    """
    aside = {}
    if not any(folder.glob("*.dist-info")):
        # Thousands of modules may be imported, few of which have a name that the folder has.
        names = {entry.name.partition(".")[0] for entry in folder.glob("*")}
        for key in list(sys.modules):
            outermost = key.partition(".")[0]
            if outermost not in names or outermost in sys.stdlib_module_names or outermost in ("simnmt", "__main__"):
                continue
            if find_module(folder, outermost) is not None or find_module(folder, key) is not None:
                aside[key] = sys.modules.pop(key)
    try:
        yield
    finally:
        sys.modules.update(aside)


def _file_in(folder: Path, key: str, alias: str) -> Path | None:
    """Return the file of an imported module that belongs to user code; None for a module of another place."""
    module = sys.modules.get(key)
    file = getattr(module, "__file__", None)
    outermost = key.partition(".")[0]
    if outermost == alias:
        return Path(file) if file else None
    if file is None or outermost == "simnmt":
        return None
    local = find_module(folder, key)
    return local if local is not None and Path(file) == local else None


def _forget(keys: Iterator[str]) -> None:
    for key in list(keys):
        sys.modules.pop(key, None)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
