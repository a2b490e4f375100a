//! docs/ports.md has the table of drivers.

use ports::{DRIVERS, Driver, KeyRow, OptionRow, Values};

/// The values of an option as the document has them.
fn values(row: &OptionRow) -> String {
    let code = |words: &[&str]| words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", ");
    match row.values {
        Values::Flag => code(&["true", "false"]),
        Values::OneOf(words) => code(words),
        other => other.to_string(),
    }
}

fn options(rows: &[OptionRow]) -> String {
    let mut table = "| option | values | default | changes | meaning |\n|---|---|---|---|---|\n".to_string();
    for row in rows {
        let changes = if row.is_live { "at once" } else { "reopen the port" };
        let values = values(row);
        table += &format!("| `{}` | {values} | {} | {changes} | {} |\n", row.name, row.default, row.meaning);
    }
    table
}

fn keys(rows: &[KeyRow]) -> String {
    let rows = rows.iter().map(|row| format!("| `{}` | {} |\n", row.name, row.meaning));
    ["| key | meaning |\n|---|---|\n".to_string()].into_iter().chain(rows).collect()
}

fn types() -> String {
    let row = |d: &&Driver| {
        let aliases = d.aliases.iter().filter(|alias| !alias.is_empty());
        let aliases: String = aliases.map(|alias| format!(", `{alias}`")).collect();
        format!("| [`{}`](#{}){aliases} | {} | {} |\n", d.kind, d.section, d.other_end, d.needs)
    };
    let rows = DRIVERS.iter().map(row);
    ["| type | other end | needs |\n|---|---|---|\n".to_string()].into_iter().chain(rows).collect()
}

/// The table that belongs between the markers of that name.
fn table(name: &str) -> Option<String> {
    if name == "types" {
        return Some(types());
    }
    let (what, kind) = name.split_once(" of ")?;
    let driver = ports::driver(kind)?;
    match what {
        "options" => Some(options(driver.options)),
        "status" => Some(keys(driver.status)),
        "statistics" => Some(keys(driver.statistics)),
        _ => None,
    }
}

#[test]
fn the_document_has_the_table_of_drivers() {
    let path = testkit::root().join("docs/ports.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let mut made = String::new();
    let mut rest = document.as_str();
    let mut names = Vec::new();
    while let Some((before, after)) = rest.split_once(": begin -->\n") {
        let (_, name) = before.rsplit_once("<!-- ").expect("a marker begins a comment");
        let end = format!("<!-- {name}: end -->");
        let at = after.find(&end).unwrap_or_else(|| panic!("{name} has no end"));
        let table = table(name).unwrap_or_else(|| panic!("there is no table of {name}"));
        made += &format!("{before}: begin -->\n{table}{end}");
        rest = &after[at + end.len()..];
        names.push(name.to_string());
    }
    made += rest;
    for driver in DRIVERS {
        let mut same = DRIVERS.iter().filter(|other| other.options == driver.options);
        let has_options = same.any(|other| names.contains(&format!("options of {}", other.kind)));
        assert!(has_options, "{}: no options", driver.kind);
        for (what, rows) in [("status", driver.status), ("statistics", driver.statistics)] {
            let is_there = |of: &&Driver| names.contains(&format!("{what} of {}", of.kind));
            // A row that another type shares needs no table of its own.
            let shown =
                DRIVERS.iter().filter(|of| is_there(of)).map(|of| table(&format!("{what} of {}", of.kind)));
            let has_table = rows.is_empty() || shown.flatten().any(|shown| shown == keys(rows));
            let marks = ["begin", "end"].map(|end| format!("`<!-- {what} of {}: {end} -->`", driver.kind));
            assert!(
                has_table,
                "docs/ports.md shows the {what} of {} nowhere: add the lines {} to its section, and run this \
                 again with UPDATE_DOCS=1",
                driver.kind,
                marks.join(" and ")
            );
        }
        let heading = document.lines().filter_map(|line| line.strip_prefix("## "));
        let has_section = |text: &str| text.replace(' ', "-") == driver.section;
        assert!(heading.into_iter().any(has_section), "{}: no section", driver.kind);
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, made).unwrap();
        return;
    }
    assert_eq!(document, made, "run this test with UPDATE_DOCS=1 to renew docs/ports.md");
}

