"""The equivalence checker on real pairs: what it refutes, proves and leaves open, and its cost.

    python tests/bench/equivalence.py --part bird [--limit N] [--seconds 1.5] [--out verdicts.jsonl]

Parts:
  bird         gold and original query of BIRD questions whose gold was corrected, under set
  probes       pairs made to show one trait of SQLite each, under the grading that the label states
  literature   pairs from papers on query equivalence
  rewrites     pairs that are equal by construction: anything refuted is a false alarm
  mutants      faulty golds that match on the real data although a plain search tells them apart
  predictions  answers of models to Spider's development set whose result is right

Every refutation is replayed by `tests/equivalence/replayer.py`, which shares no code with the
checker. Times are processor seconds of the whole call.
"""

import argparse
import json
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "equivalence"))

import enumerator
import golds
import mutants
import replayer
import rewrites

_PARTS = ("bird", "probes", "literature", "rewrites", "mutants", "predictions")


@dataclass(frozen=True)
class Job:
    """One pair to check. `expected`: what is known of it, as each part needs it."""

    id: str
    first: str
    second: str
    schema: str
    grading: str = "set"
    database: str | None = None
    expected: str = ""
    seconds: float = 1.5
    bound: int = 2


@dataclass(frozen=True)
class Done:
    """A job with its verdict; `cpu` is the time of the call as a whole."""

    job: Job
    kind: str
    source: str | None
    reason: str
    bound: int | None
    script: str | None
    cpu: float


def work(job: Job) -> Done:
    """Checks one pair, in a process of the pool."""
    from jax_t2sql.equivalence import Budget, check

    start = time.process_time()
    try:
        verdict = check(
            job.first,
            job.second,
            job.schema,
            grading=job.grading,
            budget=Budget(seconds=job.seconds, bound=job.bound),
            database=job.database,
        )
    except Exception as error:  # a fault of the checker is a result to be shown
        told = f"FAULT {type(error).__name__}: {error}"
        return Done(job, "fault", None, told, None, None, time.process_time() - start)
    cpu = time.process_time() - start
    v = verdict
    return Done(job, v.kind, v.source, v.reason, v.bound, v.database, cpu)


def run(jobs: Iterable[Job], args: argparse.Namespace) -> Iterator[Done]:
    """Checks all, in order; writes each verdict where asked."""
    with ExitStack() as stack:
        out = stack.enter_context(open(args.out, "w", encoding="utf-8")) if args.out else None
        pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(args.workers))
        for done in pool.imap(work, jobs, chunksize=4):
            if out:
                job = done.job
                row = dict(vars(done), job=None, id=job.id, expected=job.expected,
                           grading=job.grading, first=job.first, second=job.second)  # fmt: skip
                out.write(json.dumps(row) + "\n")
                out.flush()
            yield done


def replayed(done: Done) -> replayer.Replay:
    """The independent judge's word on a refutation."""
    job = done.job
    return replayer.replay(done.script, job.first, job.second, grading=job.grading)


def summary(results: list[Done]) -> None:
    """Counts, sources, times, and refutations that do not hold."""
    print(f"{len(results):,} pairs: {_counted(Counter(d.kind for d in results))}")
    if not results:
        return
    refuted = [d for d in results if d.kind == "refuted"]
    print(f"refuted by: {_counted(Counter(d.source for d in refuted))}")
    equal = [d for d in results if d.kind == "equivalent"]
    print(f"equivalent by: {_counted(Counter(f'{d.source}, bound {d.bound}' for d in equal))}")
    false = [(d, r) for d in refuted if not (r := replayed(d)).holds]
    print(f"refutations that the independent replay does not confirm: {len(false)}")
    for done, replay in false:
        print(f"  {done.job.id}: {replay.why}")
    for done in results:
        if done.kind == "fault":
            print(f"  {done.job.id}: {done.reason}")
    times = sorted(d.cpu for d in results)
    at = [times[min(int(len(times) * q), len(times) - 1)] for q in (0.5, 0.95, 0.99)]
    print(
        f"CPU: median {at[0] * 1e3:.1f} ms, p95 {at[1]:.2f} s, p99 {at[2]:.2f} s,"
        f" largest {times[-1]:.2f} s, mean {statistics.fmean(times):.3f} s"
    )
    if refuted:
        quick = statistics.median(d.cpu for d in refuted)
        rows = statistics.median(d.script.count("\nINSERT ") for d in refuted)
        print(f"refuted: median {quick * 1e3:.1f} ms, {rows:g} rows in the counterexample")
    reasons = Counter(_shape(d.reason) for d in results if d.kind == "unknown")
    for reason, count in reasons.most_common(15):
        print(f"  unknown, {count}: {reason}")


def _shape(reason: str) -> str:
    """A reason without its numbers."""
    return " ".join("N" if word.strip(",.;").replace(",", "").isdigit() else word
                    for word in reason.split())[:160]  # fmt: skip


def _counted(counts: Counter) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common()) or "none"


def share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({part / whole:.1%})" if whole else "0 of 0"


