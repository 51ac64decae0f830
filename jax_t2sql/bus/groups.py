"""Graded rollout groups: the evidence that samplers hand to the learner.

A group is one object: msgpack in one zstandard frame with its content size and a checksum. Token
arrays are raw little-endian bytes, so that decoding costs nothing and types cannot be mixed up.
Readers trust nothing: sizes are bounded before and after decompression, types are checked while
decoding, and `check_group` checks what the numbers say.
"""

import secrets
from typing import Annotated

import msgspec
import numpy as np
import zstandard
from msgspec import Meta

from jax_t2sql.bus.contract import Bounds
from jax_t2sql.bus.entries import Count, Outcome, Part, Sha256, Task
from jax_t2sql.bus.faults import BadObject

MAX_GROUP_BYTES = 64 * 2**20
MAX_DECODED_BYTES = 256 * 2**20
LOGPROB_NOISE = 1e-6
"""log-softmax in float32 may give a log-prob this far above 0; `Rollout.make` stores it as 0."""

CORRECT = "correct"
"""Term of every rollout: 1 if its result is right."""
HINTED = "hinted"
"""Term of a rollout whose prompt showed a hint."""
WITHHELD, WRONG = "evidence_withheld", "evidence_wrong"
"""Terms of a rollout whose prompt had no evidence, or wrong evidence, instead of the question's."""

UNSAMPLED_VERSION = -1
_LEVEL = 3
_Name = Annotated[str, Meta(max_length=128)]


class Rollout(Part, frozen=True, kw_only=True):
    """One episode: ids as they were fed and sampled, and what the sampler measured.

    T ids; in the properties: ids_T int32, mask_T bool (True: sampled by the policy), logprobs_T
    float32 (natural log, 0 where not sampled), versions_T int32 (adapter version that sampled the
    token, -1 where not sampled).
    reward: the total, `terms` its parts by name. valid=False: no reward could be determined
    (infrastructure failed); the rollout then leaves mean and loss, and `reward` means nothing.
    ending: how the episode ended, `reason` in words, `trace` its text for reports.
    experts_u16: of mixtures of experts, those that the first tokens went through when they were
    sampled, [tokens, *experts_shape] with experts_shape = (layers, experts of a token); empty
    without a record.
    """

    ids_i32: bytes
    mask_u8: bytes
    logprobs_f32: bytes
    versions_i32: bytes
    reward: float
    terms: dict[_Name, float]
    valid: bool
    ending: _Name
    reason: str = ""
    trace: str = ""
    experts_u16: bytes = b""
    experts_shape: tuple[Count, Count] = (0, 0)

    @classmethod
    def make(
        cls,
        ids_T,
        *,
        mask_T,
        logprobs_T,
        versions_T,
        reward: float | None,
        terms: dict[str, float],
        ending: str,
        reason: str = "",
        trace: str = "",
        experts: tuple[bytes, int, int] | None = None,
    ) -> "Rollout":
        """From four sequences of one length. What unsampled positions hold does not matter.

        reward: None makes the rollout invalid.
        experts: bytes, layers and experts of a token, as `experts_u16` and `experts_shape`.
        """
        mask = np.asarray(mask_T, bool)
        logprobs = np.where(mask, np.asarray(logprobs_T, np.float32), np.float32(0))
        logprobs[(logprobs > 0) & (logprobs <= LOGPROB_NOISE)] = 0
        versions = np.where(mask, np.asarray(versions_T, np.int32), np.int32(UNSAMPLED_VERSION))
        return cls(
            ids_i32=np.asarray(ids_T, "<i4").tobytes(),
            mask_u8=mask.astype("u1").tobytes(),
            logprobs_f32=logprobs.astype("<f4").tobytes(),
            versions_i32=versions.astype("<i4").tobytes(),
            reward=0.0 if reward is None else float(reward),
            terms={name: float(value) for name, value in terms.items()},
            valid=reward is not None,
            ending=ending,
            reason=reason,
            trace=trace,
            experts_u16=experts[0] if experts else b"",
            experts_shape=experts[1:] if experts else (0, 0),
        )

    def __len__(self) -> int:
        return len(self.mask_u8)

    @property
    def ids_T(self) -> np.ndarray:
        return np.frombuffer(self.ids_i32, "<i4")

    @property
    def mask_T(self) -> np.ndarray:
        return np.frombuffer(self.mask_u8, bool)

    @property
    def logprobs_T(self) -> np.ndarray:
        return np.frombuffer(self.logprobs_f32, "<f4")

    @property
    def versions_T(self) -> np.ndarray:
        return np.frombuffer(self.versions_i32, "<i4")

    @property
    def experts_TLE(self) -> np.ndarray | None:
        """int32 [T, layers, experts of a token], -1 where unknown; None without a record."""
        if not self.experts_u16:
            return None
        known = np.frombuffer(self.experts_u16, "<u2").reshape(-1, *self.experts_shape)
        whole = np.full((len(self), *self.experts_shape), -1, np.int32)
        whole[: len(known)] = known
        return whole


