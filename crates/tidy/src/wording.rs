//! Wording in messages and documents: "is no bridge" where English says "is not a bridge".

use crate::Problems;
use crate::source::split;
use crate::tree::File;

/// Words after which "no" is right: "is no longer", "is no more than 3".
const COMPARED: &[&str] = &[
    "longer", "shorter", "more", "less", "larger", "smaller", "higher", "lower", "faster", "slower", "older",
    "newer", "later", "better", "worse", "other",
];

/// "is no X" and its like in string literals, documents and scripts. "There is no X" is right.
pub fn is_no(files: &[File]) -> Problems {
    let mut problems = Problems::new();
    // This file has samples of what is wrong.
    for file in files.iter().filter(|file| file.path != "crates/tidy/src/wording.rs") {
        let literals = if file.ends_with(".rs") { Some(literals(&file.text)) } else { None };
        let lines = literals.as_ref().unwrap_or(&file.text).lines().enumerate();
        let words: Vec<(usize, &str)> = lines
            .flat_map(|(index, line)| line.split_whitespace().map(move |word| (index + 1, word)))
            .collect();
        for four in words.windows(4) {
            let [(_, before), (line, verb), (_, no), (_, what)] = four else { continue };
            if is_wrong(before, verb, no, what) {
                problems.push(format!(
                    "{}:{line}: \"{verb} no {what}\": say \"not a\", or \"there is no\"",
                    file.path
                ));
            }
        }
    }
    problems
}

fn is_wrong(before: &str, verb: &str, no: &str, what: &str) -> bool {
    matches!(verb, "is" | "are" | "was" | "were")
        && no == "no"
        && !before.to_lowercase().ends_with("there")
        && what.starts_with(char::is_alphabetic)
        && !COMPARED.contains(&what.trim_end_matches(|c: char| !c.is_alphabetic()))
}

/// A Rust file with blanks for all that is not in a literal.
fn literals(text: &str) -> String {
    let source = split(text);
    let others = source.code.chars().zip(source.comments.chars());
    let is_literal = |(code, comment)| code == ' ' && comment == ' ';
    let keep = |(c, other)| if c == '\n' || is_literal(other) { c } else { ' ' };
    text.chars().zip(others).map(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        is_no(&[File::new(path, text)]).len()
    }

    #[test]
    fn a_thing_that_is_no_other_thing_is_found_in_messages_and_documents() {
        for bad in ["x is no bridge", "these are no ports:", "so it was no accident"] {
            assert_eq!(found("docs/a.md", bad), 1, "{bad}");
            assert_eq!(found("crates/flow/src/a.rs", &format!("let a = \"{bad}\";\n")), 1, "{bad}");
        }
        for good in ["there is no bridge", "it is no longer there", "It is no more than 3", "x is not a port"]
        {
            assert_eq!(found("docs/a.md", good), 0, "{good}");
        }
        assert_eq!(found("docs/a.md", "and x is\nno bridge"), 1);
        assert_eq!(found("crates/flow/src/a.rs", "let a = 1; // x is no bridge here\n"), 0);
    }
}
