"""Adapter files on the bus: written under a name of their own, believed only by their sha256."""

import hashlib
import shutil
import tempfile
from pathlib import Path

from jax_t2sql.bus.entries import AdapterRef, sha256_hex
from jax_t2sql.bus.faults import BadObject
from jax_t2sql.bus.keys import adapter_key, adapter_name
from jax_t2sql.bus.store import MAX_OBJECT_BYTES, Store, put_all_once
from jax_t2sql.errors import UserError


def put_adapter(store: Store, directory: Path, *, run: str, epoch: int, step: int) -> AdapterRef:
    """Copy all files of `directory` (no sub-directories) to the bus; nothing names them yet.

    The name ends in the first 8 digits of the sha256 over the files' names and hashes, so putting
    the same files again, after a crash, is the same put.

    Raises:
        UserError: the directory is missing, empty, holds something else than files, or one of
            them is larger than the bus takes.
        FileExistsError: other bytes under the same name (a damaged copy).
    """
    try:
        paths = sorted(directory.iterdir())
    except OSError as error:
        raise UserError(f"adapter {str(directory)!r}: {error.strerror}") from error
    contents = {}
    for path in paths:
        if path.is_symlink() or not path.is_file():
            raise UserError(f"adapter {str(directory)!r}: {path.name!r} is not a plain file")
        if path.stat().st_size > MAX_OBJECT_BYTES:
            raise UserError(
                f"adapter file {str(path)!r} has {path.stat().st_size} bytes, the bus takes "
                f"{MAX_OBJECT_BYTES} a file; lower the rank or write it in several shards"
            )
        contents[path.name] = path.read_bytes()
    if not contents:
        raise UserError(f"adapter {str(directory)!r} has no files")
    files = {name: sha256_hex(data) for name, data in contents.items()}
    sha256 = _manifest_sha256(files)
    ref = AdapterRef(
        name=adapter_name(run, epoch=epoch, step=step, sha256=sha256), sha256=sha256, files=files
    )
    objects = [(adapter_key(ref.name, name), data) for name, data in contents.items()]
    for (key, _), mine in zip(objects, put_all_once(store, objects), strict=True):
        if not mine:
            raise FileExistsError(f"{key!r} exists with other bytes; delete that object")
    return ref


def read_adapter(store: Store, ref: AdapterRef) -> dict[str, bytes]:
    """The adapter's files by name, each verified.

    Raises:
        BadObject: fate "corrupt": a file is missing or is not what the log names.
    """
    if _manifest_sha256(ref.files) != ref.sha256 or not ref.name.endswith(ref.sha256[:8]):
        raise BadObject("corrupt", f"adapter {ref.name}: its entry contradicts itself")
    contents = {}
    for name, sha256 in ref.files.items():
        try:
            contents[name] = store.read(adapter_key(ref.name, name))
        except (FileNotFoundError, ValueError) as error:
            raise BadObject("corrupt", f"adapter {ref.name}, file {name!r}: {error}") from error
        if sha256_hex(contents[name]) != sha256:
            raise BadObject("corrupt", f"adapter {ref.name}, file {name!r}: wrong sha256")
    return contents


def fetch_adapter(store: Store, ref: AdapterRef, cache: Path) -> Path:
    """A directory with the adapter's verified files, for servers that load from disk.

    A bus in a directory is used in place; from any other, files are copied to ``cache/<name>``.
    Raises BadObject as `read_adapter` does.
    """
    contents = read_adapter(store, ref)
    in_place = store.local_path(adapter_key(ref.name, next(iter(contents))))
    if in_place is not None:
        return in_place.parent
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / ref.name
    staged = Path(tempfile.mkdtemp(prefix=".adapter-", dir=cache))
    for name, data in contents.items():
        (staged / name).write_bytes(data)
    try:
        staged.rename(target)
    except OSError:  # another process on this machine was first
        shutil.rmtree(staged)
        if not target.is_dir():
            raise
    return target


def _manifest_sha256(files: dict[str, str]) -> str:
    lines = "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()
