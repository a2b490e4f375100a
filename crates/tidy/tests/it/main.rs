//! The tree against its documents.

mod install;
mod interop;
mod tree;
