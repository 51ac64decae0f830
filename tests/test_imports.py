"""Who may import whom: each room in a fresh interpreter, and every import of the package."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "jax_t2sql"

COMMON = {"errors", "json_rows", "parquet_rows", "stats"}
# Rooms from the ground up; a room may import those named, and what is in `COMMON`.
ALLOWED = {
    "learner": set(),
    "models": {"learner"},
    "sql": set(),
    "equivalence": {"sql"},
    "text2sql": {"sql"},
    "grading": {"sql", "equivalence", "text2sql"},
    "sampling": {"text2sql", "models"},
    "bus": set(),
    "scores": {"sql", "equivalence", "text2sql", "grading"},
}
SQL_SIDE = ("sqlglot", "sqlite_utils")
BUS_SIDE = ("obstore", "msgspec")
# Importing the room must not pull these in.
FORBIDDEN = {
    "learner": (*SQL_SIDE, *BUS_SIDE, "orbax", "grain", "tokenizers", "gguf", "tyro", "rich"),
    "models": (*SQL_SIDE, *BUS_SIDE, "gguf", "tokenizers", "jinja2", "huggingface_hub"),
    "sql": ("jax", *BUS_SIDE),
    "equivalence": ("jax", *BUS_SIDE),
    "text2sql": ("jax", *BUS_SIDE),
    "grading": ("jax", "sqlglot", "z3", *BUS_SIDE),  # the checker comes with the first pair
    "bus": ("jax", *SQL_SIDE),
    "scores": ("jax",),
}
NEVER = ("torch", "vllm", "transformers", "tensorflow")


def modules_after(statement: str) -> set[str]:
    """Top-level modules loaded in a fresh interpreter by a statement."""
    code = f"import sys; {statement}; print(*sorted({{m.partition('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("room", sorted(FORBIDDEN))
def test_room_is_light(room):
    loaded = modules_after(f"import jax_t2sql.{room}")
    assert loaded.isdisjoint(FORBIDDEN[room] + NEVER), loaded & set(FORBIDDEN[room] + NEVER)


@pytest.mark.parametrize(
    "program", ["train", "eval", "grade", "equiv", "report", "sample", "status", "plan", "export"]
)
def test_programs_answer_help_before_loading_jax(program):
    loaded = modules_after(f"import jax_t2sql.{program}")
    assert loaded.isdisjoint(("jax", "grain", "orbax", *NEVER))


def imports(path: Path) -> set[str]:
    """Full names of modules that a file imports, wherever in it."""
    found = set()
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = ".".join(part for part in (base, node.module) if part)
            found |= {name} | {f"{name}.{alias.name}" for alias in node.names}
    return found


def test_learner_and_models_need_what_is_installed_without_extras():
    """All that they import at once; what they import on demand comes with an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.match(r"[\w-]+", requirement)[0] for requirement in project["dependencies"]}
    assert needed == {"flax", "jax", "numpy", "optax", "safetensors"}
    for path in [*(PACKAGE / "learner").rglob("*.py"), *(PACKAGE / "models").rglob("*.py")]:
        at_once = [
            node
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Import | ast.ImportFrom) and not getattr(node, "level", 0)
        ]
        names = {
            name.partition(".")[0]
            for node in at_once
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
            )
        }
        assert names <= needed | {"jax_t2sql"} | sys.stdlib_module_names, path


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_no_room_imports_upwards(room):
    for path in (PACKAGE / room).rglob("*.py"):
        rooms = {
            name.split(".")[1]
            for name in imports(path)
            if name.startswith("jax_t2sql.") and name.count(".")
        }
        ours = rooms & {p.stem for p in PACKAGE.iterdir()} - {"__version__", room, *COMMON}
        assert ours <= ALLOWED[room], f"{path.name} imports {ours - ALLOWED[room]}"


def test_rooms_do_not_depend_on_each_other_in_a_circle():
    order = []
    while len(order) < len(ALLOWED):
        free = [r for r in ALLOWED if r not in order and ALLOWED[r] <= set(order)]
        assert free, f"a circle among {set(ALLOWED) - set(order)}"
        order += free


def test_only_the_engine_of_sampling_imports_jax():
    for path in (PACKAGE / "sampling").glob("*.py"):
        uses_jax = any(name.partition(".")[0] == "jax" for name in imports(path))
        assert not uses_jax or path.name in ("engine.py", "decoding.py")


def test_nothing_imports_heavy_frameworks():
    for folder in (PACKAGE, ROOT / "data_pipelines", ROOT / "configs"):
        for path in folder.rglob("*.py"):
            tops = {name.partition(".")[0] for name in imports(path)}
            assert tops.isdisjoint(NEVER), f"{path} imports {tops & set(NEVER)}"
