//! What the source of a crate may use: `unsafe`, the system, a clock, each as stated in its row in
//! ARCHITECTURE.md.
//!
//! `unsafe` is searched for everywhere, tests included; the system and the clock only in shipping code. The
//! compiler enforces the first as well, by `unsafe_code = "deny"`, so the check is for code that lifts that
//! lint.

use crate::Problems;
use crate::architecture::{Crate, Io, UnsafeIn};
use crate::source::{has_word, split, without_tests};
use crate::tree::File;

/// What stands for input and output in code. Addresses of `std::net` are values, its sockets are not.
const IO: &[&str] = &[
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "ToSocketAddrs",
    "UnixListener",
    "UnixStream",
    "UnixDatagram",
    "std::fs",
    "std::process",
    "std::env",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "tokio",
    "println",
    "eprintln",
];

/// What memory is mapped with, and much else: allowed where only that is.
const SYSTEM: &[&str] = &["std::os", "libc", "rustix"];

/// What stands for a clock.
const CLOCK: &[&str] = &["Instant::now", "SystemTime::now", "_rdtsc", "quanta", "clock_gettime"];

/// Checks every Rust file of the documented crates.
pub fn check(documented: &[Crate], files: &[File]) -> Problems {
    let mut problems = Problems::new();
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        let Some(name) = file.crate_name() else { continue };
        let Some(policy) = documented.iter().find(|c| c.name == name) else { continue };
        let source = split(&file.text);
        let unsafe_allowed = match policy.unsafe_in {
            UnsafeIn::Anywhere => true,
            UnsafeIn::Nowhere => false,
            UnsafeIn::SimdFiles => file.path.contains("simd"),
        };
        if !unsafe_allowed {
            for word in ["unsafe", "allow(unsafe_code)", "expect(unsafe_code)"] {
                report(&mut problems, file, &source.code, word, "unsafe");
            }
        }
        if file.is_test() {
            continue;
        }
        let shipped = without_tests(&source.code);
        let forbidden = match policy.io {
            Io::No => [IO, SYSTEM].concat(),
            Io::Memory => IO.to_vec(),
            Io::Yes => Vec::new(),
        };
        for path in forbidden {
            report(&mut problems, file, shipped, path, "I/O");
        }
        if !policy.clock {
            for path in CLOCK {
                report(&mut problems, file, shipped, path, "a clock");
            }
        }
    }
    problems
}

fn report(problems: &mut Problems, file: &File, code: &str, word: &str, policy: &str) {
    for (index, line) in code.lines().enumerate() {
        if has_word(line, word) {
            problems.push(format!(
                "{}:{}: `{word}`, but ARCHITECTURE.md has the crate without {policy}",
                file.path,
                index + 1
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(unsafe_in: UnsafeIn) -> [Crate; 1] {
        [Crate { name: "flow".to_owned(), rank: 2, unsafe_in, io: Io::No, clock: false, ships: true }]
    }

    fn problems(unsafe_in: UnsafeIn, path: &str, text: &str) -> Problems {
        check(&policy(unsafe_in), &[File::new(path, text)])
    }

    #[test]
    fn unsafe_is_found_in_code_and_not_in_comments() {
        let bad = "//! No unsafe here.\nfn f() { unsafe { g() } }\n";
        let found = problems(UnsafeIn::Nowhere, "crates/flow/src/a.rs", bad);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/flow/src/a.rs:2: `unsafe`"), "{found:?}");
        assert!(problems(UnsafeIn::Anywhere, "crates/flow/src/a.rs", bad).is_empty());
    }

    #[test]
    fn lifting_the_lint_is_found() {
        let found = problems(UnsafeIn::Nowhere, "crates/flow/src/a.rs", "#![allow(unsafe_code)]\n");
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn leaf_functions_of_simd_have_their_files() {
        let code = "unsafe fn f() {}\n";
        assert!(problems(UnsafeIn::SimdFiles, "crates/flow/src/simd.rs", code).is_empty());
        assert_eq!(problems(UnsafeIn::SimdFiles, "crates/flow/src/key.rs", code).len(), 1);
    }

    #[test]
    fn mapping_memory_is_not_yet_talking_to_the_world() {
        let mut policy = policy(UnsafeIn::Nowhere);
        policy[0].io = Io::Memory;
        let problems = |text: &str| check(&policy, &[File::new("crates/flow/src/a.rs", text)]).len();
        assert_eq!(problems("use libc::mmap;\n"), 0);
        assert_eq!(problems("use std::fs::File;\n"), 1);
    }

    #[test]
    fn io_and_clocks_are_found_in_what_ships_and_not_in_tests() {
        let bad =
            "use std::net::{Ipv4Addr, UdpSocket};\nuse std::net::Ipv6Addr;\nlet now = Instant::now();\n";
        assert_eq!(problems(UnsafeIn::Nowhere, "crates/flow/src/a.rs", bad).len(), 2);
        assert!(problems(UnsafeIn::Nowhere, "crates/flow/tests/a.rs", bad).is_empty());
        let test = format!("#[cfg(test)]\n{bad}");
        assert!(problems(UnsafeIn::Nowhere, "crates/flow/src/a.rs", &test).is_empty());
    }
}
