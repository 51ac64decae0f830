#!/usr/bin/env bash
# Runs every test; makes the environment if needed. Arguments go to pytest.
#
#   launch/test.sh [-k EXPRESSION | tests/sql ...]
#   EXTRAS=test,parity launch/test.sh     # with the comparisons against torch and transformers
set -euo pipefail
# shellcheck source=launch/_env.sh
source "$(dirname "${BASH_SOURCE[0]}")/_env.sh"
IFS=, read -ra extras <<<"${EXTRAS:-test}"
ensure_env "${extras[@]}"
exec "$VENV/bin/python" -m pytest "$@"
