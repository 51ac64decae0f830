"""One evaluation from its options to its report."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jax_t2sql.checks import check_all
from jax_t2sql.errors import UserError
from jax_t2sql.eval.answering import Answerer, collect_answers
from jax_t2sql.eval.judging import collect_executions, collect_verdicts, differing_golds
from jax_t2sql.eval.manifest import evaluation_folder, make_manifest, open_evaluation
from jax_t2sql.eval.options import EvalArgs, check_bounds
from jax_t2sql.eval.predictions import write_predictions
from jax_t2sql.eval.questions import Asked, load_questions, repeated_ids
from jax_t2sql.eval.results import make_results
from jax_t2sql.eval.snow_pool import Exploration, SnowPool
from jax_t2sql.eval.specs import PolicySpec, parse_policy
from jax_t2sql.eval.table import print_results
from jax_t2sql.eval.tasks import Task, all_tasks
from jax_t2sql.grading import GradingPool
from jax_t2sql.rundir import write_json
from jax_t2sql.scores.cost import read_prices
from jax_t2sql.scores.graders import VALUED, parse_graders
from jax_t2sql.scores.memo import Memo
from jax_t2sql.scores.page import write_page
from jax_t2sql.scores.records import write_rows
from jax_t2sql.sql import Limits


def evaluate(args: EvalArgs) -> dict[str, Any]:
    """Evaluates as asked; returns what results.json holds.

    Raises:
      UserError: bad input; or the policy fails for good.
    """
    spec, graders, asked = _checked(args)
    if asked.dialect == "snowflake":
        _check_snowflake(args, graders)
    with (
        evaluation_folder(args.out),
        _open_pool(args, asked) as pool,
        contextlib.nullcontext() if args.memo is None else Memo(args.memo) as memo,
    ):
        looking = pool if asked.dialect == "sqlite" else Exploration(pool)
        with _policy(spec, args, asked, looking) as (policy, tasks):
            candidates = max(task.candidate for task in tasks)
            greedy = any(task.greedy for task in tasks)
            manifest = make_manifest(
                args, asked, policy.facts, greedy=greedy, candidates=candidates
            )
            open_evaluation(args.out, manifest)
            (args.out / "results.json").unlink(missing_ok=True)  # until it fits what is there
            write_rows(args.out / "questions.jsonl", asked.rows)
            answers = collect_answers(args.out / "answers.jsonl", tasks, policy)
        if all(answer.ending == "error" for answer in answers):
            raise UserError(
                f"no question was answered: {answers[0].error or 'the policy failed'}; mend that,"
                " then run the same command"
            )
        find = asked.find()
        executions = collect_executions(
            args.out / "executions.jsonl", asked, answers, find=find, pool=pool
        )
        verdicts = collect_verdicts(
            args.out / "verdicts.jsonl",
            asked,
            answers,
            graders=graders,
            find=find,
            pool=pool,
            memo=memo,
            limits=f"{args.seconds:g} s",
        )
        differing = differing_golds(asked, find=find, pool=pool) if len(asked.keys) > 1 else []
        results = make_results(args, asked, answers, verdicts, executions, differing, manifest)
        write_json(args.out / "results.json", results)
        if args.write_format:
            write_predictions(
                args.out,
                args.write_format,
                asked.rows,
                answers,
                all_ids=asked.all_ids,
                winners=results.get("self_consistency", {}).get("winners", {}),
            )
        page = write_page(args.out)
    print_results(results, page)
    return results


def _checked(args: EvalArgs) -> tuple[PolicySpec, Sequence[str], Asked]:
    """What the options name, once all of it is found good.

    Raises:
      UserError: names every fault.
    """
    check_bounds(args)
    if args.policy is None:
        raise UserError("no --policy: say who answers, local:MODEL, vllm:URL, openai:URL or file:F")
    spec, graders = parse_policy(args.policy), parse_graders(args.grader)
    if graders[0] in VALUED:
        raise UserError(f"grader {graders[0]} gives a number, not right or wrong; name it second")
    asked: list[Asked] = []
    checks = [lambda: asked.append(load_questions(args)), lambda: _check_places(args, spec)]
    if spec.kind == "local":
        from jax_t2sql.models import check_model

        checks.append(lambda: check_model(spec.target))
    check_all(checks)
    if repeated := repeated_ids(asked[0].all_ids):
        print(
            f"note: {len(repeated):,} questions have the id of another one and are called"
            f" {repeated[0]!r} and so on",
            file=sys.stderr,
        )
    return spec, graders, asked[0]


def _open_pool(args: EvalArgs, asked: Asked) -> GradingPool | SnowPool:
    """Where queries run."""
    limits = Limits(seconds=args.seconds)
    if asked.dialect == "sqlite":
        return GradingPool(args.workers, limits=limits, gold_folder=args.gold_folder)
    return SnowPool(args.workers, limits=limits)


@contextlib.contextmanager
def _policy(
    spec: PolicySpec, args: EvalArgs, asked: Asked, pool: GradingPool | Exploration
) -> Iterator[tuple[Answerer, Sequence[Task]]]:
    """The policy, and what it is asked."""

    def tasks(*, greedy: bool, candidates: int) -> list[Task]:
        return all_tasks(
            asked.rows,
            greedy=greedy,
            candidates=candidates,
            shown=args.show_evidence,
            seed=args.seed,
        )

    if spec.kind == "file":
        from jax_t2sql.eval.file_policy import FilePolicy

        policy = FilePolicy(Path(spec.target), asked)
        all_of_them = tasks(greedy=policy.greedy, candidates=policy.candidates)
        yield policy, [task for task in all_of_them if policy.answers(task)]
        return
    wanted = tasks(greedy=args.greedy, candidates=args.candidates)
    if spec.kind == "local":
        from jax_t2sql.eval.local_policy import LocalPolicy

        yield LocalPolicy(spec, args, asked, wanted, pool), wanted
        return
    if spec.kind == "vllm":
        from jax_t2sql.eval.server_policy import ServerPolicy as Remote
    else:
        from jax_t2sql.eval.chat_policy import ChatPolicy as Remote
    with contextlib.closing(Remote(spec, args, asked, wanted, pool)) as policy:
        yield policy, wanted


def _check_snowflake(args: EvalArgs, graders: Sequence[str]) -> None:
    """Raises UserError for what works on SQLite files alone."""
    local = [name for name in ("suite", "equivalence", "r-ves") if name in graders]
    if local:
        raise UserError(f"grader {local[0]} needs SQLite files; leave it out for Snowflake")
    if args.memo is not None or args.gold_folder is not None:
        raise UserError(
            "--memo and --gold-folder are for SQLite files; Snowflake's data may change"
        )


def _check_places(args: EvalArgs, spec: PolicySpec) -> None:
    """Raises UserError if the evaluation would write over what it reads, or lacks its options."""
    read = {"--data": args.data, "--policy": spec.target if spec.kind == "file" else None}
    for option, place in read.items():
        if place and Path(place).is_file() and Path(place).resolve().parent == args.out.resolve():
            raise UserError(f"--out {args.out} holds the file of {option}; name another folder")
    if spec.kind == "file" and (args.candidates or not args.greedy or args.show_evidence != "with"):
        raise UserError(
            "--candidates, --no-greedy and --show-evidence are for policies that answer; a file"
            " has what it has"
        )
    if args.prices is not None:
        read_prices(args.prices)
    if args.device_hour_price is not None and args.device_hours is None:
        raise UserError("--device-hour-price needs --device-hours: how long answering took")
