//! What tests of several crates share: the [kit](lab) for programs, namespaces and waiting, a stock Open
//! vSwitch as a counterpart, [random numbers](chance) from a seed, how many cases to run, where the tree and
//! the binary are, the replay of a fuzz corpus, and an allocator that counts.
//!
//! A dev-dependency only: nothing that ships may use it, which the tidy test checks. It knows no other
//! crate of the project, so that every one of them may use it.
#![allow(unsafe_code)] // Only for `alloc`: the trait of allocators is unsafe to implement.

pub mod alloc;
pub mod chance;
mod corpus;
pub mod lab;
pub mod stock;
mod watch;

pub use corpus::{Replay, replay};

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The number of cases that property test `test` runs: `ordinary` in `make test`, and times
/// `CROSSPOINT_SOAK_FACTOR` in `make soak`, where the number is also put on record in the file that
/// `CROSSPOINT_SOAK_LOG` names. At most `u32::MAX`, which is what proptest counts with.
///
/// With proptest: `#![proptest_config(ProptestConfig::with_cases(testkit::cases("crate::test", 2_000)))]`.
pub fn cases(test: &str, ordinary: u32) -> u32 {
    let factor = match std::env::var("CROSSPOINT_SOAK_FACTOR") {
        Ok(text) => text.parse().expect("CROSSPOINT_SOAK_FACTOR is a whole number"),
        Err(_) => 1,
    };
    let cases = scaled(ordinary, factor);
    record(test, cases.into());
    cases
}

/// Puts a count on record in `make soak`: what `cases` does not say, such as the packets that were compared
/// in its worlds.
pub fn record(what: &str, count: u64) {
    if let Some(log) = std::env::var_os("CROSSPOINT_SOAK_LOG") {
        let mut file =
            OpenOptions::new().append(true).create(true).open(log).expect("the log of soak cases opens");
        writeln!(file, "{what}\t{count}").expect("the log of soak cases takes a line");
    }
}

fn scaled(ordinary: u32, factor: u32) -> u32 {
    ordinary.saturating_mul(factor.max(1))
}

/// The root of the source tree. Under cargo it is the tree whose tests cargo runs, even if the program was
/// built in another one (build directories are copied); without cargo, the tree that was built.
pub fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let root = package.as_deref().and_then(|package| {
            package.ancestors().find(|directory| directory.join("crates/testkit/Cargo.toml").exists())
        });
        root.unwrap_or(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))).to_owned()
    });
    &ROOT
}

/// The binary that an end-to-end test runs: the release binary under `make test`, which names it in
/// `CROSSPOINT_BIN`, else `built`, the one that cargo made for the test:
/// `testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"))`.
pub fn crosspoint(built: &str) -> PathBuf {
    std::env::var_os("CROSSPOINT_BIN").map_or_else(|| PathBuf::from(built), PathBuf::from)
}

/// Whether a process listens at a Unix socket. Its file alone does not prove that: a server creates it some
/// time before it listens, and until then clients are refused.
pub fn listens(socket: impl AsRef<Path>) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// Debian's kernel for virtual machines, unpacked on first use: `boot/vmlinuz-*` and `lib/modules/*`. Panics
/// with what apt said where it cannot be had.
pub fn guest_kernel() -> PathBuf {
    printed_path("scripts/guest-kernel", &[])
}

/// The Python that has the counterparts of `scripts/requirements.txt`, installed on first use. Panics
/// where they cannot be installed.
pub fn python() -> PathBuf {
    printed_path("scripts/venv", &[]).join("bin/python3")
}

/// The environment of Python that has the counterparts of `scripts/requirements-NAME.txt`, installed on first
/// use. Panics where they cannot be installed.
pub fn venv(name: &str) -> PathBuf {
    printed_path("scripts/venv", &[name])
}

/// The path that a script of ours prints.
fn printed_path(script: &str, args: &[&str]) -> PathBuf {
    let output = Command::new(root().join(script)).args(args).output();
    let output = output.unwrap_or_else(|e| panic!("{script}: {e}"));
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).expect("a path in UTF-8").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soak_multiplies_and_never_wraps() {
        assert_eq!(scaled(200, 1), 200);
        assert_eq!(scaled(200, 1_000), 200_000);
        assert_eq!(scaled(200, 0), 200);
        assert_eq!(scaled(u32::MAX, 2), u32::MAX);
    }

    #[test]
    fn root_is_where_the_workspace_is() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }
}
