//! Leftovers of work in progress and of one developer's machine: notes to oneself, unfinished or ignored
//! code, absolute paths, and the files that a project owes its readers.

use std::path::Path;

use crate::Problems;
use crate::source::{has_word, split};
use crate::tree::File;

const NOTES: &[&str] = &["TODO", "FIXME", "XXX"];
const UNFINISHED: &[&str] = &["todo!(", "unimplemented!(", "dbg!(", "#[ignore"];

/// Notes to oneself in comments, unfinished and ignored code, modules that do not say what they are.
pub fn unfinished(files: &[File]) -> Problems {
    let mut problems = Problems::new();
    for file in files {
        if !file.ends_with(".rs") {
            let notes =
                if file.ends_with(".md") { outside_code_spans(&file.text) } else { file.text.clone() };
            find(&mut problems, file, &notes, NOTES, has_word);
            continue;
        }
        let source = split(&file.text);
        find(&mut problems, file, &source.comments, NOTES, has_word);
        find(&mut problems, file, &source.code, UNFINISHED, |line, what| line.contains(what));
        // A count written out is one that the long runs cannot multiply.
        find(&mut problems, file, &source.code, &["with_cases("], |line, what| {
            line.split_once(what).is_some_and(|(_, count)| count.starts_with(|c: char| c.is_ascii_digit()))
        });
        if file.crate_name().is_some() && !file.is_test() && !file.text.starts_with("//! ") {
            problems.push(format!("{}: opens with no //! paragraph that says what it is", file.path));
        }
    }
    problems
}

fn find(problems: &mut Problems, file: &File, text: &str, words: &[&str], is_in: fn(&str, &str) -> bool) {
    for (index, line) in text.lines().enumerate() {
        for word in words.iter().filter(|word| is_in(line, word)) {
            problems.push(format!("{}:{}: {word}", file.path, index + 1));
        }
    }
}

fn outside_code_spans(text: &str) -> String {
    let line = |line: &str| line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Absolute paths of a developer's machine: homes, and the place where this checkout, at `root`, lies.
pub fn machine_paths(files: &[File], root: &Path) -> Problems {
    let mut forbidden = vec!["/root/".to_owned(), "/Users/".to_owned(), "/home/".to_owned()];
    forbidden.extend(place_of(root));
    let mut problems = Problems::new();
    for file in files.iter().filter(|file| file.path != "crates/tidy/src/leftovers.rs") {
        for (index, line) in file.text.lines().enumerate() {
            for path in forbidden.iter().filter(|path| has_path(line, path)) {
                problems.push(format!("{}:{}: the path {path} of one machine", file.path, index + 1));
            }
        }
    }
    problems
}

/// What identifies a path below `root` as this machine's: its first directory if no other machine has that,
/// else the whole path.
fn place_of(root: &Path) -> Option<String> {
    const COMMON: &[&str] =
        &["usr", "var", "tmp", "opt", "srv", "mnt", "media", "etc", "run", "dev", "build"];
    let root = root.to_str()?;
    let first = root.split('/').nth(1).filter(|first| !first.is_empty())?;
    Some(if COMMON.contains(&first) { format!("{root}/") } else { format!("/{first}/") })
}

fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | ')' | '*' | '$'))
    })
}

/// The files that a project owes its readers, and what each must hold.
pub fn owed(files: &[File], version: &str) -> Problems {
    let changelog = format!("## {version}");
    let owed: &[(&str, &[&str])] = &[
        ("README.md", &["make demo", "make test"]),
        ("ARCHITECTURE.md", &["## Invariants"]),
        ("CHANGELOG.md", &[&changelog]),
        ("CONTRIBUTING.md", &[]),
        ("SECURITY.md", &[]),
        ("LICENSE", &["Apache License", "Version 2.0"]),
        (".ci/run", &["make test"]),
    ];
    let mut problems = Problems::new();
    for (path, contents) in owed {
        let Some(file) = files.iter().find(|file| file.path == *path) else {
            problems.push(format!("there is no {path}"));
            continue;
        };
        for content in contents.iter().filter(|content| !file.text.contains(**content)) {
            problems.push(format!("{path} does not hold: {content}"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> [File; 1] {
        [File::new(path, text)]
    }

    #[test]
    fn notes_and_unfinished_code_are_found() {
        for bad in [
            "// TODO: later",
            "/* FIXME */",
            "fn f() { todo!() }",
            "fn f() { unimplemented!() }",
            "#[ignore]",
            "with_cases(99)",
        ] {
            let text = format!("//! Says what it is.\n{bad}\n");
            let found = unfinished(&file("crates/flow/src/a.rs", &text));
            assert_eq!(found.len(), 1, "{bad}: {found:?}");
            assert!(found[0].starts_with("crates/flow/src/a.rs:2: "), "{found:?}");
        }
        assert_eq!(unfinished(&file("scripts/test", "# FIXME\n")).len(), 1);
        assert_eq!(unfinished(&file("docs/a.md", "TODO\n`TODO`\n")).len(), 1);
    }

    #[test]
    fn a_string_and_a_longer_word_are_no_notes() {
        let text = "//! Says what it is.\nlet a = \"TODO\"; // see TODOS\n";
        assert_eq!(unfinished(&file("crates/flow/src/a.rs", text)), Problems::new());
    }

    #[test]
    fn a_module_that_does_not_say_what_it_is_is_found() {
        assert_eq!(unfinished(&file("crates/flow/src/a.rs", "fn f() {}\n")).len(), 1);
        assert_eq!(unfinished(&file("crates/flow/tests/a.rs", "fn f() {}\n")).len(), 0);
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        let root = Path::new("/somewhere/crosspoint");
        for bad in ["see /home/alice/x", "\"/root/.cargo\"", "cd /somewhere/else"] {
            assert_eq!(machine_paths(&file("a.md", bad), root).len(), 1, "{bad}");
        }
        for good in ["$DIR/home/x", "crates/somewhere/else", "/usr/lib/x"] {
            assert_eq!(machine_paths(&file("a.md", good), root).len(), 0, "{good}");
        }
        assert_eq!(place_of(Path::new("/tmp/build/x")), Some("/tmp/build/x/".to_owned()));
    }

    #[test]
    fn a_missing_file_and_a_missing_entry_are_found() {
        let found = owed(&file("CHANGELOG.md", "# Changes\n\n## 0.0.9\n"), "0.1.0");
        assert!(found.contains(&"there is no README.md".to_owned()));
        assert!(found.contains(&"CHANGELOG.md does not hold: ## 0.1.0".to_owned()));
        assert!(!found.contains(&"there is no CHANGELOG.md".to_owned()));
    }
}
