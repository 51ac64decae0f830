"""Draws a pool: every join path first, then every family in turn, until there are enough."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from data_pipelines.onedb.checks import first_fault
from data_pipelines.onedb.draft import Draft, Draw, Family
from data_pipelines.onedb.families import all_families
from data_pipelines.onedb.joins import Path, path_name, reverse
from data_pipelines.onedb.leak import LeakCheck
from data_pipelines.onedb.live import Live
from data_pipelines.onedb.wording import REGISTERS, reading_fault, word

# Failed draws in a row after which a family counts as used up.
PATIENCE = 60
# Draws for each family on one path, while paths are being covered.
TRIES_ON_A_PATH = 10
WORDINGS = 3
# A family that makes few questions is not drawn more often for it than these say.
WEIGHTS = {1: 1.0, 2: 1.3, 3: 1.2, 4: 1.0}


@dataclass(frozen=True)
class Question:
    """A sound draft in words."""

    draft: Draft
    text: str
    register: str


@dataclass
class Pool:
    """What was drawn.

    Attributes:
      questions: in the order of drawing.
      faults: how many drafts each check has turned away.
      by_family: how many questions each family has made; families that made none are in it with 0.
      paths: names of all join paths; covered: of those with a question.
    """

    questions: list[Question] = field(default_factory=list)
    faults: Counter = field(default_factory=Counter)
    by_family: Counter = field(default_factory=Counter)
    paths: list[str] = field(default_factory=list)
    covered: set[str] = field(default_factory=set)


def draw_pool(
    live: Live,
    count: int,
    *,
    seed: int,
    leak: LeakCheck | None = None,
    families: list[Family] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Pool:
    """Draws up to `count` questions; fewer where the database has no more to ask.

    The same database, legend, count and seed give the same pool.

    Args:
      live: the database; its sandbox's limits bound every query.
      count: how many questions.
      seed: of all draws.
      leak: turns away what is in a test set.
      families: those to draw from; all by default.
      say: is told of the progress.
    """
    families = all_families() if families is None else families
    drawing = _Drawing(live, random.Random(f"{live.scan.db_id}/{seed}"), leak)
    pool = drawing.pool
    pool.paths = [path_name(path) for path in live.paths]
    pool.by_family.update({family.name: 0 for family in families})
    along = [family for family in families if family.by_path]
    for rounds in range(2):
        for path in live.paths:
            drawing.cover(path, along, limit=count)
        say(f"{len(pool.questions)} questions on {len(pool.covered)} of {len(pool.paths)} paths")
        if len(pool.questions) > count // 3 or rounds:
            break
    drawing.fill(families, count)
    drawing.rng.shuffle(pool.questions)
    return pool


@dataclass
class _Drawing:
    live: Live
    rng: random.Random
    leak: LeakCheck | None
    pool: Pool = field(default_factory=Pool)
    _texts: set[str] = field(default_factory=set)
    _wordings: Counter = field(default_factory=Counter)

    def cover(self, path: Path, along: list[Family], *, limit: int) -> None:
        """Up to two questions on a path, of different families, in either direction."""
        found = 0
        for family in self.rng.sample(along, len(along)):
            for _ in range(TRIES_ON_A_PATH):
                if len(self.pool.questions) >= limit and path_name(path) in self.pool.covered:
                    return
                made = self.attempt(family, path)
                if made:
                    found += 1
                    break
            if found == 2:
                return

    def fill(self, families: list[Family], count: int) -> None:
        """Takes the family that is furthest behind its share, again and again."""
        failures: dict[str, float] = defaultdict(float)
        paths = self.live.paths
        active = [f for f in families if paths or not f.by_path]
        while active and len(self.pool.questions) < count:
            family = min(active, key=lambda f: (self.pool.by_family[f.name] + 1) / WEIGHTS[f.tier])
            path = self.rng.choice(paths) if family.by_path else None
            made = self.attempt(family, path)
            if made:
                failures[family.name] = 0
            else:
                # A draw that found no place costs next to nothing; one whose query ran does.
                failures[family.name] += 0.2 if made is None else 1.0
                if failures[family.name] >= PATIENCE:
                    active.remove(family)

    def attempt(self, family: Family, path: Path | None) -> bool | None:
        """One draw: true if a new question came of it, None where the place did not fit."""
        draw = Draw(self.live, self.rng)
        try:
            if path is None:
                draft = family.make(draw)
            else:
                draft = family.make(draw, path if self.rng.random() < 0.5 else reverse(path))
        except LookupError:
            return None
        return self._accept(draft, family)

    def _accept(self, draft: Draft, family: Family) -> bool:
        fresh = draft.sql not in self._wordings
        if self._wordings[draft.sql] >= WORDINGS:
            return False
        if fresh:
            del self._wordings[draft.sql]
            fault = first_fault(draft, self.live)
            name = fault[0] if fault else None
            if name is None and self.leak is not None:
                name = self.leak.fault(draft.sql, self.live.run(draft.sql))
            if name:
                self.pool.faults[name] += 1
                return False
        register = self.rng.choice(REGISTERS)
        text = word(draft, self.rng, register)
        if text in self._texts:
            return False
        fault = reading_fault(text, draft, self.live)
        if fault:
            self.pool.faults["wording: " + fault.partition(":")[0]] += 1
            return False
        self._texts.add(text)
        self._wordings[draft.sql] += 1
        self.pool.questions.append(Question(draft, text, register))
        self.pool.by_family[family.name] += 1
        if draft.path:
            self.pool.covered.add(draft.path)
        return True
