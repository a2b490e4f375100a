//! Guests against a port, through what the two share: its memory, its rings, and the protocol's messages.

mod attacks;
mod disabled;
mod killed;
mod lending;
mod lending_attacks;
mod logging;
mod long_chains;
mod overlong;
mod regions;
mod turmoil;
mod vanishing;
