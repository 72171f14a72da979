"""Files and the standard streams: read up to a limit, write atomically, lock."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO

from simnmt.base.errors import STANDARD, InputError, SimnmtError

_LOG = logging.getLogger("simnmt.base")

MOST_DOCUMENT_BYTES = 64 << 20
"""Limit of a JSON or YAML document; the largest that simnmt ships or writes has about 1 MB."""
MOST_SECRET_BYTES = 1 << 20
"""Limit of a token, a key or a chain of certificates."""
MOST_TEXT_BYTES = 256 << 20
"""Limit of a table or a JSON list that is parsed as a whole, which takes up to 24 times as much memory (empty objects)."""
MOST_HELD_BYTES = 1 << 30
"""Limit of the bytes of a text whose lines are kept in memory."""
MOST_HELD_LINES = 10_000_000
"""Limit of the lines of such a text: a short line takes about 60 bytes, a pair of lines in training about 500."""
MOST_STREAMED_BYTES = 64 << 30
"""Limit of an unpacked text of which no line is kept; the largest public corpora have about 35 GB a side."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""System errors of a disk without room for a file."""
MOST_MODEL_BYTES = 256 << 20
"""Limit of a tokenizer's model or vocabulary; a million pieces take about 20 MB."""
MOST_TENSOR_BYTES = 64 << 30
"""Limit of a file of tensors."""

_OTHER_CONTENTS = (
    (b"version https://git-lfs.github.com/spec/", "a pointer of Git LFS, not the file itself", "fetch it with git lfs pull"),
    (b"\xfd7zXZ\0", "packed by xz", "unpack it with unxz"),
    (b"\x28\xb5\x2f\xfd", "packed by zstd", "unpack it with unzstd"),
    (b"BZh91AY&SY", "packed by bzip2", "unpack it with bunzip2"),
    (b"7z\xbc\xaf\x27\x1c", "packed by 7-Zip", "unpack it"),
    (b"PK\x03\x04", "packed by zip", "unpack it"),
)
"""First bytes of files that stand for another file, with cause and remedy; gzip is read where texts are large."""
_PARTIAL = ".simnmt-partial-"
_PIECE_BYTES = 1 << 20
_TEXT_NAMES = (
    "config.json",
    "config.*.json",
    "*_config.json",
    "*.index.json",
    "tokenizer.*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "target_vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "source.model",
    "target.model",
    "*.spm",
)
"""Configurations, indices, vocabularies and tokenizers that libraries read from a model's folder."""
_MOST_POINTER_BYTES = 1024
"""Limit of a pointer of Git LFS, by its specification."""
_TENSOR_NAMES = ("*.safetensors", "*.bin")


def is_standard(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is `-`: standard input where a file is read, standard output where one is written."""
    return os.fspath(path) == STANDARD


_read_streams: weakref.WeakSet[Any] = weakref.WeakSet()


def standard_input() -> BinaryIO:
    """Return standard input; raise `OSError` if it is closed, or if it was returned before."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed", STANDARD)
    stream = sys.stdin.buffer
    if stream in _read_streams:
        raise OSError(errno.EINVAL, "standard input can be read only once", STANDARD)
    _read_streams.add(stream)
    return stream


_output: Any = None
"""Standard output while it is kept for the file `-`."""


def keep_standard_output() -> None:
    """Keep standard output for the content of the file `-`: what is printed from now on goes to standard error.

    Raises `InputError` if it is kept already, for another file.
    """
    global _output
    if _output is not None:
        raise InputError("two outputs to standard output", remedy="name a file for one of them")
    _output, sys.stdout = sys.stdout, sys.stderr


def release_standard_output() -> None:
    """Print to standard output again."""
    global _output
    if _output is not None:
        _output, sys.stdout = None, _output


def _write_to_standard_output(content: bytes) -> None:
    """Write a whole file to standard output; a terminal gets text without control characters. Raises `SimnmtError`."""
    stream = sys.stdout if _output is None else _output
    try:
        stream.flush()
        if stream.isatty():
            stream.write(content.decode("utf-8", "backslashreplace"))
        else:
            stream.buffer.write(content)
        stream.flush()
    except BrokenPipeError:  # the reader has what it wanted
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except OSError as error:
        raise SimnmtError(f"standard output cannot be written: {error.strerror}") from None


def refuse_other_content(head: bytes, path: str | os.PathLike[str], error: type[InputError] = InputError) -> None:
    """Raise `error` if the first bytes of a file show a pointer of Git LFS or packed data in place of the file."""
    for start, what, remedy in _OTHER_CONTENTS:
        if head.startswith(start):
            raise error(what, path=path, remedy=remedy)


def check_regular(path: str | os.PathLike[str], most_bytes: int, *, pipes: bool = False) -> None:
    """Raise `OSError` unless `path` is a regular file of at most `most_bytes` bytes; `pipes`: a FIFO is accepted too.

    Refuses a folder, a device, a socket, a FIFO, a file above the limit and a name that no file can have. `OSError.strerror` is
    a message for the user.
    """
    try:
        status = Path(path).stat()
    except ValueError:  # a NUL in the name
        raise OSError(errno.EINVAL, "no such name can exist", repr(os.fspath(path))) from None
    _check_status(status, path, most_bytes, pipes=pipes)


