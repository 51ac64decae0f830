"""The README's commands exist and take the options that it shows; its links lead somewhere."""

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.S)
COMMANDS = [
    line.strip()
    for language, block in BLOCKS
    if language == "bash"
    for line in block.splitlines()
    if line.strip() and not line.startswith("#")
]


@cache
def help_text(module: str, *arguments: str) -> str:
    """What `--help` prints, with that of every sub-command where the program needs one."""
    if module == "jax_t2sql.train":
        arguments = ("--config", "configs/quickstart.py")
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments, "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
        env={"COLUMNS": "200", "PATH": "/usr/bin:/bin"},
    )
    names = re.match(r"usage: .*\{([a-z,]+)\}", done.stdout)
    parts = names[1].split(",") if names and not arguments else []
    return done.stdout + "".join(help_text(module, part) for part in parts)


def options(words: list[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if word.startswith("--")]


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command):
    words = [word for word in shlex.split(command) if not re.fullmatch(r"[A-Z_]+=\S+", word)]
    if words[0].startswith("launch/"):
        assert (ROOT / words[0]).stat().st_mode & 0o111, f"{words[0]} is not executable"
        module, words = "jax_t2sql.train", words if "quickstart" in words[0] else []
    elif words[:2] == ["pip", "install"]:
        return
    else:
        assert words[0].endswith("python") and words[1] == "-m", (
            f"unknown kind of command: {command}"
        )
        module = words[2]
    for option in options(words):
        assert option in help_text(module), f"{module} has no {option}"
    for word in words:
        if word.startswith(("configs/", "tests/")):
            assert (ROOT / word).is_file(), f"{word} does not exist"


def test_commands_in_sentences():
    """Options in running text are those of a program that the section runs, or of training."""
    for section in re.split(r"^#+ ", README, flags=re.M):
        modules = {"jax_t2sql.train", *re.findall(r"python -m ([\w.]+)", section)}
        for code in re.findall(r"`(--[^`]+)`", section.replace("\n", " ")):
            for option in options(shlex.split(code)):
                assert any(option in help_text(m) for m in modules), f"no {option} in {modules}"


def test_links_and_files():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), f"broken link {target}"
    for folder in re.findall(r"^\| `((?:jax_t2sql|data_pipelines)[\w/]*)`", README, re.M):
        assert (ROOT / folder).is_dir(), f"{folder} does not exist"


def test_python_blocks_import_what_exists():
    for language, block in BLOCKS:
        if language == "python":
            imports = "\n".join(line for line in block.splitlines() if line.startswith("from "))
            exec(imports, {})  # noqa: S102
            compile(block, "README.md", "exec")


PROGRAMS = ["train", "eval", "grade", "equiv", "report", "sample", "status", "plan", "export"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_has_help(program):
    text = help_text(f"jax_t2sql.{program}")
    assert "--help" in text and "usage" in text.lower()
