"""Runs launch scripts with programs that pretend, so that nothing is installed or asked."""

import os
import subprocess
from pathlib import Path

import pytest

LAUNCH = Path(__file__).resolve().parent.parent.parent / "launch"
OURS = ("GPUS", "PORT", "SAMPLER", "RESTARTS", "CUDA_VISIBLE_DEVICES", "VENV", "PYTHON", "EXTRAS")
FOREIGN = ("SLURM_", "TPU_", "JAX_")


class Launcher:
    """A folder of pretended programs, each of which notes its arguments in `calls`."""

    def __init__(self, folder: Path):
        self.folder, self.log = folder, folder / "calls"
        (folder / "bin").mkdir()
        self.log.touch()

    def pretend(self, name: str, body: str = "", *, folder: str = "bin") -> None:
        """body: what it does after noting its call, as a shell script."""
        path = self.folder / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        note = f'printf "%s" {name} >>{self.log}; printf " %s" "$@" >>{self.log}; echo >>{self.log}'
        path.write_text(f"#!/usr/bin/env bash\n{note}\n{body}\n")
        path.chmod(0o755)

    def pretend_installed(self, body: str) -> None:
        """An environment whose Python has everything, and does `body` for our programs."""
        check = 'case "$1" in -c) echo stamp; exit;; esac'
        self.pretend("python", f"{check}\n{body}", folder="venv/bin")
        (self.folder / "venv" / ".jax_t2sql-installed").write_text("stamp\n")

    @property
    def calls(self) -> list[str]:
        """What was called so far, but for questions of the script itself."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if not line.startswith("python -c")]

    def environment(self, **changes: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in OURS and not name.startswith(FOREIGN)
        }
        own = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "VENV": str(self.folder / "venv"),
            "RESTART_SECONDS": "0",
            "POLL_SECONDS": "0",
            "METADATA_URL": "http://127.0.0.1:1",
        }
        return kept | own | changes

    def run(self, script: str, *arguments: str, **changes: str) -> subprocess.CompletedProcess:
        command = [str(LAUNCH / script), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=self.environment(**changes)
        )


@pytest.fixture
def launcher(tmp_path) -> Launcher:
    return Launcher(tmp_path)
