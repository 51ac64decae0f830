import pytest

from jax_t2sql.scores.cost_chart import cost_figure


def results(accuracy=0.5, *, tokens=100, dollars=None, answers=10, votes=None, **fields):
    cost = {"answers": answers, "tokens_known_of": answers, "prompt_tokens": tokens}
    found = {"accuracy": accuracy, "cost": cost | {"dollars": dollars}}
    if votes:
        found["self_consistency"] = {"n": list(range(1, len(votes) + 1)), "accuracy": votes}
    return found | fields


def test_tokens_where_no_price_is_known():
    found = cost_figure([("mine", results(votes=[0.4, 0.5, 0.55, 0.6, 0.6]))])
    votes, greedy = found["data"]
    assert votes["x"] == [10, 20, 40, 50] and votes["y"] == [0.4, 0.5, 0.6, 0.6]
    assert (greedy["x"], greedy["y"], greedy["showlegend"]) == ([10], [0.5], False)
    assert found["layout"]["xaxis"]["title"]["text"] == "tokens a question"
    assert "mine, vote of 2: 20 tokens a question, 50.0%" in found["summary"]


def test_dollars_where_all_tell_them():
    runs = [("a", results(dollars=5.0)), ("b", results(0.7, dollars=20.0))]
    found = cost_figure(runs)
    assert [(t["name"], t["x"], t["y"]) for t in found["data"]] == [
        ("a", [0.5], [0.5]),
        ("b", [2.0], [0.7]),
    ]
    mixed = cost_figure([*runs, ("c", results())])
    assert [trace["x"] for trace in mixed["data"]] == [[10], [10], [10]]
    hours = results(dollars=8.0, tokens=0) | {"cost": {"answers": 4, "dollars": 8.0}}
    assert cost_figure([("served", hours)])["data"][0]["x"] == [2.0]


def test_a_vote_as_headline_is_no_point_of_its_own():
    found = cost_figure([("a", results(0.6, votes=[0.4, 0.6], decoding="self-consistency of 2"))])
    assert found["data"][0]["y"] == [0.4, 0.6]


@pytest.mark.parametrize("runs", [[], [("a", {})], [("a", results(None))]])
def test_nothing_known_is_no_chart(runs):
    assert cost_figure(runs) is None