def lines(path: Path) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def bird(data: Path, args: argparse.Namespace) -> None:
    rows = lines(data / "equivalence" / "bird_pairs.jsonl")
    rows = [row for row in rows if row["sqlite_prepare_error"] is None][: args.limit]
    jobs = [
        job(args, row["id"], row["sql1"], row["sql2"], row["schema"], expected=row["label_set"])
        for row in rows
    ]
    results = list(run(jobs, args))
    summary(results)
    for label in ("NEQ", "unknown"):
        part = [d for d in results if d.job.expected == label]
        found = sum(d.kind == "refuted" for d in part)
        print(f"label_set {label}: refuted {share(found, len(part))}")
        if label == "NEQ":
            print("  missed:", *(d.job.id for d in part if d.kind != "refuted"))
    print("all: refuted", share(sum(d.kind == "refuted" for d in results), len(results)))


def probes(data: Path, args: argparse.Namespace) -> None:
    jobs = []
    for row in lines(data / "equivalence" / "probes.jsonl"):
        label = row["label"]
        wanted = {"set": label.split("(")[0].split("-")[0]}
        if label == "EQU-set/NEQ-bag":
            wanted = {"set": "EQU", "multiset": "NEQ"}
        elif label == "EQU-ish":  # equal on most data; not for texts that are numbers
            wanted = {"set": "either"}
        for grading, expected in wanted.items():
            jobs.append(
                job(args, row["id"], row["sql1"], row["sql2"], row["schema"], grading=grading,
                    expected=expected)
            )  # fmt: skip
    results = list(run(jobs[: args.limit], args))
    summary(results)
    for done in results:
        right = {"NEQ": done.kind == "refuted", "EQU": done.kind != "refuted"}
        if not right.get(done.job.expected, True):
            print(f"WRONG {done.job.id} under {done.job.grading}: {done.kind}, {done.reason}")
    print("as labelled:", _counted(Counter(f"{d.job.expected} {d.kind}" for d in results)))


def literature(data: Path, args: argparse.Namespace) -> None:
    rows = lines(data / "equivalence" / "literature.jsonl")
    rows = [row for row in rows if row["sqlite_prepare_error"] is None][: args.limit]
    jobs = []
    for row in rows:
        bound = (row["published_verieql"] or {}).get("max_equ_bound") or 0
        expected = (
            f"NEQ {'witnessed' if row['label_' + _LABEL[args.grading]] == 'NEQ' else 'published'}"
            if row["label"] == "NEQ"
            else "EQU published" if bound >= 2 else "unknown"
        )  # fmt: skip
        jobs.append(job(args, row["id"], row["sql1"], row["sql2"], row["schema"],
                        grading=args.grading, expected=expected))  # fmt: skip
    results = list(run(jobs, args))
    summary(results)
    for expected in sorted({d.job.expected for d in results}):
        part = [d for d in results if d.job.expected == expected]
        print(f"{expected}: {_counted(Counter(d.kind for d in part))}")
        for kind in ("refuted", "equivalent", "unknown"):
            print(f"  {kind}:", *(d.job.id.split("-")[-1] for d in part if d.kind == kind))
        for done in part:
            if done.kind == "unknown":
                print(f"    {done.job.id}: {done.reason[:200]}")


_LABEL = {"set": "set", "multiset": "bag", "list": "list"}


