//! The database through its public interface, beside the stock server.

mod common;
mod conversion;
mod durability;
mod hostile;
mod model;
mod operations;
mod random_stock;
mod schemas;
mod text_stock;
