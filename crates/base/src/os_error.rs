//! Errors of the operating system in its own words.

use std::fmt::Display;

/// The text of a `std::io::Error`, or of what holds one, without the number that Rust puts behind it:
/// `No such file or directory`.
pub fn os_text(error: &impl Display) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;

    #[test]
    fn an_error_of_the_system_is_told_in_words_and_others_as_they_are() {
        assert_eq!(os_text(&Error::from_raw_os_error(2)), "No such file or directory");
        assert_eq!(os_text(&Error::other("no header")), "no header");
    }
}
