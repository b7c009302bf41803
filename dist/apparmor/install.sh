#!/usr/bin/env bash
# Exempts rlox's programs from AppArmor's restriction of user namespaces (Ubuntu 24.04 and newer).
#
#   sudo bash dist/apparmor/install.sh              the programs stay where they are; their directory goes into the profile
#   sudo bash dist/apparmor/install.sh --remove
#
# A directory that an ordinary user may write to, such as a checkout's target/, lets that user run any program under
# the exemption. That is no more than every program may do on other distributions; for a shared host, install
# them to /usr/local/bin first, which the profile names already.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
target=${APPARMOR_DIR:-/etc/apparmor.d}/rlox-runtime
parser=${APPARMOR_PARSER:-apparmor_parser}

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

command -v "$parser" >/dev/null || fail "no apparmor_parser: this host does not use AppArmor, and nothing has to be installed"
case "${1:-}" in
    --remove)
        "$parser" --remove "$target"
        rm -f -- "$target"
        echo "removed $target"
        exit 0
        ;;
    "") ;;
    *) fail "usage: install.sh [--remove]" ;;
esac

profile=$(mktemp)
trap 'rm -f -- "$profile"' EXIT
cp -- "$here/rlox-runtime" "$profile"
build=$here/../../target/release
if [ -x "$build/rlox-runtime" ]; then
    build=$(realpath -- "$build")
    # In a profile these characters would be patterns or end the path.
    case "$build" in *[][{}*?\"\\^,@[:space:]]*) fail "$build: move the checkout to a path without special characters" ;; esac
    echo "adding $build"
    sed -i "s|^@{rlox_directories} = .*|& $build|" "$profile"
fi
# shellcheck disable=SC2086 # a list of flags
"$parser" --replace ${APPARMOR_FLAGS:-} "$profile" || fail "the profile was refused; AppArmor 4 or newer is needed"
install -m 644 -- "$profile" "$target"
echo "installed $target"
echo "next: rlox-runtime doctor"
