"""The names of all objects on the bus, and the check that a name is one of them.

Numbers are zero-padded, so that the order of names is the order of numbers in every store. Claims
and groups lie in shards of 1,000 seqs each: a directory stays small, and a bucket can spread them.
"""

import re

LOG = "log/"
CLAIMS = "claims/"
GROUPS = "groups/"
ADAPTERS = "adapters/"
SAMPLERS = "samplers/"
PROBES = "probes/"
PREFIXES = (LOG, CLAIMS, GROUPS, ADAPTERS, SAMPLERS, PROBES)
SHARDED = (CLAIMS, GROUPS)
SHARD_SIZE = 1000

_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_ADAPTER = rf"(?P<run>{_NAME})-e(?P<epoch>\d{{1,8}})-s(?P<step>\d{{1,8}})-(?P<sha8>[0-9a-f]{{8}})"
_FILE = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"

_LOG_KEY = re.compile(r"log/(\d{8})\.json")
# \1: a seq below another shard than its own would be a second name for one task.
_CLAIM_KEY = re.compile(r"claims/(\d{5})/(\1\d{3})\.(\d{3})")
_GROUP_KEY = re.compile(r"groups/(\d{5})/(\1\d{3})\.msgpack\.zst")
_SHARD = re.compile(r"\d{5}")
_ADAPTER_NAME = re.compile(_ADAPTER)
_ADAPTER_KEY = re.compile(rf"adapters/(?P<name>{_ADAPTER})/(?P<file>{_FILE})")
_SAMPLER_KEY = re.compile(rf"samplers/({_NAME})\.json")
_PROBE_KEY = re.compile(r"probes/[0-9a-f]{16}")
_ALL = (_LOG_KEY, _CLAIM_KEY, _GROUP_KEY, _ADAPTER_KEY, _SAMPLER_KEY, _PROBE_KEY)


def log_key(index: int) -> str:
    return f"log/{_bounded(index, 8, 'log index'):08d}.json"


def claim_key(seq: int, attempt: int) -> str:
    number = _bounded(attempt, 3, "attempt")
    return f"{CLAIMS}{_shard(seq)}/{seq:08d}.{number:03d}"


def claims_beside(seq: int) -> str:
    """The prefix of all claims in the shard of `seq`, for a listing of it alone."""
    return f"{CLAIMS}{_shard(seq)}/"


def group_key(seq: int) -> str:
    return f"{GROUPS}{_shard(seq)}/{seq:08d}.msgpack.zst"


def adapter_name(run: str, *, epoch: int, step: int, sha256: str) -> str:
    """A name that no other weights can have: a replayed step has another epoch."""
    return f"{check_name(run)}-e{epoch}-s{step}-{sha256[:8]}"


def adapter_key(name: str, file: str) -> str:
    return check_key(f"adapters/{name}/{file}")


def sampler_key(sampler: str) -> str:
    return f"samplers/{check_name(sampler)}.json"


def log_index(key: str) -> int | None:
    """The index in a log key; None for any other name (it is ignored, whoever put it there)."""
    match = _LOG_KEY.fullmatch(key)
    return int(match[1]) if match else None


def claim_numbers(key: str) -> tuple[int, int] | None:
    """(seq, attempt) of a claim key, None for any other name."""
    match = _CLAIM_KEY.fullmatch(key)
    return (int(match[2]), int(match[3])) if match else None


def group_seq(key: str) -> int | None:
    """The seq of a group key, None for any other name."""
    match = _GROUP_KEY.fullmatch(key)
    return int(match[2]) if match else None


def adapter_of(key: str) -> str | None:
    """The adapter name in the key of one of its files, None for any other name."""
    match = _ADAPTER_KEY.fullmatch(key)
    return match["name"] if match else None


def adapter_origin(name: str) -> tuple[str, int, int, str] | None:
    """(run, epoch, step, first digits of the sha256) in an adapter name, None for any other."""
    match = _ADAPTER_NAME.fullmatch(name)
    if match is None:
        return None
    return match["run"], int(match["epoch"]), int(match["step"]), match["sha8"]


def is_adapter_name(name: str) -> bool:
    return _ADAPTER_NAME.fullmatch(name) is not None


def is_folder(prefix: str, name: str) -> bool:
    """Whether `name` is a folder of objects below a prefix that has folders."""
    return is_adapter_name(name) if prefix == ADAPTERS else _SHARD.fullmatch(name) is not None


def has_folders(prefix: str) -> bool:
    return prefix == ADAPTERS or prefix in SHARDED


def probe_key(nonce: str) -> str:
    return check_key(f"{PROBES}{nonce}")


def check_key(key: str) -> str:
    """`key` itself if it is a name of the bus, so that no key ever leaves its directory.

    Raises:
        ValueError: for everything else, e.g. ``..``, an absolute path, a hidden file.
    """
    if not any(pattern.fullmatch(key) for pattern in _ALL):
        raise ValueError(
            f"{key!r} is not a name of a bus object; names are log/<8 digits>.json, "
            "claims/<5 digits>/<8 digits>.<3 digits>, groups/<5 digits>/<8 digits>.msgpack.zst, "
            "adapters/<run>-e<epoch>-s<step>-<sha8>/<file>, samplers/<id>.json, probes/<nonce>"
        )
    return key


def check_name(name: str) -> str:
    """A run name or sampler id: it becomes part of object names."""
    if not re.fullmatch(_NAME, name):
        raise ValueError(
            f"{name!r} cannot be a run or sampler name: use 1 to 64 letters, digits, '-' or '_', "
            "starting with a letter or digit"
        )
    return name


def _shard(seq: int) -> str:
    return f"{_bounded(seq, 8, 'seq') // SHARD_SIZE:05d}"


def _bounded(number: int, digits: int, what: str) -> int:
    if not 0 <= number < 10**digits:
        raise ValueError(f"{what} {number} is outside 0..{10**digits - 1}")
    return number
