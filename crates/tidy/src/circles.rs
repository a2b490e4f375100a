//! Imports between the files of one crate: they point one way. Files that import each other, directly or in a
//! circle, can only be read, tested or moved as one.
//!
//! A file imports another when its code names something of it by a path: `crate::a::B`, `super::a::B`, `a::B`
//! of a module of its own. A name that a module merely re-exports counts for the file that it comes from, and
//! re-exporting it is no import. Tests do not count.
//!
//! Exceptions are files, and directories that end in `/`. Their list only shrinks: one that is in no circle
//! is a problem too.

use crate::Problems;
use crate::source::{is_word, split};
use crate::tree::File;
use std::collections::{BTreeMap, BTreeSet};

/// A module's path in its crate: `["stream", "tls"]`.
type Module = Vec<String>;

/// One file's code.
struct Unit<'a> {
    path: &'a str,
    module: Module,
    /// Every path in its code, and how it is used.
    paths: Vec<Path>,
}

/// A path as it is written, braces resolved.
struct Path {
    segments: Vec<String>,
    /// It stands in a `pub use`.
    is_export: bool,
    /// It stands in a `use`.
    is_use: bool,
}

/// Files in circles that are no exceptions, and exceptions that are in no circle.
pub fn check(files: &[File], exceptions: &[&str]) -> Problems {
    let mut names: Vec<&str> = files.iter().filter_map(File::crate_name).collect();
    names.dedup();
    let mut circles = Vec::new();
    for name in names {
        circles.extend(circles_of(&files_of(files, name)));
    }
    let mut problems = Problems::new();
    let is_excepted =
        |path: &str| exceptions.iter().any(|e| *e == path || e.ends_with('/') && path.starts_with(e));
    for circle in &circles {
        if circle.iter().any(|path| !is_excepted(path)) {
            problems.push(format!("these files import each other in a circle: {}", circle.join(", ")));
        }
    }
    let round: BTreeSet<&str> = circles.into_iter().flatten().collect();
    for path in exceptions.iter().filter(|e| !round.iter().any(|path| path.starts_with(*e))) {
        problems.push(format!("{path} is in no circle any more: remove it from CIRCLES in crates/tidy"));
    }
    problems
}

/// What each file of a crate imports of the others.
pub fn imports_of_crate<'a>(files: &'a [File], name: &str) -> Vec<(&'a str, Vec<&'a str>)> {
    let (units, edges) = graph(&files_of(files, name));
    let paths = |to: BTreeSet<usize>| to.into_iter().map(|n| units[n].path).collect();
    units.iter().zip(edges).map(|(unit, to)| (unit.path, paths(to))).collect()
}

/// The files of a crate that ship.
fn files_of<'a>(files: &'a [File], name: &str) -> Vec<&'a File> {
    let is_of_crate = |file: &&File| {
        file.crate_name() == Some(name)
            && file.ends_with(".rs")
            && file.path.contains("/src/")
            && !file.path.contains("/src/bin/")
            && !file.is_test()
    };
    files.iter().filter(is_of_crate).collect()
}

/// The files with what they name, and for each the numbers of those that it imports.
fn graph<'a>(files: &[&'a File]) -> (Vec<Unit<'a>>, Vec<BTreeSet<usize>>) {
    let units: Vec<Unit<'a>> = files.iter().map(|file| unit(file)).collect();
    let by_module: BTreeMap<&[String], usize> =
        units.iter().enumerate().map(|(n, unit)| (&unit.module[..], n)).collect();
    let edges = (0..units.len()).map(|n| imports(n, &units, &by_module)).collect();
    (units, edges)
}

fn circles_of<'a>(files: &[&'a File]) -> Vec<Vec<&'a str>> {
    let (units, edges) = graph(files);
    let reach: Vec<BTreeSet<usize>> = (0..units.len()).map(|n| reachable(n, &edges)).collect();
    let mut seen = BTreeSet::new();
    let mut circles = Vec::new();
    for n in 0..units.len() {
        let circle: Vec<usize> =
            (0..units.len()).filter(|m| reach[n].contains(m) && reach[*m].contains(&n)).collect();
        if circle.len() > 1 && seen.insert(circle[0]) {
            circles.push(circle.iter().map(|m| units[*m].path).collect());
        }
    }
    circles
}

