//! What is written is read the same, by us and by others.

mod differential;
mod round_trip;
