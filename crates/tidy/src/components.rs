//! The components of the daemon: the table in ARCHITECTURE.md says which files each consists of and which
//! other components it imports, and the tree has to agree.
//!
//! The table begins with the columns component, files and imports. Files are code spans, relative to
//! `crates/vswitchd/src/`; one that ends in `/` stands for a directory, and the longest that fits counts.
//! Imports are names of components, `all`, or `none`.

use crate::Problems;
use crate::circles;
use crate::tree::File;
use std::collections::BTreeSet;

/// Where the daemon's files are.
const ROOT: &str = "crates/vswitchd/src/";

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Component {
    name: String,
    files: Vec<String>,
    /// `None`: all.
    imports: Option<Vec<String>>,
}

/// The rows of the table.
pub fn components(text: &str) -> Vec<Component> {
    let rows = text.lines().skip_while(|line| !line.starts_with("| component | files | imports |")).skip(2);
    let row = |line: &str| {
        let mut cells = line.trim().trim_matches('|').split('|').map(str::trim);
        let name = cells.next()?.to_owned();
        let files = cells.next()?.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let imports = match cells.next()? {
            "all" => None,
            "none" => Some(Vec::new()),
            names => Some(names.split(',').map(|name| name.trim().to_owned()).collect()),
        };
        Some(Component { name, files, imports })
    };
    rows.take_while(|line| line.starts_with('|')).filter_map(row).collect()
}

/// Files outside any component, imports that the table does not have, and what the table has in vain.
pub fn check(components: &[Component], files: &[File]) -> Problems {
    let mut problems = Problems::new();
    if components.is_empty() {
        problems.push("ARCHITECTURE.md has no table of the daemon's components".into());
    }
    let of = |path: &str| {
        let inside = path.strip_prefix(ROOT)?;
        let fits = |file: &&String| **file == inside || file.ends_with('/') && inside.starts_with(&***file);
        let all =
            components.iter().flat_map(|c| c.files.iter().filter(fits).map(move |file| (file.len(), c)));
        all.max_by_key(|(length, _)| *length).map(|(_, component)| component)
    };
    let edges = circles::imports_of_crate(files, "vswitchd");
    let mut used = BTreeSet::new();
    let mut inhabited = BTreeSet::new();
    for (path, imports) in &edges {
        let Some(component) = of(path) else {
            problems.push(format!("{path} is of no component: add it to the table in ARCHITECTURE.md"));
            continue;
        };
        let inside = &path[ROOT.len()..];
        inhabited.extend(component.files.iter().filter(|file| inside.starts_with(file.as_str())));
        for import in imports {
            let Some(other) = of(import).filter(|other| other.name != component.name) else { continue };
            used.insert((&component.name, &other.name));
            if component.imports.as_ref().is_some_and(|allowed| !allowed.contains(&other.name)) {
                let (from, to) = (&component.name, &other.name);
                problems.push(format!("{path} imports {import}: {from} does not import {to}"));
            }
        }
    }
    for component in components {
        for file in component.files.iter().filter(|file| !inhabited.contains(file)) {
            problems.push(format!("{}: there is no {ROOT}{file}", component.name));
        }
        for import in component.imports.iter().flatten() {
            if !used.contains(&(&component.name, import)) {
                problems.push(format!("{} imports nothing of {import}: take it off", component.name));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
| component | files | imports | does |
|---|---|---|---|
| low | `low.rs` | none | little |
| high | `high/` | low | more |
| top | `high/top.rs`, `lib.rs` | all | all |

";

    fn problems(files: &[(&str, &str)]) -> Problems {
        let files: Vec<File> =
            files.iter().map(|(path, text)| File::new(&format!("{ROOT}{path}"), text)).collect();
        check(&components(TABLE), &files)
    }

    const GOOD: [(&str, &str); 4] = [
        ("lib.rs", "mod high;\nmod low;"),
        ("low.rs", "pub struct Low;"),
        ("high/mod.rs", "mod top;\nuse crate::low::Low;"),
        ("high/top.rs", "use crate::low::Low;"),
    ];

    #[test]
    fn files_outside_imports_against_the_arrows_and_rows_in_vain_are_found() {
        assert_eq!(problems(&GOOD), Problems::new());
        let with = |path: &'static str, text: &'static str| {
            let kept = GOOD.into_iter().filter(|(other, _)| *other != path);
            problems(&kept.chain([(path, text)]).collect::<Vec<_>>())
        };
        let found = with("stray.rs", "");
        assert!(found.len() == 1 && found[0].contains("stray.rs is of no component"), "{found:?}");
        let found = with("low.rs", "use crate::high::High;");
        assert!(found.len() == 1 && found[0].contains("low does not import high"), "{found:?}");
        let found = with("high/mod.rs", "mod top;");
        assert!(found.len() == 1 && found[0].contains("high imports nothing of low"), "{found:?}");
        let found = problems(&GOOD[..3]);
        assert!(found.len() == 1 && found[0].contains("there is no"), "{found:?}");
        assert_eq!(check(&[], &[]).len(), 1, "no table");
    }
}
