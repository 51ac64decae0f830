import subprocess
import sys


def test_the_bus_imports_neither_jax_nor_sql():
    code = (
        "import sys, jax_t2sql.bus\n"
        "import jax_t2sql.bus.bucket, jax_t2sql.bus.directory\n"
        "roots = {name.split('.')[0] for name in sys.modules}\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('jax_t2sql.')}\n"
        "foreign = roots & {'jax', 'jaxlib', 'flax', 'sqlglot', 'sqlite_utils', 'sqlite3'}\n"
        "print(sorted(foreign), sorted(rooms))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[] ['bus', 'errors']", result.stderr
