"""Greedy accuracy of a run on its held-out questions: before, during and after RL."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from jax_t2sql.assembly import Run
from jax_t2sql.evaluation import Answer, Score, evaluate, score
from jax_t2sql.progress import Progress
from jax_t2sql.question_set import Questions
from jax_t2sql.rundir import write_json
from jax_t2sql.sampling.engine import Engine
from jax_t2sql.text2sql import Problem


def evaluation_metrics(answers: Sequence[Answer], questions: Questions) -> dict:
    """One row of the record for an evaluation of held-out questions."""
    total = score(answers)
    metrics = {
        "eval_accuracy": total.accuracy,
        "eval_correct": total.correct,
        "eval_n": total.n,
    }
    for name, part in _parts(answers, questions).items():
        metrics[f"eval_accuracy_{name}"] = part.accuracy
    return metrics


def _parts(answers: Sequence[Answer], questions: Questions) -> dict[str, Score]:
    """Scores apart for templates seen in training and never seen; empty without templates."""
    if questions.unseen is None:
        return {}
    new = [a for a in answers if a.problem.question_id in questions.unseen]
    old = [a for a in answers if a.problem.question_id not in questions.unseen]
    return {"seen": score(old), "unseen": score(new)}


def evaluate_heldout(
    run: Run,
    engine: Engine,
    problems: Sequence[Problem],
    on_batch: Callable[[Sequence[Answer]], None] = lambda answers: None,
) -> list[Answer]:
    """Greedy answers to held-out questions; `on_batch` is told of all so far after each batch."""
    answers: list[Answer] = []
    for part in evaluate(
        problems,
        policy=engine,
        prompts=run.heldout_prompts,
        pool=run.pool,
        batch=run.config.sampler.rows,
    ):
        answers += part
        on_batch(answers)
    return answers


def final_evaluation(
    run: Run, engine: Engine, name: str, problems: Sequence[Problem], progress: Progress
) -> dict:
    """Greedy accuracy before or after RL, done once: a resumed run reads what it found."""
    path = final_path(run, name)
    if path.is_file():
        return json.loads(path.read_text())
    progress.phase(f"evaluation {name} RL", len(problems))

    def on_batch(answers: Sequence[Answer]) -> None:
        progress.step(len(answers), {"eval_accuracy": score(answers).accuracy})

    answers = evaluate_heldout(run, engine, problems, on_batch)
    return keep_final(run, name, answers, progress)


def final_path(run: Run, name: str) -> Path:
    """Where the evaluation before or after RL is kept, beside its answers in .jsonl."""
    return run.workdir / "evaluations" / f"{name}.json"


def keep_final(run: Run, name: str, answers: Sequence[Answer], progress: Progress) -> dict:
    """Writes down the evaluation before or after RL; returns what is kept of it."""
    path, total = final_path(run, name), score(answers)
    found = {
        "score": total.accuracy,
        "interval": total.interval,
        "metrics": evaluation_metrics(answers, run.questions),
        "parts": {
            part: {"accuracy": s.accuracy, "n": s.n, "interval": s.interval}
            for part, s in _parts(answers, run.questions).items()
        },
    }
    path.parent.mkdir(exist_ok=True)
    with open(path.with_suffix(".jsonl"), "w") as file:
        file.writelines(json.dumps(answer.record) + "\n" for answer in answers)
    write_json(path, found)
    progress.message(f"held-out accuracy {name} RL: {total}")
    return found


def kept_metrics(run: Run, name: str, problems: Sequence[Problem]) -> dict | None:
    """Accuracy on some of the questions that were asked before or after RL; None if not on all."""
    with open(final_path(run, name).with_suffix(".jsonl")) as file:
        correct = {row["question_id"]: row["correct"] for row in map(json.loads, file)}
    if any(problem.question_id not in correct for problem in problems):
        return None
    total = Score(sum(correct[p.question_id] for p in problems), len(problems))
    return {"eval_accuracy": total.accuracy, "eval_correct": total.correct, "eval_n": total.n}


def pick(problems: Sequence[Problem], count: int | None) -> list[Problem]:
    """A fixed choice of `count` questions, in the order of the file; all if None."""
    if count is None or count >= len(problems):
        return list(problems)

    def rank(problem: Problem) -> str:
        return hashlib.sha256(problem.question_id.encode()).hexdigest()

    chosen = {id(problem) for problem in sorted(problems, key=rank)[:count]}
    return [problem for problem in problems if id(problem) in chosen]