fn reachable(from: usize, edges: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<usize> = edges[from].iter().copied().collect();
    while let Some(next) = left.pop() {
        if reached.insert(next) {
            left.extend(&edges[next]);
        }
    }
    reached
}

/// The files that a file imports.
fn imports(of: usize, units: &[Unit], by_module: &BTreeMap<&[String], usize>) -> BTreeSet<usize> {
    let unit = &units[of];
    let paths = unit.paths.iter().filter(|path| !path.is_export);
    let found = paths.filter_map(|path| {
        let at = absolute(&unit.module, &path.segments, path.is_use, by_module)?;
        origin(&at, units, by_module, 0)
    });
    found.filter(|to| *to != of).collect()
}

/// A path from the root of the crate; `None` where it leads elsewhere.
fn absolute(
    module: &[String],
    segments: &[String],
    is_use: bool,
    by_module: &BTreeMap<&[String], usize>,
) -> Option<Module> {
    let (first, rest) = segments.split_first()?;
    let mut at: Module = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module.split_last()?.1.to_vec(),
        child => {
            let at: Module = module.iter().cloned().chain([child.to_owned()]).collect();
            // A name by itself may be anything; a path that begins with a module of its own is that.
            let is_child = by_module.contains_key(&at[..]) && (is_use || !rest.is_empty());
            return is_child.then(|| at.into_iter().chain(rest.iter().cloned()).collect());
        }
    };
    for segment in rest {
        if segment == "super" {
            at.pop()?;
        } else {
            at.push(segment.clone());
        }
    }
    Some(at)
}

/// The file that an item comes from: that of its module, or the one that the module re-exports it from.
fn origin(
    at: &[String],
    units: &[Unit],
    by_module: &BTreeMap<&[String], usize>,
    depth: usize,
) -> Option<usize> {
    let split = (0..=at.len()).rev().find(|end| by_module.contains_key(&at[..*end]))?;
    let found = by_module[&at[..split]];
    let Some(name) = at.get(split).filter(|_| depth < 8) else { return Some(found) };
    let unit = &units[found];
    let export = unit
        .paths
        .iter()
        .filter(|path| path.is_export)
        .find(|path| path.segments.last().is_some_and(|last| last == name));
    let further = export.and_then(|path| {
        let target = absolute(&unit.module, &path.segments, true, by_module)?;
        origin(&target, units, by_module, depth + 1)
    });
    further.or(Some(found))
}

fn unit(file: &File) -> Unit<'_> {
    let inside = file.path.split_once("/src/").map_or("", |(_, inside)| inside);
    let mut module: Module = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod" || last == "lib" || last == "main") {
        module.pop();
    }
    // `x.rs` in a folder `x` is no module of its own where the crate calls it by `#[path]`.
    Unit { path: &file.path, module, paths: paths(&shipping(&split(&file.text).code)) }
}

/// The code without its tests.
fn shipping(code: &str) -> String {
    let mut kept = String::new();
    let mut lines = code.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let next = lines.peek().copied().unwrap_or_default();
            let is_module = next.starts_with("mod ") || next.starts_with("pub(super) mod ");
            if is_module && next.ends_with('{') {
                break;
            }
            lines.next();
            continue;
        }
        kept += line;
        kept.push('\n');
    }
    kept
}

/// All paths of two segments and more, and those of `use`.
fn paths(code: &str) -> Vec<Path> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = next_path(&code[from..]).map(|at| from + at) {
        let before = code[..at].trim_end();
        let is_use = before.ends_with("use") && !before[..before.len() - 3].ends_with(is_word);
        let statement = before.trim_end_matches("use").trim_end();
        let visible = statement.rsplit('\n').next().unwrap_or_default().trim_start();
        let is_export = is_use && visible.starts_with("pub") && !visible.contains(';');
        let (taken, paths) = tree(&code[at..]);
        for segments in paths {
            if is_use || segments.len() > 1 {
                found.push(Path { segments, is_export, is_use });
            }
        }
        from = at + taken.max(1);
    }
    found
}