def read_bounded(path: str | os.PathLike[str], most_bytes: int = MOST_DOCUMENT_BYTES, *, pipes: bool = False) -> bytes:
    """Return the content of a regular file of at most `most_bytes` bytes, or of standard input for `-`.

    Raises `OSError` as `check_regular` and `standard_input` do, and `InputError` as `refuse_other_content` does.
    """
    content = _read_bounded(path, most_bytes, pipes=pipes)
    refuse_other_content(content, path)
    return content


def _read_bounded(path: str | os.PathLike[str], most_bytes: int, *, pipes: bool) -> bytes:
    if is_standard(path):
        content = standard_input().read(most_bytes + 1)
        if len(content) > most_bytes:
            raise _too_large(path, most_bytes)
        return content
    # Checked before it is opened: opening a FIFO waits for a writer, and opening some devices has effects.
    check_regular(path, most_bytes, pipes=pipes)
    with Path(path).open("rb") as file:
        status = os.fstat(file.fileno())
        _check_status(status, path, most_bytes, pipes=pipes)
        # `read` allocates the whole size at once, so it gets the file's size, not the limit.
        pieces = [file.read(status.st_size + 1)]
        size = len(pieces[0])
        while size <= most_bytes and (piece := file.read(_PIECE_BYTES)):  # a FIFO, a file of /proc, or a file that has grown
            pieces.append(piece)
            size += len(piece)
    if size > most_bytes:
        raise _too_large(path, most_bytes)
    _LOG.debug("read %s: %d bytes", path, size)
    return b"".join(pieces)


def check_model_folder(folder: Path) -> None:
    """Raise `OSError` as `check_regular` does for a file in a model's folder that a library must not read.

    Configurations, vocabularies and tokenizers may have `MOST_MODEL_BYTES`, tensors `MOST_TENSOR_BYTES`. Files that no library
    reads, such as a corpus beside the model, may have any size. Every file must be regular, since an index of tensors may name
    any file of the folder. Raises `InputError` for a pointer of Git LFS in the place of a file.
    """
    for path in folder.iterdir():
        if path.exists() and not path.is_dir():
            check_regular(path, _most_bytes_in_model_folder(path.name.lower()))
            if path.stat().st_size <= _MOST_POINTER_BYTES:
                read_bounded(path, _MOST_POINTER_BYTES)


def _most_bytes_in_model_folder(name: str) -> int:
    if any(fnmatchcase(name, pattern) for pattern in _TEXT_NAMES):
        return MOST_MODEL_BYTES
    return MOST_TENSOR_BYTES if any(fnmatchcase(name, pattern) for pattern in _TENSOR_NAMES) else sys.maxsize


def _check_status(status: os.stat_result, path: str | os.PathLike[str], most_bytes: int, *, pipes: bool) -> None:
    kinds = {
        stat.S_IFDIR: "a folder, not a file",
        stat.S_IFCHR: "a device, not a file",
        stat.S_IFBLK: "a device, not a file",
        stat.S_IFSOCK: "a socket, not a file",
        stat.S_IFIFO: "a pipe, not a file",
    }
    kind = stat.S_IFMT(status.st_mode)
    if kind in kinds and not (pipes and kind == stat.S_IFIFO):
        number = errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL
        raise OSError(number, os.strerror(number) if kind == stat.S_IFDIR else kinds[kind], os.fspath(path))
    if kind == stat.S_IFREG and status.st_size > most_bytes:
        raise _too_large(path, most_bytes)


class TooLargeError(OSError):
    """A file that holds more than is read of it, as the system's own error of a file that may not grow (`errno.EFBIG`)."""


def _too_large(path: str | os.PathLike[str], most_bytes: int) -> OSError:
    return TooLargeError(errno.EFBIG, f"more than {most_bytes:,} bytes", os.fspath(path))


def try_lock(descriptor: int) -> bool | None:
    """Take the exclusive lock of an open file or folder without waiting.

    The lock ends when the descriptor is closed. Returns True if the lock is held now, False if another process (or another
    descriptor of this process) holds it, and None if the system or the file system has no such locks.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return None
    return True


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Make a folder and lock it while the block runs; if it is new and stays empty, remove it at the end.

    The lock is on the folder itself, so it leaves no file behind, and a killed process loses it. Raises `BlockingIOError` if
    another process holds the folder, and `OSError` if it cannot be made.
    """
    made, descriptor = missing_parents(folder / "content"), None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.name != "nt":  # a folder cannot be opened there
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            # A process that ended in the meantime may have removed the folder, and another one made it anew.
            if try_lock(descriptor) is False or not os.path.samestat(os.fstat(descriptor), folder.stat()):
                made = []  # the folder is another's
                raise BlockingIOError(errno.EWOULDBLOCK, "another process is writing it", os.fspath(folder))
        yield
    finally:
        remove_empty(made)
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def sole_writer(folder: Path, error: type[InputError], activity: str) -> Iterator[None]:
    """Hold `folder` as `locked_folder` does; raise the room's `error` if another process holds it or it cannot be made.

    `activity` names the work in the message, such as "training".
    """
    with ExitStack() as lock:
        try:
            lock.enter_context(locked_folder(folder))
        except BlockingIOError:
            remedy = "let it end, or choose another --out"
            raise error(f"another {activity} is writing this folder", path=folder, remedy=remedy) from None
        except OSError as failure:
            what = f"cannot be used: {failure.strerror or failure}"
            raise error(what, path=folder, remedy="choose another --out") from None
        yield


