#!/usr/bin/env bash
# The whole benchmark from one command: set-up, sandbox service, trials, summary, figures.
#
# Everything it installs for the project stays in the project's directory, except system packages and, where there
# is none, Rust by rustup; both are announced before they happen. Running it again is quick.
set -euo pipefail

usage() {
    cat <<'HELP'
usage: bash harness/repro.sh [--setup-only] [--profile full|smoke] [SWEEP ARGUMENTS…]

  --setup-only      prepare everything and stop: system packages, Rust, Python environment, build, bundles, corpus
  --profile NAME    full: 24 trials (default); smoke: 4 trials in a few minutes
  SWEEP ARGUMENTS   passed to `rlox-controller sweep run`, e.g. --parallel 4 or --sweep-dir DIR

A sweep that was stopped goes on where it stopped. Results:
  harness/sweep_out/   one directory a trial
  harness/p3_summary.json, harness/p3_summary.md
  harness/figures/     four PNG files

environment:
  RLOX_PYTHON   base interpreter, 3.11 or newer (default: /usr/bin/python3, then python3 from PATH)
HELP
}

fail() {
    echo "repro: $*" >&2
    exit 1
}

setup_only=false
sweep_arguments=()
while [ $# -gt 0 ]; do
    case "$1" in
        --setup-only) setup_only=true ;;
        -h | --help) usage; exit 0 ;;
        *) sweep_arguments+=("$1") ;;
    esac
    shift
done

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname -- "$here")
cd "$root"

[ "$(uname -s)" = Linux ] || fail "the sandbox runs on Linux only; this is $(uname -s)"
[ "$(uname -m)" = x86_64 ] || fail "the seccomp profiles are written for x86_64; this is $(uname -m)"

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
        fail "need root for: $*; run it yourself, then run this again"
    fi
}

system_packages() {
    local missing=()
    command -v cc >/dev/null || missing+=(gcc libc6-dev)
    command -v ld >/dev/null || missing+=(binutils)
    command -v curl >/dev/null || missing+=(curl ca-certificates)
    command -v python3 >/dev/null || missing+=(python3)
    { [ -x harness/.tools/bin/uv ] || command -v uv >/dev/null || python3 -m pip --version >/dev/null 2>&1; } ||
        missing+=(python3-pip)
    [ -e /usr/include/seccomp.h ] || missing+=(libseccomp-dev)
    # The interpreter as a library: with it, programs are forks of a started one.
    if [ -x /usr/bin/python3 ] && [ -z "${RLOX_PYTHON:-}" ]; then
        local library
        library=$(/usr/bin/python3 -c 'import sys; print("libpython%d.%d" % sys.version_info[:2])')
        compgen -G "/usr/lib/*/$library.so.1.0" >/dev/null || missing+=("$library")
    fi
    if [ -x /usr/bin/python3 ] && [ -z "${RLOX_PYTHON:-}" ]; then
        # uv installs itself with this interpreter's pip.
        { [ -e harness/.venv/bin/python ] || command -v uv >/dev/null || /usr/bin/python3 -m pip --version >/dev/null 2>&1; } ||
            missing+=(python3-pip)
    fi
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || fail "missing: ${missing[*]} (names of Debian's packages); install them, then run this again"
    echo "installing system packages: ${missing[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

rust() {
    command -v cargo >/dev/null && return 0
    [ -x "$HOME/.cargo/bin/cargo" ] && { PATH="$HOME/.cargo/bin:$PATH"; return 0; }
    echo "installing Rust by rustup into ~/.cargo and ~/.rustup (your shell's start-up files are left alone)"
    if ! command -v rustup >/dev/null && command -v apt-get >/dev/null && apt-cache show rustup >/dev/null 2>&1; then
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq rustup >/dev/null
    fi
    if command -v rustup >/dev/null; then
        rustup toolchain install
    else
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --no-modify-path --profile minimal
        PATH="$HOME/.cargo/bin:$PATH"
    fi
    command -v cargo >/dev/null || fail "Rust is still not there; install it from rustup.rs, then run this again"
}

setup() {
    system_packages
    bash harness/setup_env.sh
    echo "✓ Environment ready"
    rust
    cargo build --release --locked --quiet
    local packages
    packages=$(harness/.venv/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
    target/release/rlox-runtime bundle prepare --packages "$packages" bundles/snippet bundles/grader bundles/trainer
    echo "✓ Rust build complete"
    target/release/rlox-controller corpus check >/dev/null
    echo "✓ Corpus integrity verified"
}

setup
if $setup_only; then
    cat <<'NEXT'
Next: start rlox-verify-server, then run trl_grpo_run.py
  target/release/rlox-verify-server --port 8231 --timeout-secs 5
  harness/.venv/bin/python harness/trl_grpo_run.py --backend rlox --output-dir /tmp/treatment_run
or run all of it: bash harness/repro.sh
NEXT
    exit 0
fi

sweep_dir=()
next_is_dir=false
for argument in ${sweep_arguments[@]+"${sweep_arguments[@]}"}; do
    if $next_is_dir; then sweep_dir=(--sweep-dir "$argument"); next_is_dir=false; fi
    [ "$argument" = --sweep-dir ] && next_is_dir=true
done
target/release/rlox-controller sweep run ${sweep_arguments[@]+"${sweep_arguments[@]}"}
target/release/rlox-controller sweep aggregate ${sweep_dir[@]+"${sweep_dir[@]}"}
target/release/rlox-controller sweep plot ${sweep_dir[@]+"${sweep_dir[@]}"}
