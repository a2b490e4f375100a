//! Messages and text, beside the stock programs.

mod actions;
mod messages;
mod round_trip;
mod stock;
mod text;
