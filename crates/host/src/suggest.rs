//! The nearest of known names, for errors about unknown ones.
//!
//! Only `crosspoint …` suggests: under a stock name error texts are the stock program's, which scripts
//! compare.

use crate::program;

/// ` (did you mean 'add-port'?)`, or nothing if no name is near or this is called by a stock name.
pub fn hint<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(unknown, known) {
        Some(name) if program::name().starts_with("crosspoint") => format!(" (did you mean '{name}'?)"),
        _ => String::new(),
    }
}

/// The name that is most alike, if it is alike enough to be meant.
fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|name| (strsim::normalized_damerau_levenshtein(unknown, name), name));
    let best = scored.filter(|(score, _)| *score >= 0.6).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["add-port", "del-port", "add-br", "show"];
        assert_eq!(nearest("ad-port", known), Some("add-port"));
        assert_eq!(nearest("shwo", known), Some("show"));
        assert_eq!(nearest("frobnicate", known), None);
    }
}
