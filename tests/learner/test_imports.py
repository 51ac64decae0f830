import os
import subprocess
import sys
from pathlib import Path

FORBIDDEN = ("sqlglot", "sqlite_utils", "obstore", "msgspec", "orbax", "tokenizers", "torch",
             "transformers", "vllm", "sqlite3", "grain")  # fmt: skip


def test_the_learner_imports_nothing_of_ours_nor_any_sql_data_or_bus_package():
    """In a fresh interpreter, for this one has imported much already."""
    script = "import sys, jax_t2sql.learner; print('\\n'.join(sys.modules))"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env,
                          check=True)  # fmt: skip
    loaded = done.stdout.split()
    assert not {name.split(".")[0] for name in loaded} & set(FORBIDDEN)
    ours = {name for name in loaded if name.split(".")[0] == "jax_t2sql"}
    assert {name for name in ours if not name.startswith("jax_t2sql.learner")} == {"jax_t2sql"}