def lock_journal(descriptor: int, path: str | os.PathLike[str], error: type[InputError], activity: str) -> None:
    """Lock an open journal until it is closed; raise the room's `error` if another process holds it."""
    if try_lock(descriptor) is False:
        remedy = "let it end, or choose another --out"
        raise error(f"another {activity} is writing this journal", path=path, remedy=remedy)


def free_name(folder: Path) -> Path:
    """Return an unused temporary name in `folder`; the name is short, since the final one may have the greatest length."""
    return folder / f"{_PARTIAL}{secrets.token_hex(4)}"


@contextmanager
def partial_folder(beside: Path) -> Iterator[Path]:
    """Yield a new folder under a temporary name in `beside`, for content that is renamed when it is complete.

    What is left of it is removed at the end. Raises `OSError` if the folder cannot be made; `beside` itself must exist.
    """
    folder = free_name(beside)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_vacant(folder: Path, *names: str) -> bool:
    """Return whether a folder holds nothing but these names and partial folders of killed processes. Raises `OSError`."""
    with os.scandir(folder) as entries:
        return all(entry.name in names or entry.name.startswith(_PARTIAL) for entry in entries)


def remove_link(path: Path) -> None:
    """Remove `path` if it is a link, so that what is written there does not reach what the link leads to. Raises `OSError`."""
    if path.is_symlink():
        path.unlink()


def missing_parents(path: Path) -> list[Path]:
    """Return the folders above `path` that do not exist yet, the innermost first."""
    return [folder for folder in path.absolute().parents if not os.path.lexists(folder)]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, the innermost first, up to the first that holds something."""
    with suppress(OSError):
        for folder in folders:
            if os.path.lexists(folder):
                folder.rmdir()


@contextmanager
def written_whole(path: str | os.PathLike[str], *, new: bool = False) -> Iterator[Path]:
    """Yield a path to write to, which becomes `path` at the end; after a failure it is removed and `path` is unchanged.

    Replaces an existing file, and a link instead of the file that it leads to, since a folder from elsewhere may hold links to
    anywhere. `new`: raise `FileExistsError` if something exists at `path`, before the work or at its end. For `-`, the content
    is written to standard output at the end. Raises `OSError`, also if `path` is or leads to no regular file.
    """
    if is_standard(path):
        with tempfile.TemporaryDirectory(prefix="simnmt-") as temporary:
            partial = Path(temporary) / "content"
            yield partial
            _write_to_standard_output(partial.read_bytes())
        return
    try:
        if new and os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))
        target = Path(path)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        # Renamed over, a device would become a file of that name; /dev/stdout leads to a regular file if it is redirected.
        if (target.exists() and not target.is_file()) or target.absolute().parent == Path("/dev"):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with suppress(FileNotFoundError):
            target.lstat()  # a name longer than the file system takes is refused before the work, not at the end
    except ValueError:  # a NUL in the name
        raise OSError(errno.EINVAL, "no such name can exist", repr(os.fspath(path))) from None
    # Beside the target, so that the rename stays within one file system. In a folder, so that the temporary files of the
    # library that writes are removed with it.
    try:
        with partial_folder(target.parent) as folder:
            partial = folder / "content"
            yield partial
            if new:
                _publish_new(partial, target)
            else:
                partial.replace(target)
    except OSError as error:
        if error.errno in NO_ROOM:
            error.filename = os.fspath(path)  # the system names no file, or the one that is removed
        raise
    _LOG.debug("wrote %s", path)


def _publish_new(partial: Path, target: Path) -> None:
    """Give the file its name unless something has that name by now: a rename would replace it."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: claim the name, then replace what claims it
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)))
        partial.replace(target)


def refuse_replacing(out: str | os.PathLike[str] | None, *inputs: str | os.PathLike[str] | None) -> None:
    """Raise `InputError` if `out` is one of `inputs`, under any of its names; None names no file."""
    if out is None or is_standard(out):
        return
    for read in inputs:
        if read is not None and (_same(out, read) or os.path.realpath(out) == os.path.realpath(read)):
            raise InputError(f"{os.fspath(out)} would replace what is read", remedy="write to another file")


def _same(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return False
