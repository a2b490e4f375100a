# Shared by the scripts of this directory; each sources it first. Needs bash.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT_DIR=$PWD
# shellcheck disable=SC2034 # Used by those who source this.
TARGET_DIR=${CARGO_TARGET_DIR:-$ROOT_DIR/target}

# The budgets are for two cores that do nothing else. A slower machine has this many times as much.
SLOWNESS=${SLOWNESS:-1}

say() { printf '%s\n' "== $*"; }
fail() { printf '%s\n' "$(basename "$0"): $*" >&2; exit 1; }

# need_root WHY: the namespaces, AF_XDP sockets and devices of a target are root's to make.
need_root() {
    [ "$(id -u)" = 0 ] || fail "this needs root ($1). Run: sudo env PATH=\"\$PATH\" make $(basename "$0")"
}

need_rust() {
    command -v cargo >/dev/null || fail "cargo is not in PATH. Crosspoint needs Rust 1.95 or newer: https://rustup.rs"
}

# need_cargo_tool TOOL: a cargo subcommand, built from crates.io where it is missing.
need_cargo_tool() {
    cargo "${1#cargo-}" --version >/dev/null 2>&1 && return
    say "$1 is missing: cargo install --locked $1"
    cargo install --locked --quiet "$1" || fail "cargo install --locked $1 failed; this target cannot run without it"
}

build_release() {
    say "building the release binary"
    cargo build --release --package crosspoint
}

# describe_machine: what a committed figure must carry to mean anything later.
describe_machine() {
    printf 'date: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    printf 'commit: %s%s\n' "$(git rev-parse --short=12 HEAD 2>/dev/null || echo none)" \
        "$([ -z "$(git status --porcelain 2>/dev/null)" ] || echo ' with uncommitted changes')"
    printf 'cpu: %s, %s online\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)"
    printf 'memory: %s MB\n' "$(awk '/^MemTotal/{print int($2/1024)}' /proc/meminfo)"
    printf 'kernel: %s\n' "$(uname -r)"
    printf 'rustc: %s\n' "$(rustc --version)"
}

# logged LOG COMMAND…: adds what the command prints to the log, shows it, and has the command's status. It ends
# with the command: behind a pipe, it would wait for whatever a failed test left running.
logged() {
    local log=$1 status=0
    shift
    local shown
    shown=$(stat -c %s "$log")
    "$@" >>"$log" 2>&1 &
    local command=$!
    tail --bytes=+$((shown + 1)) --sleep-interval=0.2 --follow --pid=$command "$log" &
    local shows=$!
    wait $command || status=$?
    wait $shows || true
    return $status
}
