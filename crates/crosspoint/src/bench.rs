//! `crosspoint bench`: the benchmark that is built in, from the crate of that name.

pub use ::bench::{Args, run};