class Group(Part, frozen=True, kw_only=True):
    """The graded rollouts of one task, as one sampler made them."""

    seq: Count
    attempt: Count
    problem: str
    contract: Sha256
    sampler: _Name
    nonce: _Name
    rollouts: tuple[Rollout, ...]

    @classmethod
    def make(cls, task: Task, *, contract: str, sampler: str, rollouts) -> "Group":
        return cls(
            seq=task.seq,
            attempt=task.attempt,
            problem=task.problem,
            contract=contract,
            sampler=sampler,
            nonce=secrets.token_hex(8),
            rollouts=tuple(rollouts),
        )

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(len(rollout) for rollout in self.rollouts)

    @property
    def oldest_version(self) -> int | None:
        """The oldest version among all sampled tokens; None if none was sampled."""
        versions = [r.versions_T[r.mask_T] for r in self.rollouts]
        return min((int(v.min()) for v in versions if v.size), default=None)

    @property
    def outcome(self) -> Outcome:
        """The rollouts, counted."""
        return Outcome(
            rollouts=len(self.rollouts),
            valid=sum(r.valid for r in self.rollouts),
            solved=sum(r.valid and r.terms.get(CORRECT, 0.0) == 1.0 for r in self.rollouts),
            cut_off=sum(r.ending == "cut_off" for r in self.rollouts),
            broken=sum(r.ending == "contract_broken" for r in self.rollouts),
            tokens=sum(int(r.mask_T.sum()) for r in self.rollouts),
            plain=not any({WITHHELD, WRONG} & r.terms.keys() for r in self.rollouts),
        )


_decoder = msgspec.msgpack.Decoder(Group)


def encode_group(group: Group) -> bytes:
    """Raises ValueError if the group is larger than any reader would accept."""
    plain = msgspec.msgpack.encode(group)
    data = zstandard.ZstdCompressor(
        level=_LEVEL, write_checksum=True, write_content_size=True
    ).compress(plain)
    if len(plain) > MAX_DECODED_BYTES or len(data) > MAX_GROUP_BYTES:
        raise ValueError(
            f"group {group.seq} has {len(plain)} bytes ({len(data)} compressed), the limits are "
            f"{MAX_DECODED_BYTES} and {MAX_GROUP_BYTES}; use smaller groups or shorter traces"
        )
    return data


def decode_group(data: bytes) -> Group:
    """Bytes to a group, in bounded memory. What the numbers mean is not checked yet.

    Raises:
        BadObject: fate "corrupt".
    """
    if len(data) > MAX_GROUP_BYTES:
        raise BadObject("corrupt", f"{len(data)} bytes, the limit is {MAX_GROUP_BYTES}")
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= MAX_DECODED_BYTES:
            # -1: not stated. The decompressor never makes more than the stated size.
            raise BadObject(
                "corrupt", f"states {size} bytes decompressed, the limit is {MAX_DECODED_BYTES}"
            )
        plain = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BadObject("corrupt", f"{len(data)} bytes that do not decompress: {error}") from error
    try:
        return _decoder.decode(plain)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadObject("corrupt", f"does not decode: {error}") from error


