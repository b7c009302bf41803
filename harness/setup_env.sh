#!/usr/bin/env bash
# Create harness/.venv, the trainer's Python environment, and check that it works.
#
# Why a script and not only `uv sync`: the CPU lane also needs link stubs (see stubs/), and the
# environment is later bind-mounted read-only into a container, so everything that would be written
# on first use (bytecode, stubs) has to be written now. A second call with nothing changed does
# nothing but compare one digest.
set -euo pipefail

usage() {
    cat <<'HELP'
usage: harness/setup_env.sh [--gpu] [--force]

Creates harness/.venv from uv.lock. uv is taken from PATH or installed under harness/.tools.

  --gpu     the GPU lane: torch with its CUDA wheels, and vLLM (many gigabytes)
  --force   do it again even though nothing changed

environment:
  RLOX_PYTHON   the base interpreter (3.11 or newer); otherwise /usr/bin/python3, then python3
                from PATH. The trainer's container needs it at the same absolute path.
HELP
}

fail() {
    echo "setup_env: $*" >&2
    exit 1
}

lane=cpu
force=false
for argument in "$@"; do
    case "$argument" in
        --gpu) lane=gpu ;;
        --force) force=true ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; fail "unknown argument: $argument" ;;
    esac
done

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
cd "$here"

new_enough() {
    [ -n "$1" ] && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

choose_python() {
    if [ -n "${RLOX_PYTHON:-}" ]; then
        new_enough "$RLOX_PYTHON" || fail "RLOX_PYTHON=$RLOX_PYTHON is not a Python 3.11 or newer"
        echo "$RLOX_PYTHON"
        return
    fi
    local candidate
    for candidate in /usr/bin/python3 "$(command -v python3 || true)"; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or newer: install one, or name it in RLOX_PYTHON"
}

find_uv() {
    local version=0.13.9 private="$here/.tools/uv"
    if command -v uv; then
        return
    fi
    if [ ! -x "$private/bin/uv" ]; then
        local installer
        for installer in "$python" "$(command -v python3)"; do
            if "$installer" -m pip --version >/dev/null 2>&1; then
                PIP_ROOT_USER_ACTION=ignore "$installer" -m pip install --quiet --target "$private" "uv==$version" >&2 ||
                    fail "pip could not install uv $version under $private"
                break
            fi
        done
        [ -x "$private/bin/uv" ] ||
            fail "uv is not on PATH and no Python here has pip: install uv, or python3-pip"
    fi
    echo "$private/bin/uv"
}

python=$(choose_python)
identity=$({
    echo "$lane $("$python" -c 'import os, sys; print(os.path.realpath(sys.executable), sys.version)')"
    cat pyproject.toml uv.lock stubs/generate_stubs.py setup_env.sh
} | sha256sum | cut -d' ' -f1)
stamp=.venv/rlox-setup.stamp
if ! $force && [ "$(cat "$stamp" 2>/dev/null)" = "$identity" ] && [ -x .venv/bin/python ]; then
    echo "harness/.venv is up to date ($lane lane)"
    exit 0
fi

uv=$(find_uv)
rm -f "$stamp"
# The interpreter named above, not one that uv downloads: the container must have it too.
UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never \
    "$uv" sync --quiet --frozen --extra "$lane" --compile-bytecode --python "$python" ||
    fail "uv sync failed; its message is above. Without a network, a filled uv cache is needed"
if [ "$lane" = cpu ]; then
    .venv/bin/python stubs/generate_stubs.py
fi
.venv/bin/python -c '
import torch, trl
print(f"torch {torch.__version__}, trl {trl.__version__}, GPU: {torch.cuda.is_available()}")
' || fail "the environment was installed, but torch or trl does not import; see above"
echo "$identity" >"$stamp.new"
mv "$stamp.new" "$stamp"
echo "harness/.venv is ready ($lane lane, $python)"
