//! Trials with a generator, a switch and guests: the packets' path is a [topology](topology), and generator,
//! switch, guest and trial are traits with one implementation per file.

pub mod bed;
pub mod cable;
pub mod drops;
pub mod generator;
pub mod guest;
pub mod limit;
pub mod meter;
pub mod net;
pub mod own_work;
pub mod processors;
pub mod switch;
pub mod testpmd;
pub mod topology;
pub mod traffic;
pub mod trial;
