//! Tables and translation through their public interface.

mod common;
mod forwarding;
mod oracles;
