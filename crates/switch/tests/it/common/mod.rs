//! What the oracles share: a source of chance, a plain model of a switch with meters that have a clock,
//! worlds that are made and changed at random on the model and on the real switch alike, and packets near
//! their rules.

pub mod bundles;
pub mod execute;
pub mod meters;
pub mod model;
pub mod packets;
pub mod rules;
pub mod world;

pub use testkit::chance;