def check_group(group: Group, task: Task, *, contract: str, bounds: Bounds, version: int) -> None:
    """Is this group an answer to `task` that may be trained on at `version`?

    Raises:
        BadObject: fate "invalid", naming what is wrong and the sampler.
    """

    def refuse(what: str):
        raise BadObject("invalid", f"group {task.seq} of {group.sampler!r}: {what}",
                        sampler=group.sampler)  # fmt: skip

    if group.contract != contract:
        refuse(f"made under contract {group.contract[:12]}…, the run has {contract[:12]}…")
    if (group.seq, group.problem) != (task.seq, task.problem):
        refuse(f"answers task {group.seq} ({group.problem!r}), not {task.problem!r}")
    if group.attempt > task.attempt:
        refuse(f"answers attempt {group.attempt}, only {task.attempt} was offered")
    if len(group.rollouts) != task.group_size:
        refuse(f"{len(group.rollouts)} rollouts, {task.group_size} were asked for")
    for number, rollout in enumerate(group.rollouts):
        if fault := _rollout_fault(rollout, bounds=bounds, version=version):
            refuse(f"rollout {number}: {fault}")


def _rollout_fault(rollout: Rollout, *, bounds: Bounds, version: int) -> str | None:
    vocab_size = bounds.vocab_size
    length = len(rollout.mask_u8)
    sizes = [len(x) for x in (rollout.ids_i32, rollout.logprobs_f32, rollout.versions_i32)]
    if sizes != [4 * length] * 3:
        return f"ids, log-probs, versions have {sizes} bytes for {length} mask values"
    if length == 0:
        return "no ids at all"
    if max(rollout.mask_u8) > 1:
        return "mask values other than 0 and 1"
    if rollout.mask_u8[0]:
        return "position 0 is marked as sampled, but nothing precedes it"
    ids, mask = rollout.ids_T, rollout.mask_T
    logprobs, versions = rollout.logprobs_T[mask], rollout.versions_T[mask]
    if ids.min() < 0 or ids.max() >= vocab_size:
        return f"ids in {ids.min()}..{ids.max()}, the vocabulary has 0..{vocab_size - 1}"
    if not np.isfinite(logprobs).all():
        return "a log-prob that is not finite"
    if (logprobs > 0).any():
        return f"a log-prob above 0 ({logprobs.max():.3g})"
    if versions.size and (versions.min() < 0 or versions.max() > version):
        return f"versions in {versions.min()}..{versions.max()}, the learner has 0..{version}"
    if not np.isfinite([rollout.reward, *rollout.terms.values()]).all():
        return f"a reward that is not finite ({rollout.reward}, {rollout.terms})"
    return _experts_fault(rollout, bounds.experts)


def _experts_fault(rollout: Rollout, bounds: tuple[int, int, int] | None) -> str | None:
    size, (layers, chosen) = len(rollout.experts_u16), rollout.experts_shape
    if not size:
        return None
    if bounds is None:
        return "a record of experts, and the run wants none"
    if (layers, chosen) != bounds[:2]:
        return f"experts of {layers} × {chosen} a token, the model has {bounds[0]} × {bounds[1]}"
    tokens, rest = divmod(size, 2 * layers * chosen)
    if rest or tokens > len(rollout):
        return f"{size} bytes of experts for {len(rollout)} ids of {layers} × {chosen} experts"
    highest = int(np.frombuffer(rollout.experts_u16, "<u2").max())
    return f"expert {highest} of {bounds[2]}" if highest >= bounds[2] else None
