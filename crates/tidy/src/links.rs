//! Links between documents: every relative link of a Markdown file leads to a file of the tree, and every
//! anchor to a heading. Links to the web are not followed: a test does not depend on the network.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use crate::Problems;
use crate::tree::File;

/// Checks the links of all Markdown files. `exists` tells whether a path from the root is there, so that
/// directories and files that are no text can be linked to.
pub fn check(files: &[File], exists: impl Fn(&str) -> bool) -> Problems {
    let mut problems = Problems::new();
    for file in files.iter().filter(|file| file.ends_with(".md")) {
        for (line, target) in targets(&file.text) {
            if let Err(what) = follow(file, &target, files, &exists) {
                problems.push(format!("{}:{line}: the link {target} {what}", file.path));
            }
        }
    }
    problems
}

fn follow(
    from: &File,
    target: &str,
    files: &[File],
    exists: &impl Fn(&str) -> bool,
) -> Result<(), &'static str> {
    if ["https://", "http://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
        return Ok(());
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let path = if path.is_empty() {
        from.path.clone()
    } else {
        resolve(&from.path, path).ok_or("leads out of the tree")?
    };
    if !exists(&path) {
        return Err("leads nowhere");
    }
    let Some(anchor) = anchor else { return Ok(()) };
    let document =
        files.iter().find(|file| file.path == path).ok_or("names an anchor in what is not text")?;
    if anchors(&document.text).contains(anchor) { Ok(()) } else { Err("names a heading that is not there") }
}

/// `link` as seen from the file `from`, as a path from the root; `None` where it leads out of it.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for component in Path::new(link).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            Component::ParentDir => drop(parts.pop()?),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

/// The lines outside of fenced and indented code, with code spans blanked.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        if fenced || line.starts_with("    ") && !line.trim_start().starts_with(['-', '*', '[']) {
            return None;
        }
        let spans: Vec<&str> = line.split('`').collect();
        // An odd number of backticks leaves a span open: take the rest as prose.
        let closed = spans.len() % 2 == 1;
        let mut kept = String::new();
        for (at, span) in spans.iter().enumerate() {
            kept.push_str(if at % 2 == 1 && closed { "code" } else { span });
        }
        Some((index + 1, kept))
    })
}

/// The targets of inline links and of reference definitions, with their lines.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    for (number, line) in prose(text) {
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else { break };
            let target = target.split_whitespace().next().unwrap_or("");
            targets.push((number, target.to_owned()));
            rest = after;
        }
        if line.starts_with('[')
            && let Some((_, target)) = line.split_once("]: ")
        {
            targets.push((number, target.trim().to_owned()));
        }
    }
    targets
}

/// The anchors that headings get: lower case, blanks as hyphens, punctuation gone, repeats numbered.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced || !line.starts_with('#') {
            continue;
        }
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let slug: String = heading
            .chars()
            .filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let mut anchor = slug.clone();
        let mut repeat = 0;
        while !anchors.insert(anchor) {
            repeat += 1;
            anchor = format!("{slug}-{repeat}");
        }
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Problems {
        let files = [
            File::new("docs/a.md", text),
            File::new("README.md", "# The `main` thing\n\n## Twice\n## Twice\n"),
        ];
        let there = ["docs/a.md", "README.md", "docs", "docs/picture.png"];
        check(&files, |path| there.contains(&path))
    }

    #[test]
    fn good_links_pass() {
        let good = "# Here\n[up](../README.md) [head](../README.md#the-main-thing) [me](#here) [dir](../docs)\n\
                    [web](https://example.org/nothing) ![p](picture.png \"title\") [two](../README.md#twice-1)\n";
        assert_eq!(problems(good), Problems::new());
    }

    #[test]
    fn dead_links_anchors_and_ways_out_are_found() {
        for bad in [
            "[x](gone.md)",
            "[x](../README.md#gone)",
            "[x](#gone)",
            "[x](../../etc)",
            "[x](/README.md)",
            "[x]: gone.md",
        ] {
            assert_eq!(problems(&format!("# Here\nfine\n{bad}\n")).len(), 1, "{bad}");
        }
        assert!(problems("a\n[x](gone.md)\n")[0].starts_with("docs/a.md:2: the link gone.md leads nowhere"));
    }

    #[test]
    fn code_is_not_searched_for_links() {
        assert_eq!(problems("```\n[x](gone.md)\n```\n`[x](gone.md)`\n    [[x](gone.md)\n").len(), 1);
        assert_eq!(problems("```\n[x](gone.md)\n```\n`[x](gone.md)`\n    a [x](gone.md)\n").len(), 0);
    }
}
