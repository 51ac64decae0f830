#!/usr/bin/env bash
# Do the recipe's claims hold? Trains the quickstart's tiny model with and without each of its parts,
# three seeds each, and prints a table with intervals. At most three hours on two free cores: 39 runs
# of 150 steps and 9 warm-ups, about 80 minutes at the pace of the quickstart's 1.1 CPU-seconds a step.
#
#   launch/claims.sh [--out DIR] [--only a,c] [--seeds N] [--jobs N] [--help]
#
# Kill it at any moment: the same command goes on. The table is in DIR/claims.md.
set -euo pipefail
# shellcheck source=launch/_env.sh
source "$(dirname "${BASH_SOURCE[0]}")/_env.sh"
ensure_env run
exec "$VENV/bin/python" tests/bench/claims "$@"
