//! Actions and instructions in text.

mod check;
mod parse;
mod print;

pub use parse::{ActionsIn, parse_actions};
pub(super) use parse::{Context, parse_into};
pub use print::{actions_text, write_actions};
