#!/usr/bin/env bash
# Fuzzes every decoder: bash runtime/fuzz/run.sh [SECONDS [TARGET...]], a minute each where nothing is said.
#
# The pinned stable toolchain does: no sanitiser is needed to find a panic or a property that does not hold. What is
# found stays in artifacts/TARGET, with the line that repeats it. corpus/ grows from run to run and is not committed.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
[ -x "$HOME/.cargo/bin/cargo" ] && PATH="$HOME/.cargo/bin:$PATH"
seconds=${1:-60}
targets=("${@:2}")
[ "${#targets[@]}" -gt 0 ] || targets=(config cdi state)
case $seconds in '' | *[!0-9]*) echo "usage: run.sh [SECONDS [TARGET...]]" >&2; exit 64 ;; esac
if ! command -v cargo-fuzz >/dev/null; then
    echo "cargo-fuzz is missing; install it with: cargo install --locked cargo-fuzz" >&2
    exit 69
fi
options=(--fuzz-dir . --sanitizer none)
cargo fuzz build "${options[@]}"
failed=0
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    seeds=("seeds/$target")
    # What lies elsewhere in the repository is taken from there.
    case $target in
        config) for bundle in ../../bundles/*/config.json; do
            cp "$bundle" "corpus/config/$(basename "$(dirname "$bundle")").json"
        done ;;
        cdi) cp ../tests/it/fixtures/*.yaml corpus/cdi/ ;;
    esac
    log=artifacts/$target.log
    status=0
    # A decoder that takes longer than 10 seconds or 1 GiB for one input has a fault, too.
    cargo fuzz run "${options[@]}" "$target" "corpus/$target" "${seeds[@]}" -- \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 \
        >"$log" 2>&1 || status=$?
    runs=$(awk '/stat::number_of_executed_units/ { print $2 }' "$log")
    coverage=$(awk '{ for (i = 1; i < NF; i++) if ($i == "cov:") last = $(i + 1) } END { print last + 0 }' "$log")
    if [ "$status" = 0 ] && [ "${runs:-0}" -gt 0 ]; then
        echo "$target: $runs runs, coverage $coverage, nothing found"
        continue
    fi
    failed=1
    echo "$target: ${runs:-no} runs, coverage $coverage, FAILED (code $status)"
    grep -E -A 3 'panicked at|ERROR: libFuzzer' "$log" | head -n 12 || tail -n 12 "$log"
    found=$(sed -n 's/.*Test unit written to \(.*\)/\1/p' "$log" | tail -n 1)
    echo "input: runtime/fuzz/${found#./}; again: cd runtime/fuzz && cargo fuzz run ${options[*]} $target ${found#./}"
done
exit "$failed"
