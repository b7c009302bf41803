#!/usr/bin/env bash
# Every check of the project: formatting, lints, unit tests, real containers, the corpus, a small sweep.
#
# Needs what the product needs: Linux, and root or a delegated cgroup v2. A test that cannot run on this host says
# SKIPPED with the missing capability; with RLOX_FORBID_SKIPS=1 it fails instead.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."
[ -x "$HOME/.cargo/bin/cargo" ] && PATH="$HOME/.cargo/bin:$PATH"

step() {
    echo "== $*"
}

step "set-up"
bash harness/repro.sh --setup-only
step "formatting and lints"
cargo fmt --all --check
cargo clippy --release --locked --workspace --all-targets --quiet -- -D warnings
# The fuzz targets are no member of the workspace; what they are built from is in the same place.
cargo fmt --manifest-path runtime/fuzz/Cargo.toml --check
cargo clippy --release --locked --manifest-path runtime/fuzz/Cargo.toml --target-dir target --quiet -- -D warnings
python=harness/.venv/bin/python
"$python" -m ruff check --quiet harness bundles
"$python" -m ruff format --quiet --check harness bundles
if ! command -v cargo-deny >/dev/null && [ "${RLOX_FORBID_SKIPS:-}" = 1 ]; then
    cargo install --quiet --locked cargo-deny
fi
if command -v cargo-deny >/dev/null; then
    cargo deny --log-level error check licenses bans sources
    cargo deny --log-level error --manifest-path runtime/fuzz/Cargo.toml check licenses bans sources
else
    echo "SKIPPED cargo deny: needs cargo-deny (cargo install cargo-deny)"
fi
step "Rust: unit tests, containers, service, corpus, sweep"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
cargo test --release --locked --workspace --no-fail-fast -- --nocapture 2>&1 | tee "$log" || status=$?
step "Python: trainer harness"
(cd harness && .venv/bin/python -m pytest -q -rs) 2>&1 | tee -a "$log" || status=$?
passed=$(awk '/^test result:/ { sum += $4 } END { print sum + 0 }' "$log")
failed=$(awk '/^test result:/ { sum += $6 } END { print sum + 0 }' "$log")
skipped=$(grep -c '^SKIPPED ' "$log" || true)
echo "Rust tests: $passed passed, $failed failed, $skipped skipped"
[ "$status" = 0 ] || { echo "FAILED" >&2; exit 1; }
