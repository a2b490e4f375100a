//! Messages and text, beside the stock programs.

mod round_trip;
mod stock;
mod text;
