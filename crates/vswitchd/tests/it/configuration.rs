//! The keys of the database, in three places that must agree: Open vSwitch's manual page, `config::keys`, and
//! docs/configuration.md.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use vswitchd::config::keys;

/// Table, column, key.
type Key = (String, String, String);

/// Every `column : key` of the details of a table in ovs-vswitchd.conf.db(5).
fn manual_page() -> BTreeSet<Key> {
    let said = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().unwrap();
        assert!(output.status.success(), "{program} {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let path = said("man", &["-w", "ovs-vswitchd.conf.db"]);
    let text = said("zcat", &["-f", path.trim()]);
    let mut found = BTreeSet::new();
    let (mut table, mut in_details) = (String::new(), false);
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix(".SH ") {
            table = heading.trim_matches('"').strip_suffix(" TABLE").unwrap_or_default().to_string();
            in_details = false;
        } else if line.starts_with(".SS \"Details") {
            in_details = true;
        } else if in_details
            && !table.is_empty()
            && let Some(rest) = line.strip_prefix(".IP \"\\fB")
            && let Some((name, _)) = rest.split_once("\\fR:")
            && let Some((column, key)) = name.split_once(" : ")
        {
            let key =
                key.replace("\\-", "-").replace("\\[char46]", ".").replace("\\fB", "").replace("\\fR", "");
            found.insert((table.clone(), column.to_string(), key));
        }
    }
    found
}

/// The rows of the document: verdict and note by key. Keys with the same note share a row.
fn document() -> BTreeMap<Key, (String, String)> {
    let path = testkit::root().join("docs/configuration.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut rows = BTreeMap::new();
    let mut table = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            table = heading.to_string();
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", keys, verdict, note, ""] = cells[..] else { continue };
        // A key without a column is of the column of the key before it.
        let mut of_column = None;
        for key in keys.split(", ").map(|key| key.trim_matches('`')) {
            let (column, key) = key.split_once(':').map_or((of_column, key), |(c, key)| (Some(c), key));
            let Some(column) = column else { break };
            of_column = Some(column);
            let key = (table.clone(), column.to_string(), key.to_string());
            let before = rows.insert(key.clone(), (verdict.to_string(), note.to_string()));
            assert!(before.is_none(), "{key:?} has two rows");
        }
    }
    rows
}

#[test]
fn every_key_of_the_manual_page_has_a_row_and_a_verdict() {
    let page = manual_page();
    assert!(page.len() > 300, "the manual page is not read right: {} keys", page.len());
    let rows = document();
    let missing: Vec<_> = page.iter().filter(|k| !rows.contains_key(*k)).collect();
    assert!(missing.is_empty(), "docs/configuration.md lacks {missing:?}");
    let surplus: Vec<_> = rows.keys().filter(|k| !page.contains(*k)).collect();
    assert!(surplus.is_empty(), "docs/configuration.md has what the manual page has not: {surplus:?}");
    for (key, (verdict, note)) in rows {
        assert!(
            ["works", "refused", "no meaning", "later"].contains(&verdict.as_str()),
            "{key:?}: {verdict}"
        );
        assert!(!note.is_empty(), "{key:?} has no note");
    }
}

/// What tests name as keys: `"key"`, `key=` or `column:key`, in the files of `tests` directories and in what
/// follows `mod tests` elsewhere. Not here, and not where keys are only listed.
fn named_in_tests() -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    let mut left = vec![testkit::root().join("crates")];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let shown = path.to_string_lossy().into_owned();
        if !shown.ends_with(".rs") || shown.ends_with("vswitchd/tests/it/configuration.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let is_test = shown.contains("/tests/") || shown.ends_with("/tests.rs");
        let text = match text.find("\nmod tests {") {
            _ if is_test => &text[..],
            Some(start) => &text[start..],
            None => continue,
        };
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
        let mut rest = text;
        while let Some(start) = rest.find(is_part) {
            rest = &rest[start..];
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            if after.starts_with(['"', '=']) {
                named.insert(word.rsplit(':').next().unwrap_or_default().to_string());
            }
            if word.contains(':') {
                named.insert(word.to_string());
            }
            rest = after;
        }
    }
    named
}

#[test]
fn every_key_that_works_is_named_in_a_test() {
    let named = named_in_tests();
    assert!(named.len() > 1_000, "the tests are not read right: {} words", named.len());
    let is_named = |column: &str, key: &str| {
        // `process_NAME`, `packet-in-TYPE-queued`, `fake-bridge-*` stand for many.
        match ["NAME", "TYPE", "*"].iter().find_map(|wild| key.split_once(wild)) {
            Some((before, after)) => named.iter().any(|word| {
                word.len() > before.len() + after.len() && word.starts_with(before) && word.ends_with(after)
            }),
            None => named.contains(key) || named.contains(&format!("{column}:{key}")),
        }
    };
    let rows = document();
    let missing: Vec<&Key> = (rows.iter())
        .filter(|((_, column, key), (verdict, _))| verdict == "works" && !is_named(column, key))
        .map(|(key, _)| key)
        .collect();
    assert!(missing.is_empty(), "no test names {missing:#?}");
    assert!(!is_named("other_config", "no-test-has-this-key"));
}

#[test]
fn the_keys_that_are_not_complained_of_are_those_of_the_manual_page() {
    let all = keys::KEYS.iter().flat_map(|k| {
        k.keys.iter().map(|key| (k.table.to_string(), k.column.to_string(), (*key).to_string()))
    });
    assert_eq!(all.collect::<BTreeSet<_>>(), manual_page());
    assert!(keys::is_known("Bridge", "other_config", "hwaddr"));
    for (table, column, key) in keys::LATER_NAMES {
        assert!(keys::is_known(table, column, key) && !keys::is_known("Bridge", column, key));
    }
    // What tunes threads that poll for ever, or caches of a fixed size, is set by many and harms nobody.
    for key in ["pmd-sleep-max", "pmd-maxsleep", "tx-flush-interval", "emc-insert-inv-prob", "smc-enable"] {
        assert!(keys::is_known("Open_vSwitch", "other_config", key), "{key}");
    }
    assert!(!keys::is_known("Bridge", "other_config", "hwadr"));
}

#[test]
fn every_column_of_a_feature_that_is_not_there_has_a_row() {
    let path = testkit::root().join("docs/configuration.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.split("\n## ").find(|s| s.starts_with("Columns of features")).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let documented: Vec<(String, String)> = rows
        .flat_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            cells[1].split(", ").map(move |c| (cells[2].to_string(), c.trim_matches('`').to_string()))
        })
        .collect();
    let expected: Vec<_> =
        keys::ABSENT.iter().map(|(table, column, _)| (table.to_string(), column.to_string())).collect();
    assert_eq!(documented, expected);
    let schema = ovsdb::Schema::open_vswitch();
    for (table, column) in expected {
        let table = schema.table(schema.find(&table).unwrap());
        assert!(table.find(&column).is_some(), "{column}");
    }
}
