//! Actions and instructions in text.

mod check;
mod parse;
mod print;

pub use parse::{ActionsIn, parse_actions};
pub(super) use parse::{Context, parse_into};
pub(super) use print::reason_name;
pub use print::{actions_text, write_actions};
