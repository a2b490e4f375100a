//! The figures by which switches are judged. Whoever measures a figure names it: a trial beside its name, a
//! measurement beside the fields of its rows.

use std::borrow::Cow;

/// What a figure says about a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The cost of a packet.
    Cost,
    /// How many.
    Rate,
    /// How long.
    Time,
    /// Something of its own, which no other figure says too.
    Own,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Of several figures for one question, the first that both switches have is compared; those of their own
    /// question all are.
    pub question: Question,
    /// Its name in stored results.
    pub name: Cow<'static, str>,
    /// Its name for readers who do not know that one.
    pub words: Cow<'static, str>,
}

impl Judged {
    /// A figure with a fixed name.
    pub const fn new(question: Question, name: &'static str, words: &'static str) -> Judged {
        Judged { question, name: Cow::Borrowed(name), words: Cow::Borrowed(words) }
    }
}
