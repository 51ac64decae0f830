from hypothesis import given
from hypothesis import strategies as st

from data_pipelines.splits import split_by_hash, split_by_marks
from jax_t2sql.text2sql import Problem


def problems(count):
    return [
        Problem(question_id=str(i), db_id="d", question="Q?", gold_sql=f"SELECT {i // 2}")
        for i in range(count)
    ]


def test_the_split_is_fixed_and_keeps_equal_golds_together():
    train, heldout = split_by_hash(problems(4000), 0.15)
    assert 0.12 < len(heldout) / 4000 < 0.18
    backwards = split_by_hash(problems(4000)[::-1], 0.15)
    assert [sorted(part, key=lambda p: int(p.question_id)) for part in backwards] == [
        train,
        heldout,
    ]
    golds = {p.gold_sql for p in train} & {p.gold_sql for p in heldout}
    assert not golds
    # Another layout of the same query is no other query.
    spaced = Problem(question_id="x", db_id="d", question="Q?", gold_sql=" select\n7 ")
    alone = split_by_hash([spaced], 0.15)[1] == [spaced]
    assert alone == any(p.gold_sql == "SELECT 7" for p in heldout)


@given(st.integers(1, 12), st.sampled_from([0.0, 1e-6, 0.15, 0.9]), st.integers(0, 10**6))
def test_small_sets_have_questions_on_either_side(count, share, salt):
    asked = [
        Problem(question_id=str(i), db_id=str(salt), question="Q?", gold_sql=f"SELECT {i}")
        for i in range(count)
    ]
    train, heldout = split_by_hash(asked, share)
    assert sorted([*train, *heldout], key=asked.index) == asked
    if share == 0:
        assert not heldout
    elif count > 1:
        assert train and heldout


@given(st.lists(st.sampled_from(["train", "dev", None]), min_size=1, max_size=8))
def test_marks_split_where_all_rows_have_one_and_they_differ(marks):
    found = split_by_marks(problems(len(marks)), marks)
    if None in marks or len(set(marks)) == 1:
        assert found is None
    else:
        assert list(found) == list(dict.fromkeys(marks))
        assert sorted(p.question_id for part in found.values() for p in part) == sorted(
            str(i) for i in range(len(marks))
        )
