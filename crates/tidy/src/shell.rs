//! Blocks of shell commands in documents: every line of one is a command that a reader can paste. A block
//! that was wrapped as if it were prose is not, and neither is one whose comment swallowed a command.
//!
//! A block is one of shell if it is fenced as `sh`, or if it is indented and its first word is a command. In
//! README.md every indented block is.

use crate::Problems;
use crate::tree::File;

/// What a line may begin with. A new command goes here; a word of prose never does.
const COMMANDS: &[&str] = &[
    "/usr/share/openvswitch/scripts/ovs-ctl",
    "cat",
    "crosspoint",
    "ethtool",
    "export",
    "if",
    "install",
    "ip",
    "kill",
    "ln",
    "make",
    "mkdir",
    "nft",
    "ovn-controller",
    "ovn-nbctl",
    "ovn-northd",
    "ovs-appctl",
    "ovs-ofctl",
    "ovs-pki",
    "ovs-testcontroller",
    "ovs-vsctl",
    "ovs-vswitchd",
    "ovsdb-client",
    "ovsdb-server",
    "ovsdb-tool",
    "qemu-system-x86_64",
    "scripts/fuzz",
    "sed",
    "target/release/crosspoint",
    "wait",
];

/// Words that begin and end compound commands.
const KEYWORDS: &[&str] = &["for", "done", "if", "fi", "while"];

/// Checks the shell blocks of all documents. `targets` are those of the Makefile.
pub fn check(files: &[File], targets: &[&str]) -> Problems {
    let mut problems = Problems::new();
    for file in files.iter().filter(|file| file.ends_with(".md")) {
        for block in blocks(file) {
            let mut continues = false;
            for (line, text) in block {
                let fault = if continues { None } else { fault(text.trim(), targets) };
                if let Some(fault) = fault {
                    problems.push(format!("{}:{line}: in a block of commands, {fault}", file.path));
                }
                continues = text.ends_with('\\');
            }
        }
    }
    problems
}

/// What is wrong with a line that begins a command.
fn fault(line: &str, targets: &[&str]) -> Option<String> {
    let first = line.split_whitespace().next()?;
    let is_assignment = first.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    });
    if !(is_assignment || COMMANDS.contains(&first) || KEYWORDS.contains(&first)) {
        return Some(format!("\"{first}\" is not a known command (crates/tidy/src/shell.rs lists them)"));
    }
    let (command, comment) = line.split_once(" # ").unwrap_or((line, ""));
    if comment.contains(" # ") {
        return Some("a comment holds another command".to_owned());
    }
    if first == "make" {
        let unknown =
            command.split_whitespace().skip(1).find(|word| !targets.contains(word) && !word.contains('='));
        return unknown.map(|word| format!("\"{word}\" is not a target of the Makefile"));
    }
    None
}

/// The blocks of shell commands of a document: lines with their numbers, indentation of the block removed.
fn blocks(file: &File) -> Vec<Vec<(usize, &str)>> {
    let mut blocks = Vec::new();
    let mut block: Vec<(usize, &str)> = Vec::new();
    // The language of the fence that is open.
    let mut fence: Option<&str> = None;
    let is_shell = |block: &[(usize, &str)]| {
        let first = block.first().and_then(|(_, line)| line.split_whitespace().next());
        first.is_some_and(|word| file.path == "README.md" || COMMANDS.contains(&word))
    };
    for (idx, line) in file.text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            match fence.take() {
                None => fence = Some(language),
                Some("sh") => blocks.push(std::mem::take(&mut block)),
                Some(_) => block.clear(),
            }
        } else if fence.is_some() {
            block.push((idx + 1, line));
        } else if let Some(line) = line.strip_prefix("    ") {
            block.push((idx + 1, line));
        } else if !block.is_empty() {
            let ended = std::mem::take(&mut block);
            if is_shell(&ended) {
                blocks.push(ended);
            }
        }
    }
    if is_shell(&block) {
        blocks.push(block);
    }
    blocks
}

/// The targets that a Makefile declares.
pub fn targets(makefile: &str) -> Vec<&str> {
    makefile.lines().filter_map(|line| line.strip_prefix(".PHONY:")).flat_map(str::split_whitespace).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Problems {
        check(&[File::new(path, text)], &["demo", "test", "install"])
    }

    #[test]
    fn commands_that_were_wrapped_like_prose_are_found() {
        let wrapped = "Try:\n\n    make demo     # builds; with live\n    figures make test     # builds\n";
        assert_eq!(
            problems("README.md", wrapped),
            [
                "README.md:4: in a block of commands, \"figures\" is not a known command (crates/tidy/src/shell.rs lists them)"
            ]
        );
        let swallowed = "    make demo     # builds make test     # tests\n";
        assert_eq!(
            problems("a.md", swallowed),
            ["a.md:1: in a block of commands, a comment holds another command"]
        );
        assert_eq!(problems("README.md", "Text.\n\n    words in a block\n").len(), 1);
        assert_eq!(
            problems("a.md", "    make tests\n"),
            ["a.md:1: in a block of commands, \"tests\" is not a target of the Makefile"]
        );
    }

    #[test]
    fn commands_and_other_blocks_pass() {
        for text in [
            "    make demo     # builds\n    make install  # PREFIX=/usr/local\n",
            "```sh\nfor vm in a b; do\n    ip link \\\n        up\ndone\nPATH=/x:$PATH\n```\n",
            "```text\nwords of a program\n```\n",
            "    <domain type='kvm'>\n      <name>vm1</name>\n",
        ] {
            assert_eq!(problems("a.md", text), Problems::new());
        }
        assert_eq!(problems("a.md", "```sh\nwords of a program\n```\n").len(), 1);
    }

    #[test]
    fn targets_are_those_declared() {
        assert_eq!(targets(".PHONY: demo test\ndemo:\n\tx\n.PHONY: lint\n"), ["demo", "test", "lint"]);
    }
}
