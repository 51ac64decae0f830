"""The version that answers held-out questions best: named in the log, kept, exported."""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from jax_t2sql.bus import LearnerBus, read_adapter
from jax_t2sql.rl.checkpoints import publish_files
from jax_t2sql.rl.loop import Loop
from jax_t2sql.rl.validation import published_adapter
from jax_t2sql.rundir import write_json
from jax_t2sql.stats import wilson


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best evaluation so far. step: its version; adapter: its name on the bus."""

    step: int
    accuracy: float
    interval: tuple[float, float]
    n: int
    adapter: str


class BestAdapter:
    """A hook for `Hooks.after_evaluation`. Of equals the first is best."""

    def __init__(self, workdir: Path):
        self._path = workdir / "best.json"
        self.best: Best | None = None
        if self._path.is_file():
            self.best = Best(**json.loads(self._path.read_text()))

    @property
    def adapter(self) -> str | None:
        """Its name, if there is a best one."""
        return self.best.adapter if self.best else None

    def __call__(self, loop: Loop, version: int, metrics: dict) -> None:
        if self.best is not None and metrics["eval_accuracy"] <= self.best.accuracy:
            return
        name = published_adapter(loop, version)
        if name is None and version == loop.version:
            publish_files(loop)
            name = published_adapter(loop, version)
        if name is None:
            return
        self.best = Best(
            step=version,
            accuracy=metrics["eval_accuracy"],
            interval=wilson(metrics["eval_correct"], metrics["eval_n"]),
            n=metrics["eval_n"],
            adapter=name,
        )
        write_json(self._path, asdict(self.best))

    def export(self, bus: LearnerBus, directory: Path) -> None:
        """Copies its files out of the bus."""
        if self.best is None:
            return
        ref = next(ref for _, ref in bus.state.adapters if ref.name == self.best.adapter)
        contents = read_adapter(bus.store, ref)
        draft = directory.with_name(directory.name + ".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        for name, data in contents.items():
            (draft / name).write_bytes(data)
        shutil.rmtree(directory, ignore_errors=True)
        draft.rename(directory)
