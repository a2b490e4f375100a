//! Trials of a generator, a switch and guests between them: the packets' way is a [topology](topology), and
//! generator, switch, guest and trial are traits with an implementation a file.

pub mod bed;
pub mod generator;
pub mod guest;
pub mod limit;
pub mod net;
pub mod processors;
pub mod switch;
pub mod testpmd;
pub mod topology;
pub mod traffic;
pub mod trial;
