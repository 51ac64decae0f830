"""Scores, their parts and the records of episodes."""

import dataclasses
import json
import sqlite3
from types import SimpleNamespace

import pytest

from jax_t2sql.bus import Group, Task
from jax_t2sql.bus import Rollout as BusRollout
from jax_t2sql.evaluation import evaluate, is_correct, sample_record, score
from jax_t2sql.grading import EquivalenceRule, GradingPool, RewardRule
from jax_t2sql.groups import equivalence_metrics, group_metrics, prompt_metrics
from jax_t2sql.prompt_builder import PromptBuilder
from jax_t2sql.rollouts import grade_episodes, rollout_seed, run_episodes
from jax_t2sql.text2sql import Completion, EpisodeConfig, Problem
from jax_t2sql.text2sql.prompt_options import PromptOptions


class Letters:
    """A codec in which every character is one id, and 0 ends a turn."""

    stop_ids = frozenset({0})
    opens_reasoning = False

    def encode_prompt(self, messages):
        return tuple(ord(c) for message in messages for c in message["content"])

    def encode_observation(self, text, *, last_id):
        return tuple(ord(c) for c in text)

    def decode(self, ids):
        return "".join(chr(i) for i in ids if i)

    def stop_strings(self, style, tools=None):
        return ("</solution>", "</tool_call>") if style == "tools" else ()


class Scripted:
    """A policy that answers each prompt's question from a table, turn by turn."""

    version = 3

    def __init__(self, answers):
        self.answers, self.seen = answers, []

    def generate(self, requests, *, stop_strings=()):
        self.seen += requests
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        prompt = "".join(chr(i) for i in request.prompt_ids)
        text = next(answer for question, answer in self.answers.items() if question in prompt)
        if isinstance(text, list):
            text = text.pop(0)
        ids = (*map(ord, text), 0)
        return Completion(ids, (-0.5,) * len(ids), "stop_token", self.version)


class Cut(Scripted):
    """The same, but every answer meets its token limit instead of its end."""

    def _answer(self, request):
        done = super()._answer(request)
        ids = (*done.ids[:-1], ord(" "))
        return Completion(ids, done.logprobs, "length", self.version)


@pytest.fixture(scope="module")
def pool():
    with GradingPool(1) as pool:
        yield pool


@pytest.fixture(scope="module")
def databases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("databases")
    connection = sqlite3.connect(folder / "shop.sqlite")
    connection.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1), (2), (3);")
    connection.close()
    return folder


def problem(name, gold, difficulty=None):
    return Problem(
        question_id=name, db_id="shop", question=f"<{name}>", gold_sql=gold, difficulty=difficulty
    )


PROBLEMS = [
    problem("right", "SELECT max(a) FROM t", "easy"),
    problem("wrong", "SELECT min(a) FROM t", "easy"),
    problem("broken", "SELECT a FROM t", "hard"),
    problem("empty", "SELECT a FROM t WHERE a > 9", "hard"),
]
ANSWERS = {
    "<right>": "SELECT 3",
    "<wrong>": "SELECT 2",
    "<broken>": "SELEC a",
    "<empty>": "SELECT a FROM t WHERE 0",
}


def question_prompts(databases, **bounds):
    return PromptBuilder(databases, Letters(), EpisodeConfig(style="question", **bounds))


def test_verdicts_and_scores(databases, pool):
    prompts = question_prompts(databases, max_tokens_per_turn=100, max_context=400)
    policy = Scripted(ANSWERS)
    parts = list(evaluate(PROBLEMS, policy=policy, prompts=prompts, pool=pool, batch=3))
    assert [len(part) for part in parts] == [3, 1]
    assert {request.temperature for request in policy.seen} == {0.0}
    answers = sum(parts, [])
    found = [answer.record["verdict"] for answer in answers]
    assert found == ["equal", "different", "error", "gold_empty"]
    total = score(answers)
    assert (total.correct, total.n) == (2, 4), "benchmarks count an equal empty result"
    assert [answer.record["correct"] for answer in answers] == [True, False, False, True]


def test_a_question_that_does_not_fit_counts_as_wrong_in_every_table(databases, pool):
    prompts = question_prompts(databases, max_tokens_per_turn=30, max_context=37)
    found = evaluate(PROBLEMS, policy=Scripted(ANSWERS), prompts=prompts, pool=pool, batch=4)
    answers = next(found)
    assert [answer.problem for answer in answers] == PROBLEMS, "the order of the file"
    assert answers[2].record["verdict"] == "prompt_too_long"
    assert "prompt of 8 tokens" in answers[2].record["detail"]
    assert (score(answers).correct, score(answers).n) == (2, 4)


