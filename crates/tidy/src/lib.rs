//! The tree checked against what its documents say: ranks of crates, the policies on `unsafe`, I/O and
//! clocks, links, blocks of commands, invariants and their tests, limits on size, wording, levels of log
//! messages, and leftovers.
//!
//! ARCHITECTURE.md is the source of the ranks and policies, so that it cannot drift from the tree. Each
//! check is a function from text to a list of problems, a sentence each, and is itself tested on a sample
//! that it must refuse; `tests/tree.rs` runs all of them on the project. Nothing here ships.

pub mod architecture;
pub mod circles;
pub mod components;
pub mod leftovers;
pub mod levels;
pub mod limits;
pub mod links;
pub mod ranks;
pub mod shell;
pub mod source;
pub mod tests_named;
pub mod tree;
pub mod uses;
pub mod wording;

/// What a check found wrong, a sentence each; empty when all is well.
pub type Problems = Vec<String>;