def equal_pairs(data: Path, count: int, seed: int) -> list[rewrites.Pair]:
    """So many pairs, the kinds of rewriting that few golds have a place for in full."""
    rng = random.Random(seed)
    found: dict[str, list[rewrites.Pair]] = {}
    every = [*golds.spider_golds(data), *golds.bird_golds(data)]
    for gold in rng.sample(every, min(len(every), max(count // 4, 100))):
        for pair in rewrites.pairs_of(gold, seed=seed, chains=1):
            kind = pair.names[0] if len(pair.names) == 1 else "chain"
            found.setdefault(kind, []).append(pair)
    for pairs in found.values():
        rng.shuffle(pairs)
    chosen = []
    while len(chosen) < count and any(found.values()):
        for pairs in found.values():
            if pairs and len(chosen) < count:
                chosen.append(pairs.pop())
    return chosen


def equal(data: Path, args: argparse.Namespace) -> None:
    pairs = equal_pairs(data, args.limit or 2400, args.seed)
    kinds = {p.id: p.names for p in pairs}
    jobs = [
        job(args, p.id, p.first, p.second, p.gold.ddl,
            grading=p.grading if args.grading == "strictest" else "set",
            database=str(p.gold.database) if p.gold.database else None)
        for p in pairs
    ]  # fmt: skip
    results = list(run(jobs, args))
    summary(results)
    by_kind = Counter(name for names in kinds.values() for name in names)
    print(f"{len(by_kind)} kinds of rewriting, the rarest: {by_kind.most_common()[-5:]}")
    alarms = [d for d in results if d.kind == "refuted"]
    print(f"FALSE ALARMS: {len(alarms)}")
    for done in alarms:
        rows = [line for line in done.script.splitlines() if line.startswith("INSERT")]
        print("\n  ".join([done.job.id, done.job.first, done.job.second, *rows]))


def matching_mutants(data: Path, args: argparse.Namespace) -> Iterator[Job]:
    """Mutants that match on the real data, with whether the plain search tells them apart."""
    import sqlite3

    searches: dict[str, enumerator.Enumerator] = {}
    for gold in golds.spider_golds(data):
        connection = sqlite3.connect(f"file:{gold.database}?mode=ro&immutable=1", uri=True)
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        expected = connection.execute(gold.sql).fetchall()
        for mutant in mutants.mutants_of(gold, seed=args.seed):
            try:
                rows = connection.execute(mutant.sql).fetchall()
            except sqlite3.Error:
                continue
            if not replayer.same(expected, rows, args.grading):
                continue
            if gold.ddl not in searches:
                searches[gold.ddl] = enumerator.Enumerator(gold.ddl)
            witness = searches[gold.ddl].witness(gold.sql, mutant.sql, grading=args.grading)
            yield job(args, mutant.id, gold.sql, mutant.sql, gold.ddl, grading=args.grading,
                      database=str(gold.database),
                      expected=f"{'differs' if witness else 'open'} {mutant.kind}")  # fmt: skip
        connection.close()


def power(data: Path, args: argparse.Namespace) -> None:
    jobs = list(matching_mutants(data, args))
    if args.limit:
        jobs = random.Random(args.seed).sample(jobs, min(args.limit, len(jobs)))
    results = list(run(jobs, args))
    summary(results)
    for kind in sorted({d.job.expected.split()[1] for d in results}):
        part = [d for d in results if d.job.expected == f"differs {kind}"]
        found = sum(d.kind == "refuted" for d in part)
        others = [d for d in results if d.job.expected == f"open {kind}"]
        more = sum(d.kind == "refuted" for d in others)
        print(f"{kind}: refuted {share(found, len(part))}; of the open {share(more, len(others))}")
    known = [d for d in results if d.job.expected.startswith("differs")]
    found = [d for d in known if d.kind == "refuted"]
    print(f"POWER: of those that the plain search refutes, refuted {share(len(found), len(known))}")
    for done in known:
        if done.kind != "refuted":
            print("\n  ".join([done.job.id, done.job.first, done.job.second, done.reason]))


def predictions(data: Path, args: argparse.Namespace) -> None:
    rows = lines(data / "test_suite" / "spider_dev_predictions.jsonl")
    right = [row for row in rows if row["eq_set"]]
    unique: dict[tuple, list[dict]] = {}
    for row in right:
        unique.setdefault((row["db_id"], row["gold"], row["pred"]), []).append(row)
    groups = list(unique.values())
    if args.limit:
        groups = random.Random(args.seed).sample(groups, min(args.limit, len(groups)))
    base = data / "spider_dev" / "database"
    ddls = {r["db_id"]: golds.ddl_of(base / r["db_id"] / f"{r['db_id']}.sqlite") for r in right}
    jobs = []
    for group in groups:
        row = group[0]
        path = str(base / row["db_id"] / f"{row['db_id']}.sqlite")
        jobs.append(job(args, row["id"], row["gold"], row["pred"], ddls[row["db_id"]],
                        grading=args.grading, database=path))  # fmt: skip
    results = list(run(jobs, args))
    summary(results)
    by_model, refuted = Counter(), Counter()
    for group, done in zip(groups, results, strict=True):
        for row in group:
            by_model[row["model"]] += 1
            refuted[row["model"]] += done.kind == "refuted"
    for model, count in by_model.most_common():
        print(f"{model}: refuted {share(refuted[model], count)} of the matches")
    print(f"all: refuted {share(refuted.total(), by_model.total())} of the matches checked,"
          f" of {len(right):,} matches among {len(rows):,} predictions")  # fmt: skip


def job(args: argparse.Namespace, id: str, first: str, second: str, schema: str, **more) -> Job:
    return Job(id, first, second, schema, seconds=args.seconds, bound=args.bound, **more)


def main() -> None:
    """Runs one part and prints what came of it."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=_PARTS, required=True)
    parser.add_argument("--data", type=Path, default=os.environ.get("JAX_T2SQL_DATA", default))
    parser.add_argument("--limit", type=int, help="check only so many pairs")
    parser.add_argument("--seconds", type=float, default=1.5, help="processor time of a check")
    parser.add_argument("--bound", type=int, default=2)
    parser.add_argument("--grading", default="set", help="set, multiset, list; rewrites: strictest")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file for all verdicts, as JSON lines")
    args = parser.parse_args()
    start = time.perf_counter()
    parts = dict(zip(_PARTS, (bird, probes, literature, equal, power, predictions), strict=True))
    parts[args.part](Path(args.data), args)
    print(f"{time.perf_counter() - start:.0f} s by the clock, {args.workers} workers")


if __name__ == "__main__":
    main()
