//! Tells code, comments and literals of Rust source apart, line by line, so that a check for a word in
//! code is not set off by a comment or by the text of a string.
//!
//! A scanner of one pass that knows nested comments, raw strings and lifetimes; no parser. The lines of
//! both results correspond to those of the source.

/// The two sides of a source file, each with the lines of the whole; what belongs elsewhere is blank.
pub struct Source {
    /// Code, with the content of string and character literals blanked.
    pub code: String,
    /// Comments, documentation included.
    pub comments: String,
}

#[derive(Clone, Copy, PartialEq)]
enum In {
    Code,
    Comment { depth: u32 },
    LineComment,
    Text { hashes: Option<usize> },
}

/// Splits the source of a Rust file.
pub fn split(text: &str) -> Source {
    let chars: Vec<char> = text.chars().collect();
    let mut source = Source { code: String::new(), comments: String::new() };
    let mut state = In::Code;
    let mut at = 0;
    while at < chars.len() {
        let (taken, next) = step(&chars, at, state);
        let in_comment = matches!(state, In::Comment { .. } | In::LineComment)
            || matches!(next, In::Comment { .. } | In::LineComment);
        for &c in &chars[at..at + taken] {
            let keep = |on: bool| if on || c == '\n' { c } else { ' ' };
            source.code.push(keep(state == In::Code && !in_comment));
            source.comments.push(keep(in_comment));
        }
        at += taken;
        state = next;
    }
    source
}

/// How many characters from `at` belong together, and the state after them.
fn step(chars: &[char], at: usize, state: In) -> (usize, In) {
    let rest = &chars[at..];
    match state {
        In::Code => match rest {
            ['/', '/', ..] => (2, In::LineComment),
            ['/', '*', ..] => (2, In::Comment { depth: 1 }),
            ['"', ..] => (1, In::Text { hashes: None }),
            ['r', '"' | '#', ..] | ['b' | 'c', 'r', '"' | '#', ..] if !follows_word(chars, at) => {
                let prefix = if rest[0] == 'r' { 1 } else { 2 };
                let hashes = rest[prefix..].iter().take_while(|&&c| c == '#').count();
                match rest.get(prefix + hashes) {
                    Some('"') => (prefix + hashes + 1, In::Text { hashes: Some(hashes) }),
                    _ => (1, In::Code), // A raw identifier, `r#type`.
                }
            }
            ['\'', '\\', _, ..] => {
                let end = rest[3..].iter().position(|&c| c == '\'');
                (end.map_or(rest.len(), |end| end + 4), In::Code)
            }
            ['\'', _, '\'', ..] => (3, In::Code),
            _ => (1, In::Code),
        },
        In::LineComment if rest[0] == '\n' => (1, In::Code),
        In::LineComment => (1, In::LineComment),
        In::Comment { depth } => match rest {
            ['*', '/', ..] if depth == 1 => (2, In::Code),
            ['*', '/', ..] => (2, In::Comment { depth: depth - 1 }),
            ['/', '*', ..] => (2, In::Comment { depth: depth + 1 }),
            _ => (1, state),
        },
        In::Text { hashes: None } => match rest {
            ['\\', _, ..] => (2, state),
            ['"', ..] => (1, In::Code),
            _ => (1, state),
        },
        In::Text { hashes: Some(hashes) } => {
            let ends = rest[0] == '"' && rest[1..].iter().take_while(|&&c| c == '#').count() >= hashes;
            if ends { (1 + hashes, In::Code) } else { (1, state) }
        }
    }
}

fn follows_word(chars: &[char], at: usize) -> bool {
    at > 0 && is_word(chars[at - 1])
}

/// Whether `c` can be part of an identifier.
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `line` holds `word`, not as a part of a longer word.
pub fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The code before the tests at the bottom of the file.
pub fn without_tests(code: &str) -> &str {
    let mut end = 0;
    for line in code.split_inclusive('\n') {
        if line.starts_with("#[cfg(test)]") {
            return &code[..end];
        }
        end += line.len();
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_comments_and_literals_are_told_apart() {
        let text =
            "let a = \"unsafe // no\"; // unsafe yes\nlet b = 'x'; /* one /* two */ still */ code();\n";
        let source = split(text);
        assert_eq!(source.code.lines().count(), 2);
        assert!(!source.code.contains("unsafe"));
        assert!(source.code.contains("code()"));
        assert!(source.comments.contains("unsafe yes"));
        assert!(!source.comments.contains("no"));
        assert!(source.comments.contains("still"));
    }

    #[test]
    fn raw_strings_lifetimes_and_quoted_quotes_do_not_confuse_it() {
        for literal in
            ["r#\"a \" unsafe\"#", "b\"\\\" unsafe\"", "br\"unsafe\"", "'\\''", "'\"'", "'\\u{22}'"]
        {
            let source = split(&format!("fn f<'a>(x: &'a str) {{ g({literal}); kept(r#type) }}"));
            assert!(!source.code.contains("unsafe"), "{literal}: {}", source.code);
            assert!(source.code.contains("kept(r#type)"), "{literal}: {}", source.code);
        }
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe { x }", "unsafe"));
        assert!(has_word("x(unsafe)", "unsafe"));
        assert!(!has_word("#![allow(unsafe_code)]", "unsafe"));
    }

    #[test]
    fn the_tests_at_the_bottom_are_cut_off() {
        assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {}\n"), "a\n");
        assert_eq!(without_tests("a\nb\n"), "a\nb\n");
    }
}
