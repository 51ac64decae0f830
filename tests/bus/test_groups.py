import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.bus import BadObject, Bounds, Group, Task
from jax_t2sql.bus import groups as module
from jax_t2sql.bus.groups import check_group, decode_group, encode_group

TASK = Task(seq=3, problem="q3", group_size=2, seed=0, attempt=1)


@pytest.fixture(scope="module")
def make(kit):
    def make_group(task=TASK, **changes):
        rollouts = changes.pop("rollouts", None) or kit.rollouts(TASK, 0)
        group = Group.make(task, contract=kit.contract.sha256, sampler="s1", rollouts=rollouts)
        return msgspec.structs.replace(group, **changes)

    return make_group


@pytest.fixture(scope="module")
def check(kit):
    def check_it(group, *, version=5, experts=None):
        bounds = Bounds(vocab_size=kit.vocab, groups_per_batch=2, experts=experts)
        check_group(group, TASK, contract=kit.contract.sha256, bounds=bounds, version=version)

    return check_it


def wire(rollout, **changes):
    return msgspec.structs.replace(rollout, **changes)


@settings(deadline=None)
@given(
    tokens=st.lists(
        st.tuples(
            st.integers(0, 99),
            st.booleans(),
            st.floats(-50, 0, width=32),
            st.integers(0, 5),
        ),
        min_size=1,
        max_size=30,
    ),
    reward=st.none() | st.floats(-1, 1),
    trace=st.text(),
)
def test_what_goes_in_comes_out(kit, make, check, tokens, reward, trace):
    ids, mask, logprobs, versions = map(np.array, zip(*tokens, strict=True))
    mask[0] = False
    rollout = kit.rollout(
        ids_T=ids,
        mask_T=mask,
        logprobs_T=logprobs,
        versions_T=versions,
        reward=reward,
        trace=trace,
    )
    group = make(rollouts=[rollout] * 2)
    back = decode_group(encode_group(group))
    check(back)
    assert back == group
    got = back.rollouts[0]
    np.testing.assert_array_equal(got.ids_T, ids)
    np.testing.assert_array_equal(got.mask_T, mask)
    np.testing.assert_array_equal(got.logprobs_T, np.where(mask, logprobs, 0))
    np.testing.assert_array_equal(got.versions_T, np.where(mask, versions, -1))
    assert (got.valid, got.trace) == (reward is not None, trace)
    assert back.oldest_version == (versions[mask].min() if mask.any() else None)


def test_float_noise_above_zero_is_stored_as_zero_and_no_more(kit, make, check):
    logprobs = np.full(8, 5e-7, np.float32)
    assert kit.rollout(logprobs_T=logprobs).logprobs_T.max() == 0
    group = make(rollouts=[kit.rollout(logprobs_T=np.full(8, 2e-6, np.float32))] * 2)
    with pytest.raises(BadObject, match="log-prob above 0"):
        check(group)


def test_experts_travel_with_their_tokens_and_are_checked(kit, make, check):
    """Two layers, three of eight experts a token; the last token was never read."""
    known = np.random.default_rng(0).integers(0, 8, (7, 2, 3))

    def group(experts, shape=(2, 3)):
        record = experts.astype("<u2").tobytes(), *shape
        return make(rollouts=[kit.rollout(experts=record), kit.rollout()])

    back = decode_group(encode_group(group(known)))
    check(back, experts=(2, 3, 8))
    experts_TLE = back.rollouts[0].experts_TLE
    assert experts_TLE.shape == (8, 2, 3) and (experts_TLE[7] == -1).all()
    np.testing.assert_array_equal(experts_TLE[:7], known)
    assert back.rollouts[1].experts_TLE is None
    for bad, bounds, message in (
        (group(known), None, "the run wants none"),
        (group(known), (3, 3, 8), "experts of 2 × 3 a token, the model has 3 × 3"),
        (group(known), (2, 3, 7), "expert 7 of 7"),
        (group(known.ravel()[:-1]), (2, 3, 8), "82 bytes of experts for 8 ids"),
        (group(np.zeros((9, 2, 3))), (2, 3, 8), "108 bytes of experts for 8 ids"),
        (group(known, (0, 3)), (2, 3, 8), "experts of 0 × 3"),
    ):
        with pytest.raises(BadObject, match=message) as caught:
            check(bad, experts=bounds)
        assert caught.value.fate == "invalid"


def test_a_truncated_object_is_corrupt_wherever_it_ends(make):
    data = encode_group(make())
    for length in range(len(data)):
        with pytest.raises(BadObject) as caught:
            decode_group(data[:length])
        assert caught.value.fate == "corrupt"