/// Options with which [`opened`] opens ports. Each port shows all keys of its type's status but those of
/// [`LATER`].
const OPENINGS: &[(&str, &[(&str, &str)])] = &[
    ("null", &[("size", "64")]),
    ("dummy", &[("pstream", "punix:DIR/cable")]),
    ("dpdkvhostuser", &[("vhost-sock-dir", "DIR")]),
    ("dpdkvhostuserclient", &[("vhost-server-path", "DIR/vm")]),
    ("pcap", &[("rx_file", "DIR/in.pcap"), ("tx_file", "DIR/out.pcap")]),
    ("tap", &[]),
    ("internal", &[]),
];

/// Keys that appear with a guest, when a device is renamed, or with an option that excludes another.
const LATER: &[&str] =
    &["features", "num_of_vrings", "vring_N_size", "numa", "guest_mtu", "renamed_to", "stream"];

/// A port opened as in [`OPENINGS`], with its files in `dir`.
fn opened(dir: &std::path::Path, kind: &str, options: &[(&str, &str)]) -> Box<dyn packet::Port> {
    let pool = packet::Pool::new(packet::PoolConfig { chunks: 64, ..Default::default() }).unwrap();
    // A header, and no frame behind it.
    let header = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    let frames = dir.join("in.pcap");
    std::fs::write(&frames, header).unwrap();
    let name = format!("rows{}", std::process::id());
    let spec = ports::PortSpec::new(&name, kind, base::PortNo(1)).with_files_beside([frames.as_path()]);
    let dir = dir.display().to_string();
    let spec =
        options.iter().fold(spec, |spec, (option, value)| spec.with(option, &value.replace("DIR", &dir)));
    ports::open(&spec, pool).unwrap_or_else(|e| panic!("{kind} {options:?}: {e}"))
}

#[test]
fn a_port_shows_every_key_of_its_row_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    for (kind, options) in OPENINGS {
        let details = opened(dir.path(), kind, options).status().details;
        let driver = ports::driver(kind).unwrap();
        let other = details.iter().find(|(key, _)| !driver.has_status(key));
        assert!(other.is_none(), "{kind}: {other:?} has no `KeyRow`");
        let is_shown = |row: &KeyRow| LATER.contains(&row.name) || details.iter().any(|(key, _)| row.is(key));
        let unseen = driver.status.iter().find(|row| !is_shown(row));
        assert!(
            unseen.is_none(),
            "{kind}: no port shows {unseen:?}: add the option that it takes to OPENINGS"
        );
    }
}

#[test]
fn an_option_that_changes_at_once_does_not_need_the_port_reopened() {
    let dir = tempfile::tempdir().unwrap();
    let mut tried = 0;
    for driver in DRIVERS {
        for row in driver.options.iter().filter(|row| row.is_live) {
            let values = match row.values {
                Values::Flag => vec!["true".to_string(), "false".to_string()],
                Values::Number { least, most } => vec![least.to_string(), most.to_string()],
                other => {
                    panic!("{}: say here which two values of {other} to set {} to", driver.kind, row.name)
                }
            };
            let opening = OPENINGS.iter().find(|(kind, _)| *kind == driver.kind);
            let (kind, options) = opening.unwrap_or_else(|| {
                panic!("add options with which a port of type {} opens to OPENINGS", driver.kind)
            });
            let mut port = opened(dir.path(), kind, options);
            let path = dir.path().display().to_string();
            let all = options.iter().map(|(option, value)| (option.to_string(), value.replace("DIR", &path)));
            let [one, other] = [0, 1].map(|n| {
                let spec = ports::PortSpec::new("p1", kind, base::PortNo(1));
                let spec = all.clone().fold(spec, |spec, (option, value)| spec.with(&option, &value));
                spec.with(row.name, &values[n])
            });
            assert!(
                !ports::have_same_effect(&one, &other),
                "{kind}: two values of {} count as the same. Compare it where the driver's `have_same_effect` \
                 does (mostly: put it into `Settings`), or `set_options` is never asked",
                row.name
            );
            for value in values {
                let all = all.clone().chain([(row.name.to_string(), value)]).collect();
                assert_eq!(
                    port.set_options(&all),
                    Ok(true),
                    "{kind}: `set_options` does not take {}",
                    row.name
                );
                tried += 1;
            }
        }
    }
    assert!(tried > 0);
}