@pytest.fixture
def rollouts(databases, pool):
    prompts = question_prompts(databases, max_tokens_per_turn=100, max_context=400)
    states = run_episodes(
        PROBLEMS, range(4), policy=Scripted(ANSWERS), prompts=prompts, pool=pool, temperature=0.0
    )
    return grade_episodes(states, prompts=prompts, pool=pool)


def test_rewards_of_the_same_rollouts(rollouts):
    earned = [(rollout.reward.valid, rollout.reward.total) for rollout in rollouts]
    assert earned == [(True, 1.0), (True, 0.0), (True, 0.0), (False, 0.0)]


def test_records_hold_what_a_reader_needs(rollouts):
    record = sample_record(rollouts[1])
    assert (record["predicted_sql"], record["gold_sql"]) == ("SELECT 2", "SELECT min(a) FROM t")
    assert (record["verdict"], record["reward"], record["version"]) == ("different", 0.0, 3)
    assert record["turns"] == [{"role": "assistant", "text": "SELECT 2"}]
    assert sample_record(rollouts[3])["reward"] is None


def test_a_whole_tool_episode_in_lock_step(databases, pool):
    prompts = PromptBuilder(
        databases,
        Letters(),
        EpisodeConfig(style="tools", max_tokens_per_turn=400, max_context=20_000),
    )
    call = (
        '<tool_call>{"name": "execute_sql_query", "arguments": {"query": "SELECT max(a) FROM t"}}'
        "</tool_call>"
    )
    answers = {
        "<right>": [call, "<solution>SELECT 3</solution>"],
        "<wrong>": ["<solution>SELECT 2</solution>"],
    }
    states = run_episodes(
        PROBLEMS[:2], [0, 1], policy=Scripted(answers), prompts=prompts, pool=pool
    )
    found = grade_episodes(states, prompts=prompts, pool=pool)
    assert [rollout.verdict.status for rollout in found] == ["equal", "different"]
    roles = [turn["role"] for turn in sample_record(found[0])["turns"]]
    assert roles == ["assistant", "tool", "assistant"]
    assert "3" in sample_record(found[0])["turns"][1]["text"]
    state = found[0].state
    assert len(state.ids) == len(state.mask) == len(state.logprobs) == len(state.versions)


REQUIRED = "Requirement of external knowledge 1 (a is all): take every a."
VERIFIED = "Verification of external knowledge 1 (a is all): every a is taken."


@pytest.mark.parametrize(
    ("said", "evidence", "given", "terms", "total"),
    [
        (f"{REQUIRED}\n{VERIFIED}\n", "structured", "own", (0.0, 0.0), 1.0),
        (f"{REQUIRED}\n", "structured", "own", (0.0, -0.1), 0.9),
        ("", "structured", "own", (-0.1, -0.1), 0.8),
        ("", "plain", "own", (None, None), 1.0),
        # What is false need not be said, and earns nothing.
        ("", "structured", "wrong", (None, None), 1.0),
        (f"{REQUIRED}\n{VERIFIED}\n", "structured", "wrong", (None, None), 1.0),
        ("", "structured", "withheld", (None, None), 1.0),
    ],
)
def test_missed_evidence_rules_cost(databases, pool, said, evidence, given, terms, total):
    options = PromptOptions(evidence=evidence)
    episode = EpisodeConfig(
        style="tools", max_tokens_per_turn=400, max_context=20_000, options=options
    )
    shown = "" if given == "withheld" else "a is all"
    asked = dataclasses.replace(PROBLEMS[0], evidence=shown, given=given)
    answers = {"<right>": [f"{said}<solution>SELECT 3</solution>"]}
    prompts = PromptBuilder(databases, Letters(), episode)
    states = run_episodes([asked], [0], policy=Scripted(answers), prompts=prompts, pool=pool)
    (found,) = grade_episodes(states, prompts=prompts, pool=pool)
    paid = found.reward.terms
    assert (paid.get("requirement"), paid.get("verification")) == terms
    assert found.reward.total == pytest.approx(total)
    missed = sample_record(found).get("evidence_missed")
    if terms == (None, None):
        assert missed is None
    else:
        assert [bool(numbers) for numbers in missed.values()] == [term < 0 for term in terms]


