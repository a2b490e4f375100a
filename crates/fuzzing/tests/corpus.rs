//! Invariant: bytes from outside never panic or hang. Every fuzz target is replayed on its corpus here.

use std::collections::BTreeSet;
use std::path::PathBuf;

use fuzzing::TARGETS;

fn fuzz_directory() -> PathBuf {
    testkit::root().join("fuzz")
}

#[test]
fn the_corpus_of_every_target_replays_without_a_panic_or_a_hang() {
    for target in TARGETS {
        let corpus = fuzz_directory().join("corpus").join(target.name);
        match testkit::replay(&corpus, target.run) {
            Ok(done) => println!("{}: {} inputs, {} runs", target.name, done.inputs, done.runs),
            Err(error) => panic!("{}: {error}", target.name),
        }
    }
}

#[test]
fn table_binaries_and_corpora_name_the_same_targets() {
    let table: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(table.len(), TARGETS.len(), "a name is there twice");

    let manifest = std::fs::read_to_string(fuzz_directory().join("Cargo.toml")).unwrap();
    assert_eq!(binaries(&manifest), table, "[[bin]] of fuzz/Cargo.toml");

    let corpora = std::fs::read_dir(fuzz_directory().join("corpus"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect::<BTreeSet<_>>();
    assert_eq!(corpora, table, "directories of fuzz/corpus");
}

/// The names of the `[[bin]]` sections of a manifest.
fn binaries(manifest: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut in_binary = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            in_binary = line == "[[bin]]";
        } else if in_binary && let Some(value) = line.strip_prefix("name = ") {
            names.insert(value.trim_matches('"').to_owned());
        }
    }
    names
}

#[test]
fn binaries_are_read_from_their_sections_alone() {
    let manifest = "[package]\nname = \"fuzz\"\n\n[[bin]]\nname = \"flow_extract\"\npath = \"x.rs\"\n";
    assert_eq!(binaries(manifest), BTreeSet::from(["flow_extract".to_owned()]));
}
