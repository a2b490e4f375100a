//! What the oracles share: a source of chance, a plain model of a switch, worlds that are made and changed at
//! random on the model and on the real switch alike, and packets near their rules.

pub mod chance;
pub mod execute;
pub mod model;
pub mod world;
