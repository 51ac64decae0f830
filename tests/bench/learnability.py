"""Which share of groups has a signal: epochs, solved questions dropped, draws by expected signal.

    python tests/bench/learnability.py

On a simulated learner; prints means over seeds.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from data_pipelines.learnability import WeightedQuestions  # noqa: E402
from data_pipelines.questions import QuestionStream  # noqa: E402
from jax_t2sql.config import LearnabilityConfig  # noqa: E402
from jax_t2sql.text2sql import Problem  # noqa: E402

GROUP = 16


def problems(count):
    return [
        Problem(question_id=str(i), db_id="d", question=f"Q{i}", gold_sql="S") for i in range(count)
    ]


class Learner:
    """A simulated policy: solve rates as found early in training, 60 % of them already 1.

    A group with signal makes its question easier; what is not asked is slowly forgotten, so that
    solved questions go wrong again now and then.
    """

    def __init__(self, count, seed):
        self.rng = np.random.default_rng(seed)
        kinds = self.rng.choice(3, size=count, p=[0.6, 0.25, 0.15])
        self.skill = np.select(
            [kinds == 0, kinds == 1], [6.0, self.rng.normal(0, 1.5, count)], -6.0
        )

    def ask(self, i):
        right = self.rng.binomial(GROUP, 1 / (1 + np.exp(-self.skill[i])))
        if 0 < right < GROUP:
            self.skill[i] += 0.3
        return right

    def forget(self):
        self.skill -= 0.02 * (self.skill > -6)


def simulate(kind, *, steps=120, batch=32, count=600, seed=0):
    """Share of groups with signal, and how often solved questions are asked in the last third."""
    choose, learner, mixed, solved = kind(count), Learner(count, seed), [], []
    for step in range(steps):
        chosen = choose(batch)
        for i in chosen:
            right = learner.ask(i)
            choose.tell(i, right)
            mixed.append(0 < right < GROUP)
            if step >= 2 * steps // 3:
                solved.append(right == GROUP)
        learner.forget()
    return np.mean(mixed), np.mean(solved)


class Uniform:
    """Epochs, every question once in each."""

    def __init__(self, count):
        self.stream = QuestionStream(problems(count), seed=0)

    def __call__(self, batch):
        return [int(self.stream.next().question_id) for _ in range(batch)]

    def tell(self, i, right):
        pass


class DropSolved(Uniform):
    """Asks a question no more once all its rollouts were right."""

    def __init__(self, count):
        super().__init__(count)
        self.dropped = set()

    def __call__(self, batch):
        found = []
        while len(found) < batch:
            found += [i for i in super().__call__(1) if i not in self.dropped]
        return found

    def tell(self, i, right):
        if right == GROUP:
            self.dropped.add(i)


class Weighted:
    """Draws by expected signal, as a run does by default with --learnability.enabled."""

    def __init__(self, count):
        config = LearnabilityConfig()
        self.stream = WeightedQuestions(
            problems(count), seed=1, floor=config.floor, memory=config.memory
        )

    def __call__(self, batch):
        return [int(problem.question_id) for problem in self.stream.draw(batch)]

    def tell(self, i, right):
        self.stream.observe(str(i), right=right, wrong=GROUP - right)


def main():
    print("share of groups      with signal   all solved (last third)")
    for kind in (Uniform, DropSolved, Weighted):
        mixed, solved = np.mean([simulate(kind, seed=seed) for seed in range(5)], axis=0)
        print(f"{kind.__name__:<21}{mixed:11.1%}{solved:14.1%}")


if __name__ == "__main__":
    main()