def test_a_flipped_bit_is_corrupt_wherever_it_is(make):
    group = make()
    data = encode_group(group)
    for place in range(4, len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        try:
            decoded = decode_group(bytes(flipped))
        except BadObject as error:
            assert error.fate == "corrupt"
        else:  # a bit that the frame format does not use
            assert decoded == group


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_corrupt(data):
    for candidate in (data, zstandard.compress(data)):
        with pytest.raises(BadObject):
            decode_group(candidate)


def test_a_decompression_bomb_is_refused_by_its_stated_size():
    bomb = zstandard.compress(b"\0" * (module.MAX_DECODED_BYTES + 1))
    assert len(bomb) < 2**16
    with pytest.raises(BadObject, match="states 268435457 bytes"):
        decode_group(bomb)


def test_a_bomb_that_hides_its_size_is_refused():
    bomb = zstandard.ZstdCompressor(write_content_size=False).compress(b"\0" * 10_000)
    with pytest.raises(BadObject, match="states -1 bytes"):
        decode_group(bomb)


def test_bytes_after_the_frame_and_large_objects_are_refused(make, monkeypatch):
    group = make()
    data = encode_group(group)
    with pytest.raises(BadObject, match="do not decompress"):
        decode_group(data + data)
    monkeypatch.setattr(module, "MAX_GROUP_BYTES", len(data) - 1)
    with pytest.raises(BadObject, match="the limit is"):
        decode_group(data)
    with pytest.raises(ValueError, match="use smaller groups"):
        encode_group(group)


def test_wrong_types_and_unknown_fields_do_not_decode(make):
    plain = msgspec.to_builtins(make(), builtin_types=(bytes,))
    for changes in ({"seq": "3"}, {"seq": -1}, {"rollouts": 1}, {"more": 1}, {"contract": "x"}):
        data = zstandard.compress(msgspec.msgpack.encode(plain | changes))
        with pytest.raises(BadObject, match="does not decode"):
            decode_group(data)


BAD_ROLLOUTS = {
    "ids in": lambda r: wire(r, ids_i32=np.full(8, 100, "<i4").tobytes()),
    "ids in -1": lambda r: wire(r, ids_i32=np.full(8, -1, "<i4").tobytes()),
    "not finite$": lambda r: wire(r, logprobs_f32=np.full(8, np.nan, "<f4").tobytes()),
    "log-prob that is": lambda r: wire(r, logprobs_f32=np.full(8, -np.inf, "<f4").tobytes()),
    "above 0": lambda r: wire(r, logprobs_f32=np.full(8, 0.1, "<f4").tobytes()),
    "for 8 mask values": lambda r: wire(r, ids_i32=r.ids_i32[:-4]),
    "for 7 mask values": lambda r: wire(r, mask_u8=r.mask_u8[:-1]),
    "have .28, 32, 32. bytes": lambda r: wire(r, ids_i32=r.ids_i32[:-4]),
    "have .32, 32, 31. bytes": lambda r: wire(r, versions_i32=r.versions_i32[:-1]),
    "other than 0 and 1": lambda r: wire(r, mask_u8=b"\0\0\0\2\1\1\1\1"),
    "position 0": lambda r: wire(r, mask_u8=b"\1" * 8),
    "no ids": lambda r: wire(r, ids_i32=b"", mask_u8=b"", logprobs_f32=b"", versions_i32=b""),
    "versions in 9": lambda r: wire(r, versions_i32=np.full(8, 9, "<i4").tobytes()),
    "versions in -1": lambda r: wire(r, versions_i32=np.full(8, -1, "<i4").tobytes()),
    "reward that is not finite": lambda r: wire(r, reward=float("nan")),
    "not finite .*inf": lambda r: wire(r, terms={"a": float("inf")}),
}


@pytest.mark.parametrize("fault", BAD_ROLLOUTS)
def test_bad_numbers_are_invalid_and_name_the_sampler(kit, make, check, fault):
    good = kit.rollout()
    group = decode_group(encode_group(make(rollouts=[good, BAD_ROLLOUTS[fault](good)])))
    with pytest.raises(BadObject, match=f"'s1': rollout 1: .*{fault}") as caught:
        check(group)
    assert (caught.value.fate, caught.value.sampler) == ("invalid", "s1")


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"contract": "0" * 64}, "under contract 000000000000"),
        ({"seq": 4}, "answers task 4"),
        ({"problem": "q4"}, "not 'q3'"),
        ({"attempt": 2}, "attempt 2, only 1"),
        ({"rollouts": ()}, "0 rollouts, 2 were asked for"),
    ],
)
def test_an_answer_to_something_else_is_invalid(make, check, changes, fault):
    group = msgspec.structs.replace(make(), **changes)
    with pytest.raises(BadObject, match=fault) as caught:
        check(group)
    assert caught.value.fate == "invalid"


def test_an_answer_to_an_earlier_attempt_counts(make, check):
    check(make(attempt=0))
