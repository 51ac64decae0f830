"""The room stays light and keeps to its place."""

import subprocess
import sys


def test_importing_models_pulls_in_no_optional_or_foreign_package():
    program = """
import sys
import jax_t2sql.models
banned = {"gguf", "tokenizers", "jinja2", "huggingface_hub", "torch", "transformers", "vllm",
          "sqlglot", "sqlite_utils", "sqlite3", "obstore", "msgspec", "grain",
          "tensorflow_datasets", "orbax"}
ours = {"jax_t2sql." + room for room in
        ("sql", "text2sql", "grading", "sampling", "bus", "equivalence", "judge")}
print(sorted((banned | ours) & sys.modules.keys()))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stdout + run.stderr
