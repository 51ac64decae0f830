"""The figures of an evaluation from its answers and verdicts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from jax_t2sql.errors import UserError
from jax_t2sql.eval.options import EvalArgs
from jax_t2sql.eval.questions import Asked
from jax_t2sql.eval.tasks import counting
from jax_t2sql.eval.voting import Candidate, ExecutionRow, self_consistency
from jax_t2sql.scores.cost import cost
from jax_t2sql.scores.records import AnswerId, AnswerRow, VerdictRow
from jax_t2sql.scores.summary import proxy_test, share, summarise

Correct = Mapping[tuple[AnswerId, str], bool | None]


def make_results(
    args: EvalArgs,
    asked: Asked,
    answers: Sequence[AnswerRow],
    verdicts: Sequence[VerdictRow],
    executions: Mapping[AnswerId, ExecutionRow],
    differing: Sequence[dict],
    manifest: Mapping[str, Any],
) -> dict[str, Any]:
    """What results.json holds.

    The headline is the greedy answers' accuracy under the first grader and the questions' own key,
    or the vote's where there are only samples. Evidence is shown in it, if it ever is.

    Raises:
      UserError: no question could be graded, or the price table cannot be read.
    """
    grader = manifest["graders"][0]
    shown = any(answer.evidence for answer in answers)
    right = {(v.answer_id, v.key): v.correct for v in verdicts if v.grader == grader}
    results = _part(args, asked, answers, verdicts, executions, right, grader, shown)
    if not results["n"]:
        raise UserError(
            f"none of the {len(asked.rows):,} questions could be graded under {grader}: see"
            f" {args.out / 'verdicts.jsonl'}"
        )
    if shown and not all(answer.evidence for answer in answers):
        results["without_evidence"] = _part(
            args, asked, answers, verdicts, executions, right, grader, False
        )
    winners = results.get("self_consistency", {}).get("winners", {})
    single = list(counting(answers, winners).values())
    return results | {
        "left_out": dict(asked.left_out),
        "endings": dict(sorted(Counter(answer.ending for answer in answers).items())),
        "keys": _by_key(asked, single, right),
        "key_disagreements": _key_disagreements(asked, single, right),
        "differing_golds": list(differing),
        "cost": cost(
            answers,
            results["correct"],
            model=_model_name(args, manifest),
            prices=args.prices,
            device_hours=args.device_hours,
            device_hour_price=args.device_hour_price,
        ),
        "manifest": manifest,
    }


def _part(
    args: EvalArgs,
    asked: Asked,
    answers: Sequence[AnswerRow],
    verdicts: Sequence[VerdictRow],
    executions: Mapping[AnswerId, ExecutionRow],
    right: Correct,
    grader: str,
    shown: bool,
) -> dict[str, Any]:
    """Figures of the answers with, or without, evidence."""
    answers = [answer for answer in answers if answer.evidence == shown]
    sampled = _candidates(asked, answers, executions, right)
    curve = self_consistency(sampled, seed=args.seed) if sampled else None
    only_samples = all(answer.candidate for answer in answers)
    # The answer that counts for each question: the greedy one, or the vote's.
    counts = (curve or {}).get("winners", {}) if only_samples else {}

    def chosen(row: AnswerRow | VerdictRow) -> bool:
        return row.candidate == counts.get(row.question_id, 1 if only_samples else 0)

    summary = summarise(
        {row.question_id: row for row in asked.rows},
        [msgspec.structs.replace(row, candidate=0) for row in answers if chosen(row)],
        [msgspec.structs.replace(row, candidate=0) for row in verdicts if chosen(row)],
        grader=grader,
        key=asked.key,
        proxy=args.proxy,
        evidence=shown,
    )
    summary["decoding"] = "greedy"
    if curve:
        summary["self_consistency"] = curve
        for name, part in summary["graders"].items():
            if "accuracy" not in part:  # a number, not right or wrong
                continue
            marks = {(v.answer_id, v.key): v.correct for v in verdicts if v.grader == name}
            votes = _candidates(asked, answers, executions, marks)
            part["votes"] = _last_vote(self_consistency(votes, seed=args.seed), len(votes))
    if curve and only_samples:
        # All draws' mean; the parts above are of the first draw.
        summary |= share(curve["by_question"].values())
        summary["proxy"] = proxy_test(summary, args.proxy)
        summary["decoding"] = f"self-consistency of {curve['n'][-1]}"
    return summary


def _last_vote(curve: Mapping[str, Any], n: int) -> dict[str, Any]:
    """How the vote of all candidates does under a grader, as `share` gives it, and their pass@k."""
    return {
        "candidates": curve["n"][-1],
        "n": n,
        "accuracy": curve["accuracy"][-1],
        "wilson_low": curve["low"][-1],
        "wilson_high": curve["high"][-1],
        "pass_at_k": curve["pass_at_k"][-1],
    }


def _candidates(
    asked: Asked,
    answers: Sequence[AnswerRow],
    executions: Mapping[AnswerId, ExecutionRow],
    right: Correct,
) -> dict[str, list[Candidate]]:
    """Sampled answers by question; questions that cannot be graded are left out."""
    found: dict[str, list[Candidate]] = {}
    ungraded = set()
    for answer in answers:
        if answer.decoding != "sample":
            continue
        correct = right.get((answer.id, asked.key))
        if correct is None:
            ungraded.add(answer.question_id)
        execution = executions.get(answer.id)
        digest = None if execution is None else execution.digest
        found.setdefault(answer.question_id, []).append(
            Candidate(answer.candidate, digest, bool(correct))
        )
    return {id: candidates for id, candidates in found.items() if id not in ungraded}


def _by_key(asked: Asked, single: Sequence[AnswerRow], right: Correct) -> dict[str, dict]:
    """Counts of right answers by answer key, one answer a question."""
    found = {}
    for key in asked.keys:
        verdicts = [right.get((answer.id, key)) for answer in single]
        graded = [verdict for verdict in verdicts if verdict is not None]
        found[key] = {"n": len(graded), "correct": sum(graded)}
        if graded:
            found[key]["accuracy"] = sum(graded) / len(graded)
    return found


def _key_disagreements(asked: Asked, single: Sequence[AnswerRow], right: Correct) -> list[dict]:
    """Questions whose answer is right under one key and wrong under another."""
    found = []
    for answer in single:
        by_key = {key: right.get((answer.id, key)) for key in asked.keys}
        if len(set(by_key.values()) - {None}) > 1:
            found.append({"question_id": answer.question_id, "correct": by_key})
    return found


def _model_name(args: EvalArgs, manifest: Mapping[str, Any]) -> str:
    """The model as price tables call it; "" of a file of predictions for which none is named."""
    if (args.policy or "").startswith("file:"):
        return args.model or ""
    return manifest.get("model", {}).get("name") or args.policy or ""
