"""BUILD names every module, every dependency between rooms and every package that is imported."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("jax_t2sql", "data_pipelines", "configs")
    for path in (ROOT / folder).rglob("*.py")
)
# Distribution names, where they differ from the module's.
DISTRIBUTIONS = {
    "orbax": "orbax-checkpoint",
    "snowflake": "snowflake-connector-python",
    "sqlite_utils": "sqlite-utils",
    "tensorflow_datasets": "tensorflow-datasets",
    "yaml": "PyYAML",
    "z3": "z3-solver",
}


def targets() -> dict[str, dict]:
    """Targets of BUILD by name: kind, srcs, deps (":name" or "@distribution")."""
    found = {}
    for node in ast.parse((ROOT / "BUILD").read_text()).body:
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            continue
        fields = {keyword.arg: keyword.value for keyword in node.value.keywords}
        if "name" not in fields:
            continue
        deps = []
        for item in getattr(fields.get("deps"), "elts", []):
            is_requirement = isinstance(item, ast.Call) and item.func.id == "requirement"
            deps.append("@" + item.args[0].value if is_requirement else item.value)
        found[fields["name"].value] = {
            "kind": node.value.func.id,
            "srcs": [item.value for item in getattr(fields.get("srcs"), "elts", [])],
            "deps": deps,
        }
    return found


TARGETS = targets()
# A program's file is in its py_binary as well as in the library that others import it from.
LIBRARIES = {name: target for name, target in TARGETS.items() if target["kind"] == "py_library"}
OWNER = {source: name for name, target in LIBRARIES.items() for source in target["srcs"]}


def test_every_module_is_in_one_library():
    assert sorted(s for target in LIBRARIES.values() for s in target["srcs"]) == SOURCES


def test_every_program_is_a_binary():
    mains = {t["srcs"][0] for t in TARGETS.values() if t["kind"] == "py_binary"}
    programs = {s for s in SOURCES if '__name__ == "__main__"' in (ROOT / s).read_text()}
    assert mains == programs


def source_of(module: str) -> str | None:
    """The file of one of our modules."""
    path = module.replace(".", "/")
    for candidate in (f"{path}.py", f"{path}/__init__.py"):
        if (ROOT / candidate).is_file():
            return candidate
    return None


def needs(source: str) -> set[str]:
    """What a file's imports need: ":target" for ours, "@distribution" for others."""
    wanted = set()
    package = Path(source).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse((ROOT / source).read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            inner = [f"{module}.{alias.name}" for alias in node.names]
            names = [name for name in inner if source_of(name)] or [module]
        for name in names:
            top = name.partition(".")[0]
            if top in ("jax_t2sql", "data_pipelines"):
                owner = OWNER[source_of(name)]
                wanted |= {f":{owner}"} if owner != OWNER[source] else set()
            elif top not in sys.stdlib_module_names:
                wanted.add("@" + DISTRIBUTIONS.get(top, top))
    return wanted


@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_library_names_exactly_what_it_imports(name):
    wanted = set().union(*(needs(source) for source in LIBRARIES[name]["srcs"]))
    deps = set(LIBRARIES[name]["deps"])
    assert wanted <= deps, f"missing from {name}: {wanted - deps}"
    assert deps <= wanted, f"not needed by {name}: {deps - wanted}"
