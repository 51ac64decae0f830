"""`python -m data_pipelines.onedb`: scan, legend, build, audit, compare."""

from data_pipelines.onedb.program import main
from jax_t2sql.programs import run_program

if __name__ == "__main__":
    run_program(main, interrupted="interrupted; nothing was written")
