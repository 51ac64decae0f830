import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.learner import LearnerBatch, Trajectory, pack

ROW = 24


@st.composite
def batches(draw):
    """Trajectories whose tokens are all different, so that each can be found again."""
    made, token = [], 1
    for length in draw(st.lists(st.integers(1, ROW), min_size=1, max_size=40)):
        sampled = draw(st.lists(st.booleans(), min_size=length - 1, max_size=length - 1))
        ids_T = np.arange(token, token + length)
        made.append(Trajectory(ids_T, [False, *sampled], -ids_T / 7, advantage=float(token)))
        token += length
    return made


def unpack(batch: LearnerBatch):
    """Every segment of every row as (ids, positions, {index of sampled token: (logprob, adv)})."""
    found = []
    rows = [
        np.asarray(getattr(batch, name)).reshape(-1, getattr(batch, name).shape[-1])
        for name in ("tokens_MBT", "positions_MBT", "segments_MBT", "scored_MBN", "targets_MBN",
                     "mask_MBN", "advantages_MBN", "sampler_logprobs_MBN")
    ]  # fmt: skip
    for tokens, positions, segments, scored, targets, mask, advantages, logprobs in zip(
        *rows, strict=True
    ):
        for segment in range(1, segments.max() + 1):
            (where,) = np.nonzero(segments == segment)
            assert (np.diff(where) == 1).all()
            slots = np.flatnonzero((mask == 1) & (segments[scored] == segment))
            assert (tokens[scored[slots] + 1] == targets[slots]).all()
            assert (segments[scored[slots] + 1] == segment).all()
            sampled = {
                int(scored[slot] + 1 - where[0]): (logprobs[slot], advantages[slot])
                for slot in slots
            }
            found.append((tokens[where], positions[where], sampled))
        assert set(np.unique(mask)) <= {0.0, 1.0}
    return found


@settings(max_examples=60, deadline=None)
@given(made=batches(), rows=st.integers(1, 5), packed=st.booleans())
def test_every_trajectory_lands_exactly_once_and_whole(made, rows, packed):
    batch = pack(made, row_length=ROW, rows_per_microbatch=rows, packed=packed)
    M, B, T = batch.tokens_MBT.shape
    assert (rows, ROW) == (B, T) and M & (M - 1) == 0
    found = {ids[0]: (ids, positions, sampled) for ids, positions, sampled in unpack(batch)}
    assert len(found) == len(made) == len(unpack(batch))
    for trajectory in made:
        ids, positions, sampled = found[trajectory.ids_T[0]]
        np.testing.assert_array_equal(ids, trajectory.ids_T)
        np.testing.assert_array_equal(positions, np.arange(len(trajectory)))
        assert list(sampled) == np.flatnonzero(trajectory.mask_T).tolist()
        for index, (logprob, advantage) in sampled.items():
            assert logprob == trajectory.logprobs_T[index]
            assert advantage == trajectory.advantage
    assert batch.mask_MBN.sum() == sum(t.mask_T.sum() for t in made)
    if not packed:
        assert batch.segments_MBT.max() == 1


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, ROW), min_size=1, max_size=60))
def test_rows_are_filled_within_the_bound_of_first_fit_decreasing(lengths):
    made = [Trajectory(np.ones(n), np.zeros(n), np.zeros(n)) for n in lengths]
    used = (pack(made, row_length=ROW, rows_per_microbatch=1).segments_MBT > 0).any(-1).sum()
    # Any two rows together hold more than one row's worth, or the later would have fitted.
    assert used <= max(1, 2 * sum(lengths) / ROW)


def test_shapes_depend_on_the_batch_only_through_powers_of_two():
    def shape(count):
        made = [Trajectory(np.ones(ROW), np.zeros(ROW), np.zeros(ROW))] * count
        return pack(made, row_length=ROW, rows_per_microbatch=4).tokens_MBT.shape

    assert {shape(n) for n in range(1, 65)} == {(m, 4, ROW) for m in (1, 2, 4, 8, 16)}


def test_a_trajectory_longer_than_a_row_is_named():
    made = [Trajectory([1, 2], [0, 1], [0, -1]), Trajectory([1] * 9, [0] * 9, [0] * 9)]
    with pytest.raises(ValueError, match=r"trajectory 1 has 9 tokens, more than row_length=8"):
        pack(made, row_length=8, rows_per_microbatch=1)


def test_nothing_to_pack_and_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="at least one trajectory"):
        pack([], row_length=8, rows_per_microbatch=1)
    with pytest.raises(ValueError, match="rows_per_microbatch=0"):
        pack([Trajectory([1], [0], [0])], row_length=8, rows_per_microbatch=0)


@pytest.mark.parametrize(
    ("ids", "mask", "logprobs", "advantage", "message"),
    [
        ([1, 2], [0, 1, 1], [0, 0], 1.0, r"equally long, got shapes \(2,\), \(3,\), \(2,\)"),
        ([], [], [], 1.0, "at least one token"),
        ([1, 2], [1, 1], [0, 0], 1.0, "token 0 .* nothing precedes it"),
        ([1, 2], [0, 1], [0, np.nan], 1.0, "log-prob of token 1 is nan"),
        ([1, 2], [0, 1], [0, -1], np.inf, "advantage .* got inf"),
    ],
)
def test_bad_trajectories_are_refused(ids, mask, logprobs, advantage, message):
    with pytest.raises(ValueError, match=message):
        Trajectory(ids, mask, logprobs, advantage)


def test_log_probs_of_context_tokens_do_not_matter():
    assert len(Trajectory([1, 2, 3], [0, 0, 1], [np.nan, -np.inf, -1.0])) == 3