@pytest.mark.parametrize(("lenient", "total"), [(False, -1.0), (True, 1.0)])
def test_a_cut_off_answer_counts_only_where_that_is_asked_for(databases, pool, lenient, total):
    prompts = question_prompts(databases, max_tokens_per_turn=9)
    answers = {"<right>": "SELECT 3"}  # nine ids with the one that ends it
    states = run_episodes([PROBLEMS[0]], [0], policy=Cut(answers), prompts=prompts, pool=pool)
    rule = RewardRule(lenient=lenient)
    (found,) = grade_episodes(states, prompts=prompts, pool=pool, rule=rule)
    assert found.reward.total == total
    assert states[0].ending.kind == "cut_off", "the episode itself stays what it was"


def test_long_prompts_are_set_aside_with_numbers(databases):
    prompts = PromptBuilder(
        databases,
        Letters(),
        EpisodeConfig(style="question", max_tokens_per_turn=10, max_context=17),
    )
    fitting, too_long = prompts.split_by_length(PROBLEMS)
    assert [p.question_id for p in fitting] == ["right", "wrong", "empty"]
    assert "prompt of 8 tokens; with 10 to answer it is over the context of 17" in too_long[0][1]


LUCKY = problem("lucky", "SELECT max(a) FROM t")
SAME = problem("same", "SELECT a FROM t WHERE a > 1")
ROLLS = {"<lucky>": "SELECT 3", "<same>": "SELECT a FROM t WHERE 1 < a", **ANSWERS}
RULE = EquivalenceRule(seconds=0.5)


@pytest.fixture(scope="module")
def checked(databases, pool):
    """A lucky answer, a right one and a wrong one, checked for equivalence."""
    prompts = question_prompts(databases, max_tokens_per_turn=100, max_context=400)
    problems = [LUCKY, SAME, PROBLEMS[1]]
    states = run_episodes(problems, range(3), policy=Scripted(ROLLS), prompts=prompts, pool=pool)
    return grade_episodes(states, prompts=prompts, pool=pool, equivalence=RULE)


def test_only_right_answers_are_checked_and_only_refuted_ones_lose(checked):
    assert [r.verdict.status for r in checked] == ["equal", "equal", "different"]
    assert checked[0].equivalence.kind == "refuted"
    assert checked[1].equivalence.kind in ("equivalent", "unknown")
    assert checked[2].equivalence is None
    assert [r.reward.total for r in checked] == [0.8, 1.0, 0.0]
    assert [r.reward.terms.get("equivalence") for r in checked] == [-0.2, 0.0, None]
    assert is_correct(checked[0]), "benchmarks go by the real data alone"


def test_a_rule_may_only_measure(databases, pool, checked):
    rule, prompts = RewardRule(refuted=0.0), question_prompts(databases)
    found = grade_episodes([checked[0].state], prompts=prompts, pool=pool, rule=rule,
                           equivalence=RULE)  # fmt: skip
    assert found[0].reward.total == 1.0 and found[0].equivalence.kind == "refuted"


def test_a_schema_that_cannot_be_read_leaves_the_pair_open(tmp_path, pool):
    connection = sqlite3.connect(tmp_path / "shop.sqlite")
    connection.executescript("CREATE TABLE t (a); DROP TABLE t;")
    connection.close()
    prompts = question_prompts(tmp_path, max_tokens_per_turn=100, max_context=400)
    asked = problem("none", "SELECT 1 + 2")
    policy = Scripted({"<none>": "SELECT 3"})
    states = run_episodes([asked], [0], policy=policy, prompts=prompts, pool=pool)
    (found,) = grade_episodes(states, prompts=prompts, pool=pool, equivalence=RULE)
    assert (found.reward.total, found.equivalence.kind) == (1.0, "unknown")
    assert "creates no table" in found.equivalence.reason
    assert sample_record(found)["equivalence"]["cause"] == "not_runnable"


def test_records_hold_the_counterexample(checked):
    told = sample_record(checked[0])["equivalence"]
    assert (told["verdict"], told["source"] is not None) == ("refuted", True)
    assert "CREATE TABLE t" in told["database"]
    assert "equivalence" not in sample_record(checked[2])


