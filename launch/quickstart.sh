#!/usr/bin/env bash
# From nothing to a policy that learned text-to-SQL by reinforcement: makes .venv, installs, builds
# a small world of databases and questions, warms a tiny model up, trains it with SQL rewards, and
# prints held-out accuracy before and after. Minutes on two cores; needs no download but packages.
#
#   launch/quickstart.sh [--workdir DIR] [--seed N] [any option of python -m jax_t2sql.train]
#
# Run again with the same --workdir to resume an interrupted run. Relative paths start at the
# repository's root, wherever the script is called from.
set -euo pipefail
# shellcheck source=launch/_env.sh
source "$(dirname "${BASH_SOURCE[0]}")/_env.sh"
ensure_env run
exec "$VENV/bin/python" -m jax_t2sql.train --config configs/quickstart.py "$@"
