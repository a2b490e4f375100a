//! `crosspoint bench`: the built-in benchmark, from the crate of that name.

pub use ::bench::{Args, completed, run};
