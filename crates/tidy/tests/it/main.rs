//! The tree against its documents.

mod install;
mod tree;
