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

#[test]
fn a_port_tells_no_status_that_its_row_does_not_have() {
    let pool = packet::Pool::new(packet::PoolConfig { chunks: 64, ..Default::default() }).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (frames, written) = (dir.path().join("in.pcap"), dir.path().join("out.pcap"));
    // A header, and no frame behind it.
    let header = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    std::fs::write(&frames, header).unwrap();
    for (kind, options) in [
        ("null", vec![("size", "64".to_string())]),
        ("dummy", vec![]),
        ("dpdkvhostuserclient", vec![("vhost-server-path", dir.path().join("vm").display().to_string())]),
        ("pcap", vec![("rx_file", frames.display().to_string()), ("tx_file", written.display().to_string())]),
        ("tap", vec![]),
        ("internal", vec![]),
    ] {
        let name = format!("rows{}", std::process::id());
        let spec = ports::PortSpec::new(&name, kind, base::PortNo(1)).with_files_beside([frames.as_path()]);
        let spec = options.iter().fold(spec, |spec, (option, value)| spec.with(option, value));
        let port = ports::open(&spec, pool).unwrap_or_else(|e| panic!("{kind}: {e}"));
        let status = port.status();
        for (key, value) in &status.details {
            let is_there = ports::driver(kind).unwrap().status.iter().any(|row| row.name == key);
            assert!(is_there, "{kind}: {key}={value}");
        }
    }
}
