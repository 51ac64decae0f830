"""What launch/real_model.sh measures besides the run itself.

    python tests/bench/real_model.py sample WORKDIR --samples 4
    python tests/bench/real_model.py audit WORKDIR
    python tests/bench/real_model.py table WORKDIR

sample: answers at temperature 1 to the run's own held-out questions, before and after RL. audit:
token truth of every group in the run's bus, against the run's own prompts and tokenizer. table: all
figures in Markdown.
"""

import argparse
import hashlib
import json
import math
import sys
from pathlib import Path

import msgspec
import numpy as np

from jax_t2sql.assembly import Run, enable_compilation_cache, make_pool
from jax_t2sql.bus import open_store
from jax_t2sql.bus.groups import decode_group
from jax_t2sql.config import TrainConfig
from jax_t2sql.evaluation import evaluate
from jax_t2sql.heldout import pick
from jax_t2sql.models import load_adapter
from jax_t2sql.policies import make_engine
from jax_t2sql.progress import Progress
from jax_t2sql.tracking import read_metrics
from jax_t2sql.training import assemble

_BY_STEP = {
    "accuracy_train": "right",
    "contract_broken_share": "contract broken",
    "cut_off_share": "cut off",
    "turns_mean": "turns",
    "requirement_missed_share": "requirement block missed",
    "verification_missed_share": "verification block missed",
    "evidence_used_share": "knowledge used",
    "groups_mixed_share": "groups with some right",
    "ratio_mean": "mean ratio",
    "logprob_gap": "log-prob gap",
}


def sample(workdir: Path, samples: int) -> None:
    """Writes sampled.json: for before and after, the right answers of each question."""
    config = _config(workdir)
    path = workdir / "sampled.json"
    found = json.loads(path.read_text()) if path.is_file() else {}
    enable_compilation_cache()
    with make_pool(config) as pool, Progress(samples) as progress:
        run = assemble(config, workdir, pool, progress)
        problems = pick(run.questions.heldout, config.eval.final_questions)
        engine = make_engine(config, run.model, run.prompts.codec)
        for name in ("before", "after"):
            if name == "after":
                adapter = load_adapter(workdir / "adapter", run.model.config)
                engine.set_weights(run.model.params, adapter, version=1)
            done = found.setdefault(name, [])
            while len(done) < samples:
                seed = 1_000_003 * (len(done) + 1)  # far from each other: an answer adds its index
                batches = evaluate(
                    problems,
                    policy=engine,
                    prompts=run.heldout_prompts,
                    pool=pool,
                    batch=config.sampler.rows,
                    temperature=1.0,
                    seed=seed,
                )
                done.append([answer.correct for batch in batches for answer in batch])
                path.write_text(json.dumps(found))
                progress.message(f"{name}: sample {len(done)} of {samples}")


def audit(workdir: Path) -> int:
    """Checks every stored group; returns how many rollouts are not what they should be."""
    config = _config(workdir)
    wrong = seen = 0
    with make_pool(config) as pool, Progress(1) as progress:
        run = assemble(config, workdir, pool, progress)
        problems = {problem.question_id: problem for problem in run.questions.train}
        store = open_store(workdir / "bus")
        for key in store.keys("groups/"):
            group = decode_group(store.read(key))
            prompt = run.prompts.ids(problems[group.problem])
            for rollout in group.rollouts:
                seen += 1
                fault = fault_of(rollout, prompt, run)
                if fault:
                    wrong += 1
                    print(f"{key}: {fault}")
    print(f"token truth: {seen} rollouts of {workdir / 'bus'}, {wrong} faulty")
    (workdir / "audit.json").write_text(json.dumps({"rollouts": seen, "faulty": wrong}))
    return wrong


def fault_of(rollout, prompt: tuple[int, ...], run: Run) -> str | None:
    """What breaks token truth in a rollout: its prompt, arrays, versions or texts of turns."""
    ids, mask = rollout.ids_T, rollout.mask_T
    lengths = {len(ids), len(mask), len(rollout.logprobs_T), len(rollout.versions_T)}
    if len(lengths) != 1:
        return f"its arrays have lengths {sorted(lengths)}"
    if tuple(ids[: len(prompt)].tolist()) != tuple(prompt) or mask[: len(prompt)].any():
        return "its prompt is not the question's"
    if (rollout.logprobs_T[mask] > 0).any() or not np.isfinite(rollout.logprobs_T).all():
        return "a log-prob is above 0 or not finite"
    if len(set(rollout.versions_T[mask].tolist())) != 1 or (rollout.versions_T[~mask] >= 0).any():
        return "its versions are mixed, or context has one"
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(int)))
    spans = zip(edges[::2], edges[1::2], strict=True)
    said = [run.prompts.codec.decode(tuple(ids[a:b].tolist())) for a, b in spans]
    written = [t["text"] for t in json.loads(rollout.trace)["turns"] if t["role"] == "assistant"]
    if said != written:
        return f"what was sampled decodes to {said!r}, its turns say {written!r}"
    return None


def table(workdir: Path) -> None:
    """Prints the figures."""
    result = json.loads((workdir / "result.json").read_text())
    adapter = workdir / "adapter" / "adapter_model.safetensors"
    print("| | before RL | after RL |\n|---|---|---|")
    cells = [
        f"{result[name]:.1%} ({low:.1%} to {high:.1%})"
        for name, (low, high) in ((n, result[f"{n}_interval"]) for n in ("before", "after"))
    ]
    print(f"| greedy, {result['n']} questions | {cells[0]} | {cells[1]} |")
    path = workdir / "sampled.json"
    if path.is_file():
        found = json.loads(path.read_text())
        cells = [_mean_of_questions(np.array(found[name], float)) for name in ("before", "after")]
        print(f"| sampled, {len(found['after'])} a question | {cells[0]} | {cells[1]} |")
    print(f"\nadapter sha256 {hashlib.sha256(adapter.read_bytes()).hexdigest()}\n")
    rows = [row for row in read_metrics(workdir) if row["phase"] == "rl"]
    names = [name for name in _BY_STEP if any(name in row for row in rows)]
    print("| step | " + " | ".join(_BY_STEP[name] for name in names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for row in rows:
        cells = [f"{row[name]:.3g}" if row.get(name) is not None else "" for name in names]
        print(f"| {row['step']} | " + " | ".join(cells) + " |")


def _mean_of_questions(correct_SQ: np.ndarray) -> str:
    """Mean of the questions' rates, with a normal interval over questions, not over samples."""
    rates_Q = correct_SQ.mean(axis=0)
    half = 1.96 * rates_Q.std(ddof=1) / math.sqrt(len(rates_Q))
    return f"{rates_Q.mean():.1%} (± {half:.1%})"


def _config(workdir: Path) -> TrainConfig:
    return msgspec.convert(json.loads((workdir / "config.json").read_text()), TrainConfig)


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("sample", "audit", "table"))
    parser.add_argument("workdir", type=Path)
    parser.add_argument("--samples", type=int, default=4)
    args = parser.parse_args()
    if args.what == "sample":
        sample(args.workdir, args.samples)
    elif args.what == "audit":
        return 1 if audit(args.workdir) else 0
    else:
        table(args.workdir)
    return 0


if __name__ == "__main__":
    sys.exit(main())