def test_checks_are_counted_by_step(checked):
    rollouts = [
        SimpleNamespace(terms=dict(r.reward.terms), trace=json.dumps(sample_record(r)))
        for r in checked
    ]
    metrics = equivalence_metrics([SimpleNamespace(rollouts=rollouts)])
    assert metrics["equivalence_checked"] == 2
    assert metrics["refuted_share"] == 0.5
    source = checked[0].equivalence.source.replace("-", "_")
    assert metrics[f"refuted_by_{source}_share"] == 0.5
    assert metrics["equivalent_share"] + metrics["unknown_share"] == 0.5
    assert metrics["equivalence_cpu_seconds"] > 0
    assert equivalence_metrics([SimpleNamespace(rollouts=rollouts[2:])]) == {}


def test_reasons_of_unknown_are_counted():
    trace = {"equivalence": {"verdict": "unknown", "cause": "chance", "cpu_seconds": 0.0}}
    rollout = SimpleNamespace(terms={"equivalence": 0.0}, trace=json.dumps(trace))
    metrics = equivalence_metrics([SimpleNamespace(rollouts=[rollout])])
    assert metrics["unknown_share"] == metrics["unknown_chance_share"] == 1.0


def group(*rollouts):
    """A group as it comes from the bus; each rollout is (reward, ending, terms, valid)."""
    made = [
        BusRollout.make(
            [5, 6, 7, 8, 9, 10],
            mask_T=[0, 0, 1, 1, 0, 1],
            logprobs_T=[-1.0] * 6,
            versions_T=[0] * 6,
            reward=reward if valid else None,
            terms=terms,
            ending=ending,
        )
        for reward, ending, terms, valid in rollouts
    ]
    task = Task(seq=0, problem="q", group_size=len(made), seed=0)
    return Group.make(task, contract="0" * 64, sampler="s", rollouts=made)


def right(**marks):
    return 1, "answered", {"correct": 1.0, **marks}, True


def wrong(**marks):
    return 0, "answered", {"correct": 0.0, **marks}, True


def test_group_metrics_count_shares():
    unfinished, invalid = (-1, "cut_off", {}, True), (9, "answered", {}, False)
    metrics = group_metrics([group(right(), wrong()), group(unfinished, invalid)])
    assert metrics["reward_mean"] == 0.0
    assert metrics["accuracy_train"] == 0.25
    assert metrics["cut_off_share"] == metrics["invalid_share"] == 0.25
    assert metrics["zero_signal_share"] == 0.5
    assert (metrics["completion_tokens_mean"], metrics["prompt_tokens_mean"]) == (3, 2)
    assert metrics["turns_mean"] == 2
    assert metrics["groups_mixed_share"] == metrics["groups_unsolved_share"] == 0.5


def test_groups_with_and_without_hints_are_counted_apart():
    groups = [
        group(right(), right()),
        group(right(), wrong()),
        group(wrong(), wrong()),
        group((1, "answered", {}, False), wrong()),  # of what is valid none is right
        group(wrong(hinted=1.0), right(hinted=1.0)),
        group(wrong(evidence_wrong=1.0), wrong(evidence_wrong=1.0)),
        group(right(evidence_withheld=1.0), right(evidence_withheld=1.0)),
        group((1, "answered", {}, False), (1, "answered", {}, False)),  # nothing can be said
    ]
    found = prompt_metrics(groups)
    assert found["hinted_share"] == found["evidence_wrong_share"] == 1 / 8
    assert found["evidence_withheld_share"] == 1 / 8
    assert found["groups_unsolved_share"] == pytest.approx(3 / 6)
    assert found["groups_mixed_share"] == pytest.approx(1 / 6)
    assert found["groups_solved_share"] == pytest.approx(2 / 6)
    assert (found["hinted_unsolved_share"], found["hinted_solved_share"]) == (0, 0)
    assert found["hinted_mixed_share"] == 1
    plain = prompt_metrics(groups[:1])
    assert plain["hinted_share"] == 0 and "hinted_mixed_share" not in plain
    assert [g.outcome.plain for g in groups] == [True] * 5 + [False] * 2 + [True]


def test_seeds_are_stable_and_differ():
    seeds = {rollout_seed(0, seq, member) for seq in range(100) for member in range(8)}
    assert len(seeds) == 800
    assert rollout_seed(1, 2, 3) == rollout_seed(1, 2, 3) < 2**32