/// Where the next identifier begins that another does not continue.
fn next_path(code: &str) -> Option<usize> {
    let mut follows = false;
    for (at, c) in code.char_indices() {
        if is_word(c) && !follows && !c.is_ascii_digit() {
            return Some(at);
        }
        follows = is_word(c) || c == '.';
    }
    None
}

/// A path with its braces, as all the paths that it stands for, and how many bytes it takes.
fn tree(code: &str) -> (usize, Vec<Vec<String>>) {
    let mut prefix: Vec<String> = Vec::new();
    let mut at = 0;
    loop {
        let word: String = code[at..].chars().take_while(|c| is_word(*c)).collect();
        if word.is_empty() {
            break;
        }
        at += word.len();
        prefix.push(word);
        if !code[at..].starts_with("::") {
            break;
        }
        at += 2;
        if code[at..].starts_with('{') {
            let mut all = Vec::new();
            at += 1;
            loop {
                at += code[at..].len() - code[at..].trim_start_matches([' ', '\n', ',']).len();
                if code[at..].is_empty() || code[at..].starts_with('}') {
                    return (at + 1, all);
                }
                let (taken, inner) = tree(&code[at..]);
                all.extend(inner.into_iter().map(|path| [&prefix[..], &path].concat()));
                // What is neither a path nor the end is passed over: `as name`, `*`.
                at += taken.max(1);
                if code[at..].starts_with(" as ") {
                    at += 4 + code[at + 4..].chars().take_while(|c| is_word(*c)).count();
                }
            }
        }
    }
    // `self` in braces is the module itself.
    if prefix.len() > 1 && prefix.last().is_some_and(|last| last == "self") {
        prefix.pop();
    }
    (at, vec![prefix])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)], exceptions: &[&str]) -> Problems {
        let files: Vec<File> =
            files.iter().map(|(path, text)| File::new(&format!("crates/x/src/{path}"), text)).collect();
        check(&files, exceptions)
    }

    #[test]
    fn files_that_import_each_other_are_found_however_they_name_each_other() {
        for (a, b) in [
            ("use crate::b::B;", "use crate::a::A;"),
            ("use super::b::B;", "fn f() { crate::a::f() }"),
            ("use crate::{b::{self, B}};", "use super::{c, a::A};"),
        ] {
            let files = [("lib.rs", "mod a;\nmod b;\nmod c;"), ("a.rs", a), ("b.rs", b), ("c.rs", "")];
            let found = problems(&files, &[]);
            assert!(
                found.len() == 1 && found[0].contains("src/a.rs, crates/x/src/b.rs"),
                "{a} {b}: {found:?}"
            );
            let listed = ["crates/x/src/a.rs", "crates/x/src/b.rs"];
            assert_eq!(problems(&files, &listed), Problems::new());
            let unneeded = [listed[0], listed[1], "crates/x/src/c.rs"];
            assert_eq!(problems(&files, &unneeded).len(), 1);
        }
    }

    #[test]
    fn one_way_is_no_circle_and_neither_is_what_is_re_exported_or_tested() {
        for files in [
            [("lib.rs", "mod a;\nmod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "// crate::a::A")],
            [
                ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B;"),
                ("a.rs", "use crate::B;"),
                ("b.rs", ""),
            ],
            [
                ("lib.rs", "mod a;\nmod b;"),
                ("a.rs", "use crate::b;"),
                ("b.rs", "#[cfg(test)]\npub(super) mod tests {\n    use crate::a;\n}"),
            ],
        ] {
            assert_eq!(problems(&files, &[]), Problems::new());
        }
        let parent = [("a/mod.rs", "mod b;\nfn f() { b::f() }\npub struct A;"), ("a/b.rs", "use super::A;")];
        assert_eq!(problems(&parent, &[]).len(), 1);
    }
}
