//! The project itself, checked.

use tidy::architecture::{self, Crate, Invariant};
use tidy::tree::{self, File};
use tidy::{
    Problems, circles, components, leftovers, levels, limits, links, ranks, shell, tests_named, uses, wording,
};

fn files() -> Vec<File> {
    tree::read(testkit::root()).expect("the tree can be read")
}

fn document() -> (Vec<Crate>, Vec<Invariant>) {
    let text =
        std::fs::read_to_string(testkit::root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is there");
    (architecture::crates(&text).expect("its table of crates can be read"), architecture::invariants(&text))
}

#[track_caller]
fn none(problems: Problems) {
    assert!(problems.is_empty(), "\n  {}\n", problems.join("\n  "));
}

#[test]
fn crates_import_lower_ranks_only_and_are_the_ones_documented() {
    let packages = ranks::packages(testkit::root()).unwrap();
    none(ranks::check(&document().0, &packages));
}

#[test]
fn each_version_of_a_library_stands_in_the_workspace_alone() {
    none(ranks::versions(&files()));
}

#[test]
fn files_of_a_crate_import_each_other_one_way() {
    none(circles::check(&files(), limits::CIRCLES));
}

#[test]
fn components_of_the_daemon_import_each_other_as_documented() {
    let text = std::fs::read_to_string(testkit::root().join("ARCHITECTURE.md")).unwrap();
    none(components::check(&components::components(&text), &files()));
}

#[test]
fn crates_use_unsafe_io_and_clocks_only_as_documented() {
    none(uses::check(&document().0, &files()));
}

#[test]
fn every_invariant_names_tests_that_exist() {
    none(tests_named::check(&document().1, &files()));
}

#[test]
fn documents_and_picture_name_the_size_of_a_burst() {
    let read = |path: &str| std::fs::read_to_string(testkit::root().join(path)).unwrap();
    let source = read("crates/packet/src/lib.rs");
    let burst = source.split("const BURST: usize = ").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
    for (path, says) in [
        ("docs/images/packet-path.svg", format!("bursts of up to {burst}<")),
        ("ARCHITECTURE.md", format!("whole burst of up to {burst} packets")),
    ] {
        assert!(read(path).contains(&says), "{path} does not say: {says}");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    none(links::check(&files(), |path| testkit::root().join(path).exists()));
}

#[test]
fn blocks_of_commands_can_be_pasted() {
    let makefile = std::fs::read_to_string(testkit::root().join("Makefile")).unwrap();
    none(shell::check(&files(), &shell::targets(&makefile)));
}

#[test]
fn nothing_is_left_unfinished() {
    none(leftovers::unfinished(&files()));
}

#[test]
fn no_file_of_shipping_code_is_too_long() {
    none(limits::too_long(&files(), limits::TOO_LONG));
}

#[test]
fn no_line_of_prose_or_comment_is_too_wide() {
    none(limits::too_wide(&files(), limits::TOO_WIDE));
}

#[test]
fn no_message_says_that_a_thing_is_no_other_thing() {
    none(wording::is_no(&files()));
}

#[test]
fn no_path_of_one_machine_is_in_the_tree() {
    let root = testkit::root().canonicalize().unwrap();
    none(leftovers::machine_paths(&files(), &root));
}

#[test]
fn the_files_that_a_project_owes_are_there() {
    none(leftovers::owed(&files(), env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_guide_to_troubleshooting_explains_every_drop_reason() {
    let read = |path: &str| std::fs::read_to_string(testkit::root().join(path)).unwrap();
    let guide = read("docs/troubleshooting.md");
    // Rows of the list: `Name = "text",`.
    let source = read("crates/base/src/drop_reason.rs");
    let quoted =
        |line: &str| line.trim().strip_suffix("\",")?.split_once(" = \"").map(|(_, text)| text.to_owned());
    let reasons: Vec<String> = source.lines().filter_map(quoted).collect();
    assert!(reasons.len() > 20, "{reasons:?}");
    let missing = reasons.iter().filter(|reason| !guide.contains(&format!("`{reason}`")));
    none(missing.map(|reason| format!("docs/troubleshooting.md does not explain {reason}")).collect());
}

#[test]
fn the_guide_to_contributing_shows_the_example_that_is_run() {
    let read = |path: &str| std::fs::read_to_string(testkit::root().join(path)).unwrap();
    let example = read("crates/crosspoint/tests/e2e/example.rs");
    assert!(example.lines().count() <= 15, "a first test fits into fifteen lines");
    assert!(read("CONTRIBUTING.md").contains(&format!("```rust\n{example}```\n")), "they differ");
}

#[test]
fn at_info_and_above_daemons_log_what_open_vswitch_logs_and_what_an_operator_must_see() {
    let programs = ["/usr/lib/openvswitch-switch/ovs-vswitchd", "/usr/sbin/ovsdb-server"];
    let stock: String = programs.map(|path| levels::strings(&std::fs::read(path).expect(path))).concat();
    none(levels::check(&files(), &stock, levels::OWN));
}
