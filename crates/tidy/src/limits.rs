//! Limits on size: how long a file of shipping code may be, and how wide a line of prose or comment.
//!
//! What was over a limit when the limit came is listed here. The lists only shrink: an entry that no longer
//! needs its exception is a problem too.

use crate::Problems;
use crate::source::{split, without_tests};
use crate::tree::File;

/// Lines of a file of shipping code, its tests at the bottom left out.
pub const LINES_MAX: usize = 700;

/// Columns of a line of prose or of a comment.
pub const COLUMNS_MAX: usize = 110;

/// Files over [`LINES_MAX`].
pub const TOO_LONG: &[&str] = &[
    "crates/datapath/src/cache/mod.rs",
    "crates/datapath/src/control.rs",
    "crates/datapath/src/worker.rs",
    "crates/ovsdb/src/log/transaction.rs",
    "crates/ports/src/guest/lending.rs",
    "crates/ports/src/vhost_user/ring.rs",
    "crates/vswitchd/src/config/rows.rs",
    "crates/vswitchd/src/ovsdb/remotes.rs",
];

/// Files and directories with lines over [`COLUMNS_MAX`].
pub const TOO_WIDE: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "crates/base/",
    "crates/bench/",
    "crates/crosspoint/",
    "crates/datapath/",
    "crates/flow/src/action.rs",
    "crates/fuzzing/src/ovsdb.rs",
    "crates/openflow/",
    "crates/oracle/",
    "crates/ovsdb/",
    "crates/packet/",
    "crates/ports/",
    "crates/switch/",
    "crates/vswitchd/",
];

/// Files of shipping code that are too long, and exceptions that are not needed.
pub fn too_long(files: &[File], exceptions: &[&str]) -> Problems {
    let is_shipping = |file: &&File| file.ends_with(".rs") && file.path.contains("/src/") && !file.is_test();
    let long: Vec<(&str, usize)> = files
        .iter()
        .filter(is_shipping)
        .map(|file| (file.path.as_str(), without_tests(&file.text).lines().count()))
        .filter(|&(_, lines)| lines > LINES_MAX)
        .collect();
    let mut problems = Problems::new();
    for (path, lines) in &long {
        if !exceptions.contains(path) {
            problems.push(format!("{path}: {lines} lines before the tests, over {LINES_MAX}: split it"));
        }
    }
    for path in exceptions.iter().filter(|path| !long.iter().any(|(long, _)| long == *path)) {
        problems.push(format!("{path} is within {LINES_MAX} lines: remove it from TOO_LONG in crates/tidy"));
    }
    problems
}

/// Lines of prose and comments that are too wide, and exceptions that are not needed.
pub fn too_wide(files: &[File], exceptions: &[&str]) -> Problems {
    let mut problems = Problems::new();
    let mut needed = vec![false; exceptions.len()];
    for file in files {
        let wide = wide_lines(file);
        if wide.is_empty() {
            continue;
        }
        match exceptions.iter().position(|exception| file.path.starts_with(exception)) {
            Some(idx) => needed[idx] = true,
            None => problems.extend(
                wide.iter().map(|line| format!("{}:{line}: wider than {COLUMNS_MAX} columns", file.path)),
            ),
        }
    }
    for (exception, _) in exceptions.iter().zip(needed).filter(|(_, needed)| !needed) {
        problems.push(format!("{exception} has no wide line: remove it from TOO_WIDE in crates/tidy"));
    }
    problems
}

/// Numbers of the lines that are too wide. Tables, blocks of code and words that cannot be broken are none.
fn wide_lines(file: &File) -> Vec<usize> {
    // A code span is one word.
    let words = |line: &str| line.split('`').step_by(2).flat_map(str::split_whitespace).count();
    let is_wide = |line: &str| line.chars().count() > COLUMNS_MAX && words(line) > 3;
    if file.ends_with(".rs") {
        let comments = split(&file.text).comments;
        let lines = file.text.lines().zip(comments.lines()).enumerate();
        return lines
            .filter(|(_, (line, comment))| {
                let text = comment.trim_start_matches(['/', '!', ' ']);
                line.trim_start().starts_with("//") && is_wide(line) && !text.starts_with('|')
            })
            .map(|(idx, _)| idx + 1)
            .collect();
    }
    if !file.ends_with(".md") {
        return Vec::new();
    }
    let mut in_code = false;
    let mut found = Vec::new();
    for (idx, line) in file.text.lines().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        if !in_code && !line.starts_with(['|', '#']) && !line.starts_with("    ") && is_wide(line) {
            found.push(idx + 1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_found_and_so_is_an_exception_that_is_not_needed() {
        let long = File::new("crates/flow/src/a.rs", &"x\n".repeat(LINES_MAX + 1));
        let short = File::new("crates/flow/src/b.rs", &"x\n".repeat(LINES_MAX));
        let test = File::new("crates/flow/tests/c.rs", &"x\n".repeat(LINES_MAX + 1));
        let files = [long, short, test];
        assert_eq!(too_long(&files, &[]).len(), 1);
        assert_eq!(too_long(&files, &["crates/flow/src/a.rs"]), Problems::new());
        let found = too_long(&files, &["crates/flow/src/a.rs", "crates/flow/src/b.rs"]);
        assert!(found.len() == 1 && found[0].contains("b.rs is within"), "{found:?}");
    }

    #[test]
    fn wide_prose_is_found_and_tables_and_code_are_not() {
        let wide = "word ".repeat(COLUMNS_MAX / 5 + 1);
        let found = |path: &str, text: &str| too_wide(&[File::new(path, text)], &[]);
        assert_eq!(found("docs/a.md", &wide).len(), 1);
        assert_eq!(found("crates/flow/src/a.rs", &format!("//! {wide}\n    // {wide}\n")).len(), 2);
        for good in
            [format!("| {wide} |"), format!("```\n{wide}\n```"), format!("    {wide}"), format!("# {wide}")]
        {
            assert_eq!(found("docs/a.md", &good), Problems::new(), "{good}");
        }
        for good in
            [format!("let a = \"{wide}\";"), format!("// | {wide} |"), format!("// see {}", "x".repeat(150))]
        {
            assert_eq!(found("crates/flow/src/a.rs", &good), Problems::new(), "{good}");
        }
        assert_eq!(too_wide(&[File::new("docs/a.md", &wide)], &["docs/"]), Problems::new());
        assert_eq!(too_wide(&[File::new("docs/a.md", "")], &["docs/"]).len(), 1);
    }
}
