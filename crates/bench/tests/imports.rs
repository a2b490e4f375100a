//! The files of this crate import one way: a file that another one needs does not need that one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// `measure/p2p.rs` is `measure::p2p`, `suite/mod.rs` is `suite`.
fn module(src: &Path, file: &Path) -> String {
    let name = file.strip_prefix(src).unwrap().with_extension("").to_string_lossy().replace('/', "::");
    name.strip_suffix("::mod").unwrap_or(&name).to_string()
}

/// What a file imports: the longest module of each path that begins with `crate` or `super`.
fn imports(text: &str, own: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let parent = own.rsplit_once("::").map_or("", |(parent, _)| parent);
    let text = text.split("#[cfg(test)]").next().unwrap();
    let mut found = BTreeSet::new();
    // Braces are opened up, so that each path stands on its own.
    for statement in text.split("use ").skip(1).map(|s| s.split(';').next().unwrap()) {
        let mut names = Vec::new();
        open(&statement.split_whitespace().collect::<String>(), "", &mut names);
        for name in names {
            let path = match (name.strip_prefix("crate::"), name.strip_prefix("super::")) {
                (Some(path), _) => path.to_string(),
                (_, Some(path)) => format!("{parent}::{path}"),
                _ => continue,
            };
            add(&path, own, modules, &mut found);
        }
    }
    for path in text.split("crate::").skip(1) {
        let end = path.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(path.len());
        add(&path[..end], own, modules, &mut found);
    }
    found
}

fn add(path: &str, own: &str, modules: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    let parts: Vec<&str> = path.split("::").filter(|p| !p.is_empty()).collect();
    let longest = (1..=parts.len()).rev().map(|n| parts[..n].join("::")).find(|p| modules.contains(p));
    found.extend(longest.filter(|module| module != own));
}

fn open(text: &str, prefix: &str, names: &mut Vec<String>) {
    let Some((before, rest)) = text.split_once('{') else {
        names.push(format!("{prefix}{text}"));
        return;
    };
    let inner = rest.strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                open(&inner[start..at], &format!("{prefix}{before}"), names);
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// A cycle, if there is one.
fn cycle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn visit(
        at: &str,
        graph: &BTreeMap<String, BTreeSet<String>>,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(start) = way.iter().position(|m| m == at) {
            return Some(way[start..].to_vec());
        }
        if !done.insert(at.to_string()) {
            return None;
        }
        way.push(at.to_string());
        let found = graph.get(at).into_iter().flatten().find_map(|next| visit(next, graph, way, done));
        way.pop();
        found
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|start| visit(start, graph, &mut Vec::new(), &mut done))
}

#[test]
fn files_import_one_way() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    files(&src, &mut paths);
    let modules: BTreeSet<String> = paths.iter().map(|p| module(&src, p)).collect();
    let graph: BTreeMap<String, BTreeSet<String>> = paths
        .iter()
        .map(|path| {
            let own = module(&src, path);
            let found = imports(&fs::read_to_string(path).unwrap(), &own, &modules);
            (own, found)
        })
        .collect();
    assert!(graph["run"].contains("result::store"), "{:?}", graph["run"]);
    assert_eq!(cycle(&graph), None);
}

#[test]
fn a_cycle_is_found() {
    let modules: BTreeSet<String> = ["a", "b", "b::c"].map(String::from).into();
    let graph: BTreeMap<String, BTreeSet<String>> =
        [("a", "use crate::b::{self, c::Thing};"), ("b", "fn f() {}"), ("b::c", "fn f() { crate::a::g() }")]
            .map(|(own, text)| (own.to_string(), imports(text, own, &modules)))
            .into();
    let mut found = cycle(&graph).unwrap();
    found.sort();
    assert_eq!(found, ["a", "b::c"]);
}
