"""Changes to databases on which the two queries had something to say."""

import random

from jax_t2sql.equivalence.catalog import Rows
from jax_t2sql.equivalence.fill import draw, draw_profile, draw_row, draw_value
from jax_t2sql.equivalence.mend import mend
from jax_t2sql.equivalence.plan import Plan

_KEPT = 32


class Corpus:
    """Databases that are worth changing: each gave results of another shape than those before."""

    def __init__(self, plan: Plan, rng: random.Random) -> None:
        self._plan, self._rng = plan, rng
        self._shapes: set[tuple] = set()
        self._kept: list[Rows] = []
        self._promising: list[Rows] = []

    def add(self, rows: Rows, gold: list[tuple], pred: list[tuple]) -> None:
        """Keeps a database if its results have a new shape."""
        shape = (_shape(gold), _shape(pred))
        if shape in self._shapes:
            return
        self._shapes.add(shape)
        self._kept.append(rows)
        if len(self._kept) > _KEPT:
            self._kept.pop(self._rng.randrange(_KEPT // 2))

    def promise(self, rows: Rows) -> None:
        """Keeps a database on which the queries differ, if only by chance: a tie is soon broken."""
        self._promising.append(rows)
        if len(self._promising) > _KEPT:
            del self._promising[self._rng.randrange(_KEPT)]

    def mutant(self) -> Rows:
        """A changed copy of a kept database; of the later ones more often."""
        kept = self._kept
        if self._promising and (not kept or self._rng.random() < 0.5):
            kept = self._promising
        if not kept:
            return draw(self._plan, self._rng)
        place = max(self._rng.random(), self._rng.random())
        rows = {name: list(of) for name, of in kept[int(place * len(kept))].items()}
        for _ in range(self._rng.choice((1, 1, 2, 3))):
            self._change(rows)
        return mend(rows, self._plan, self._rng)

    def _change(self, rows: Rows) -> None:
        rng = self._rng
        sheet = rng.choice(self._plan.sheets)
        kept = rows.setdefault(sheet.name, [])
        profile = draw_profile(self._plan, rng)
        what = rng.random()
        if not kept or what < 0.15:
            kept.append(draw_row(sheet, rows, rng, profile))
            return
        i = rng.randrange(len(kept))
        if what < 0.3:
            kept.append(kept[i])
        elif what < 0.45:
            del kept[i]
        else:
            cells = [cell for cell in sheet.cells if cell.read]
            if not cells:
                return
            cell = rng.choice(cells)
            if what < 0.6 and len(kept) > 1:
                value = rng.choice(kept)[cell.place]
            elif what < 0.7 and cell.nullable:
                value = None
            else:
                value = draw_value(cell, rng, profile)
            kept[i] = kept[i][: cell.place] + (value,) + kept[i][cell.place + 1 :]


def _shape(result: list[tuple]) -> tuple:
    """Coarse enough that there are few, fine enough that something must have happened."""
    cells = [cell for row in result[:4] for cell in row]
    nulls = sum(cell is None for cell in cells)
    zeros = sum(cell == 0 for cell in cells)
    return min(len(result), 4), bool(nulls), nulls == len(cells), bool(zeros)
