//! The nearest of known names, for errors about unknown ones.

/// No name is longer. What a peer sends may be, and to compare takes time by its length.
const NAME_BYTES_MAX: usize = 64;

/// ` (did you mean 'add-port'?)`, or nothing if no name is near.
pub fn hint<T: AsRef<str>>(unknown: &str, known: impl IntoIterator<Item = T>) -> String {
    behind(' ', unknown, known)
}

/// The same on a line of its own, behind a text of Open vSwitch's that scripts compare.
pub fn line<T: AsRef<str>>(unknown: &str, known: impl IntoIterator<Item = T>) -> String {
    behind('\n', unknown, known)
}

fn behind<T: AsRef<str>>(separator: char, unknown: &str, known: impl IntoIterator<Item = T>) -> String {
    let name = nearest(unknown, known);
    name.map(|name| format!("{separator}(did you mean '{}'?)", name.as_ref())).unwrap_or_default()
}

/// The name that is most alike, if it is alike enough to be meant. An equal one is only in the wrong place.
fn nearest<T: AsRef<str>>(unknown: &str, known: impl IntoIterator<Item = T>) -> Option<T> {
    if unknown.len() > NAME_BYTES_MAX {
        return None;
    }
    let likeness = |name: &T| strsim::normalized_damerau_levenshtein(unknown, name.as_ref());
    let scored = known.into_iter().map(|name| (likeness(&name), name));
    let best = scored.filter(|(score, _)| *score >= 0.6).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score < 1.0).map(|(_, name)| name)
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
        assert_eq!(nearest("add-br", known), None);
        assert_eq!(nearest(&"show".repeat(1 << 20), ["show".repeat(1 << 20)]), None);
    }
}
