//! `crosspoint ovsdb-tool` beside the stock `ovsdb-tool`: each on files that it made itself and on the
//! other's, with the same output wherever chance and the clock have no part in it.

use crate::common::{Process, RunDir, binary, run_dir, wait_for};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Output;

const ZOO: &str = r#"{"name":"Zoo","version":"1.0.0","cksum":"1 2","tables":{
  "Animal":{"columns":{
    "name":{"type":"string"},
    "legs":{"type":{"key":"integer","min":0,"max":1}},
    "weight":{"type":"real"},
    "tame":{"type":"boolean"},
    "tags":{"type":{"key":"string","min":0,"max":"unlimited"}},
    "notes":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
    "note":{"type":{"key":"string","value":"integer","min":0,"max":1}},
    "keeper":{"type":{"key":{"type":"uuid","refTable":"Keeper"},"min":0,"max":1}},
    "seen":{"type":"integer","ephemeral":true}},
   "isRoot":true},
  "Keeper":{"columns":{"days":{"type":{"key":{"type":"integer","minInteger":0,"maxInteger":6},"min":1,"max":7}}},"maxRows":3}}}"#;

/// The same without `notes` and `tame`, with a new column, and one that is narrower.
const ZOO_2: &str = r#"{"name":"Zoo","version":"2.0.0","tables":{
  "Animal":{"columns":{
    "name":{"type":"string"},
    "legs":{"type":{"key":"integer","min":0,"max":1}},
    "weight":{"type":"real"},
    "tags":{"type":{"key":"string","min":0,"max":"unlimited"}},
    "note":{"type":{"key":"string","value":"integer","min":0,"max":1}},
    "keeper":{"type":{"key":{"type":"uuid","refTable":"Keeper"},"min":0,"max":1}},
    "eyes":{"type":"integer"}},
   "isRoot":true},
  "Keeper":{"columns":{"days":{"type":{"key":"integer","min":1,"max":7}}}}}}"#;

/// Transactions with given UUIDs, one after the other.
const TRANSACTIONS: &[&str] = &[
    r#"["Zoo",{"op":"insert","table":"Animal","uuid":"00000000-0000-4000-8000-000000000001","row":{"name":"cow","legs":4,"weight":612.5,"tame":true,"tags":["set",["big","brown cow"]],"notes":["map",[["a","b"],["c d","\"e\"\n"]]],"note":["map",[["k",1]]],"keeper":["uuid","00000000-0000-4000-8000-0000000000a1"],"seen":7}},{"op":"insert","table":"Keeper","uuid":"00000000-0000-4000-8000-0000000000a1","row":{"days":["set",[1,2,3]]}},{"op":"comment","comment":"a cow"},{"op":"comment","comment":"and \"her\" keeper"}]"#,
    r#"["Zoo",{"op":"insert","table":"Animal","uuid":"00000000-0000-4000-8000-000000000002","row":{}}]"#,
    r#"["Zoo",{"op":"update","table":"Animal","where":[["name","==","cow"]],"row":{"tags":["set",["big","clean"]],"notes":["map",[["a","z"],["n","m"]]],"note":["map",[["k",2]]],"legs":["set",[]],"weight":1e300,"seen":8}}]"#,
    r#"["Zoo",{"op":"update","table":"Animal","where":[],"row":{"seen":9}},{"op":"comment","comment":"nothing that is kept"}]"#,
    r#"["Zoo",{"op":"comment","comment":"nothing at all"}]"#,
    r#"["Zoo",{"op":"mutate","table":"Animal","where":[["name","==","cow"]],"mutations":[["notes","delete",["set",["n"]]],["tags","insert","ä"]]},{"op":"commit","durable":true}]"#,
    r#"["Zoo",{"op":"delete","table":"Animal","where":[["name","==",""]]}]"#,
    r#"["Zoo",{"op":"update","table":"Animal","where":[],"row":{"name":"Elsie"}}]"#,
    r#"["Zoo",{"op":"select","table":"Animal","where":[],"columns":["name","tags","notes","weight"]}]"#,
    r#"["Zoo",{"op":"insert","table":"Keeper","uuid":"00000000-0000-4000-8000-0000000000a2","row":{"days":9}}]"#,
    r#"["Zoo",{"op":"abort"}]"#,
    r#"["Zoo",{"op":"assert","lock":"x"}]"#,
    r#"["Zoo",{"op":"wait","table":"Animal","timeout":0,"where":[],"columns":["name"],"until":"==","rows":[]}]"#,
    r#"["Zoo",{"op":"wait","table":"Animal","timeout":5000,"where":[],"columns":["name"],"until":"==","rows":[]},{"op":"abort"}]"#,
    r#"["Zoo",{"op":"wait","table":"Animal","where":[],"columns":["name"],"until":"==","rows":[]}]"#,
    r#"["Bar",{"op":"abort"}]"#,
    r#"{}"#,
    r#"["Zoo"]"#,
];

#[derive(Clone, Copy, PartialEq, Debug)]
enum Tool {
    Stock,
    Ours,
}

use Tool::{Ours, Stock};

struct Rig {
    dir: RunDir,
}

impl Rig {
    fn new() -> Rig {
        let dir = run_dir();
        std::fs::write(dir.path().join("zoo.ovsschema"), ZOO).unwrap();
        std::fs::write(dir.path().join("zoo2.ovsschema"), ZOO_2).unwrap();
        Rig { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, tool: Tool, args: &[&str]) -> Output {
        let mut command = match tool {
            Stock => self.dir.command("ovsdb-tool"),
            Ours => {
                let mut command = self.dir.command(binary());
                command.arg("ovsdb-tool");
                command
            }
        };
        command.env("OVS_SYSCONFDIR", self.dir.path());
        command
            .args(args)
            .output()
            .unwrap_or_else(|error| panic!("{tool:?}: {error} (openvswitch-common has ovsdb-tool)"))
    }

    /// Runs it, and panics where it fails.
    fn ok(&self, tool: Tool, args: &[&str]) -> String {
        let output = self.run(tool, args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{tool:?} {args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Exit code, output and messages, the program's name taken out of these.
    fn told(&self, tool: Tool, args: &[&str]) -> (Option<i32>, String, String) {
        let output = self.run(tool, args);
        let stderr =
            String::from_utf8_lossy(&output.stderr).replace("crosspoint ovsdb-tool: ", "ovsdb-tool: ");
        // A log line has the time of day in it.
        let is_log = |line: &&str| !(line.contains("|WARN|") && line.starts_with("20"));
        let stderr: Vec<&str> = stderr.lines().filter(is_log).collect();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), stderr.join("\n"))
    }

    fn same(&self, args: &[&str]) {
        assert_eq!(self.told(Ours, args), self.told(Stock, args), "{args:?}");
    }

    /// All rows, by UUID: the stock tool selects them in the order of its hash tables.
    fn everything(&self, tool: Tool, name: &str) -> Value {
        let mut reply: Value = serde_json::from_str(&self.ok(tool, &["query", name, EVERYTHING])).unwrap();
        for table in reply.as_array_mut().unwrap() {
            table["rows"].as_array_mut().unwrap().sort_by_key(|row| row["_uuid"].to_string());
        }
        reply
    }

    /// A database that one tool made and filled.
    fn filled(&self, tool: Tool, name: &str) {
        self.ok(tool, &["create", name, "zoo.ovsschema"]);
        for transaction in TRANSACTIONS {
            self.ok(tool, &["transact", name, transaction]);
        }
    }
}

const EVERYTHING: &str = r#"["Zoo",{"op":"select","table":"Animal","where":[],"columns":["_uuid","name","legs","weight","tame","tags","notes","note","keeper","seen"]},{"op":"select","table":"Keeper","where":[],"columns":["_uuid","days"]}]"#;

/// What is in a log, without what no two runs have in common: lines of rows in one order, dates as zeros.
fn log_of(rig: &Rig, tool: Tool, name: &str) -> Vec<String> {
    let text = rig.ok(tool, &["-m", "-m", "-m", "show-log", name]);
    let undated = |record: &str| {
        let mut blocks: Vec<Vec<String>> = vec![Vec::new()];
        for line in record.lines() {
            if line.starts_with("  table") {
                blocks.push(Vec::new());
            }
            let line = match line.split_once(": 2") {
                Some((head, rest)) if head.bytes().all(|c| c.is_ascii_digit()) => {
                    format!("{head}: DATE{}", &rest[22..])
                }
                _ => line.to_owned(),
            };
            blocks.last_mut().unwrap().push(line);
        }
        // The stock tool prints tables, rows and columns in the order of its hash tables.
        blocks.iter_mut().skip(1).for_each(|block| block[1..].sort());
        blocks[1..].sort();
        blocks.concat().join("\n")
    };
    text.split("\nrecord ").map(undated).collect()
}

#[test]
fn transactions_give_the_same_answers_logs_and_contents_whoever_runs_them() {
    let rig = Rig::new();
    for (tool, name) in [(Stock, "stock.db"), (Ours, "ours.db")] {
        rig.ok(tool, &["create", name, "zoo.ovsschema"]);
    }
    for transaction in TRANSACTIONS {
        let ours = rig.told(Ours, &["transact", "ours.db", transaction]);
        assert_eq!(ours, rig.told(Stock, &["transact", "stock.db", transaction]), "{transaction}");
        // As it is, and read-only: it changes nothing.
        assert_eq!(rig.everything(Ours, "ours.db"), rig.everything(Stock, "stock.db"), "after {transaction}");
    }
    let log = log_of(&rig, Stock, "stock.db");
    for (tool, name) in [(Stock, "ours.db"), (Ours, "ours.db"), (Ours, "stock.db")] {
        assert_eq!(log_of(&rig, tool, name), log, "{tool:?} on {name}");
        assert_eq!(rig.everything(tool, name), rig.everything(Stock, "stock.db"));
    }
    // Each goes on where the other stopped.
    let next = r#"["Zoo",{"op":"update","table":"Animal","where":[],"row":{"tags":["set",["small"]],"notes":["map",[["a","y"]]]}}]"#;
    rig.ok(Ours, &["transact", "stock.db", next]);
    rig.ok(Stock, &["transact", "ours.db", next]);
    for (tool, name) in [(Stock, "stock.db"), (Ours, "ours.db")] {
        assert_eq!(rig.everything(tool, name), rig.everything(Stock, "ours.db"));
    }
}

#[test]
fn compacted_and_converted_files_are_the_same_whoever_made_them() {
    let rig = Rig::new();
    for (tool, name) in [(Stock, "stock.db"), (Ours, "ours.db")] {
        rig.filled(tool, name);
        rig.ok(tool, &["compact", name]);
        rig.ok(tool, &["convert", name, "zoo2.ovsschema", &format!("converted-{name}")]);
        rig.ok(tool, &["compact", name, &format!("compacted-{name}")]);
    }
    for kind in ["", "compacted-", "converted-"] {
        let stock = log_of(&rig, Stock, &format!("{kind}stock.db"));
        for tool in [Stock, Ours] {
            assert_eq!(log_of(&rig, tool, &format!("{kind}ours.db")), stock, "{tool:?} {kind}");
        }
        for command in ["db-name", "db-version", "db-cksum"] {
            assert_eq!(
                rig.ok(Ours, &[command, &format!("{kind}ours.db")]),
                rig.ok(Stock, &[command, &format!("{kind}stock.db")])
            );
        }
    }
    // In place, and over the other's file.
    rig.ok(Ours, &["convert", "stock.db", "zoo2.ovsschema"]);
    assert_eq!(log_of(&rig, Stock, "stock.db"), log_of(&rig, Stock, "converted-stock.db"));
    rig.same(&["needs-conversion", "stock.db", "zoo2.ovsschema"]);
    rig.same(&["needs-conversion", "stock.db", "zoo.ovsschema"]);
    // A target that is there is refused by its manual; the stock program writes over some.
    let (code, _, message) = rig.told(Ours, &["compact", "ours.db", "stock.db"]);
    assert_eq!(
        (code, &message[..]),
        (Some(1), "ovsdb-tool: I/O error: stock.db: create failed (File exists)")
    );
}

#[test]
fn a_conversion_that_breaks_a_constraint_is_refused_and_changes_nothing() {
    let rig = Rig::new();
    let narrow = ZOO.replace("\"maxInteger\":6", "\"maxInteger\":2");
    std::fs::write(rig.path("narrow.ovsschema"), narrow).unwrap();
    let single = ZOO.replace("\"maxRows\":3", "\"maxRows\":1");
    std::fs::write(rig.path("single.ovsschema"), single).unwrap();
    rig.filled(Ours, "a.db");
    rig.ok(Ours, &["transact", "a.db", r#"["Zoo",{"op":"insert","table":"Keeper","uuid-name":"k","row":{"days":1}},{"op":"insert","table":"Animal","row":{"keeper":["named-uuid","k"]}}]"#]);
    let before = std::fs::read(rig.path("a.db")).unwrap();
    for schema in ["narrow.ovsschema", "single.ovsschema"] {
        let (code, _, message) = rig.told(Ours, &["convert", "a.db", schema]);
        assert_eq!(code, Some(1), "{schema}");
        assert!(message.contains("constraint violation") || message.contains("valid range"), "{message}");
        assert_eq!(std::fs::read(rig.path("a.db")).unwrap(), before);
    }
}

#[test]
fn a_conversion_keeps_what_the_file_means_under_its_own_schema() {
    let rig = Rig::new();
    rig.filled(Ours, "a.db");
    let transact =
        |text: &str| rig.ok(Ours, &["transact", "a.db", &format!(r#"["Zoo",{{"op":"update",{text}}}]"#)]);
    // One takes the place of the other: with more elements, the record would be a difference.
    transact(r#""table":"Animal","where":[],"row":{"legs":1}"#);
    transact(r#""table":"Animal","where":[],"row":{"legs":2}"#);
    let wide = ZOO.replace(
        "\"legs\":{\"type\":{\"key\":\"integer\",\"min\":0,\"max\":1}}",
        "\"legs\":{\"type\":{\"key\":\"integer\",\"min\":0,\"max\":\"unlimited\"}}",
    );
    assert_ne!(wide, ZOO);
    for (name, schema) in [("wide.ovsschema", &wide[..]), ("zoo.ovsschema", ZOO)] {
        std::fs::write(rig.path(name), schema).unwrap();
        rig.ok(Ours, &["convert", "a.db", name]);
        for animal in rig.everything(Ours, "a.db")[0]["rows"].as_array().unwrap() {
            assert_eq!(animal["legs"], 2, "{name}");
        }
        transact(r#""table":"Animal","where":[],"row":{"legs":3}"#);
        transact(r#""table":"Animal","where":[],"row":{"legs":2}"#);
    }
}

#[test]
fn what_files_and_schemas_say_of_themselves_is_told_alike() {
    let rig = Rig::new();
    rig.filled(Stock, "a.db");
    std::fs::write(rig.path("garbage"), "garbage in\n").unwrap();
    std::fs::write(rig.path("empty"), "").unwrap();
    std::fs::write(rig.path("old.ovsschema"), r#"{"name":"x","tables":{}}"#).unwrap();
    rig.ok(Stock, &["create-cluster", "cluster.db", "zoo2.ovsschema", "tcp:127.0.0.1:6644"]);
    for db in ["a.db", "garbage", "empty", "nowhere.db"] {
        for command in [
            "db-name",
            "db-version",
            "db-cksum",
            "db-is-standalone",
            "db-is-clustered",
            "db-cid",
            "db-sid",
            "db-local-address",
            "show-log",
        ] {
            rig.same(&[command, db]);
        }
    }
    for command in ["db-name", "db-is-standalone", "db-is-clustered", "db-cid", "db-sid", "db-local-address"]
    {
        rig.same(&[command, "cluster.db"]);
    }
    for schema in ["zoo.ovsschema", "old.ovsschema", "/usr/share/openvswitch/vswitch.ovsschema"] {
        for command in ["schema-name", "schema-version", "schema-cksum"] {
            rig.same(&[command, schema]);
        }
    }
    for command in ["schema-name", "needs-conversion"] {
        let (code, _, message) =
            rig.told(Ours, &[command, "a.db", "garbage"][..if command == "schema-name" { 2 } else { 3 }]);
        assert_eq!(code, Some(1));
        assert!(message.starts_with("ovsdb-tool: failed to read schema: \""), "{message}");
    }
    rig.same(&["schema-name", "nowhere.ovsschema"]);
    rig.same(&["create", "a.db", "zoo.ovsschema"]);
    rig.same(&["create", "b.db", "nowhere.ovsschema"]);
}

#[test]
fn clusters_are_refused_by_name() {
    let rig = Rig::new();
    rig.ok(Stock, &["create-cluster", "cluster.db", "zoo2.ovsschema", "tcp:127.0.0.1:6644"]);
    for args in [
        &["create-cluster", "x.db", "zoo.ovsschema", "tcp:127.0.0.1:6644"][..],
        &["join-cluster", "x.db", "Zoo", "tcp:127.0.0.1:6644", "tcp:127.0.0.1:6645"],
        &["cluster-to-standalone", "x.db", "cluster.db"],
        &["check-cluster", "cluster.db"],
        &["show-log", "cluster.db"],
    ] {
        let (code, _, message) = rig.told(Ours, args);
        assert_eq!(code, Some(1), "{args:?}");
        assert!(message.ends_with("clustered databases are not supported"), "{message}");
    }
    for args in
        [&["compact", "cluster.db"][..], &["db-version", "cluster.db"], &["query", "cluster.db", "[\"Zoo\"]"]]
    {
        let (code, _, message) = rig.told(Ours, args);
        assert_eq!(code, Some(1), "{args:?}");
        let stock = rig.told(Stock, args).2;
        assert!(message.starts_with(&stock), "{message} for {stock}");
    }
}

#[test]
fn wrong_command_lines_are_refused_in_the_same_words() {
    let rig = Rig::new();
    for args in [
        &[][..],
        &["bogus"],
        &["--bogus"],
        &["-Q"],
        &["create", "a", "b", "c"],
        &["transact"],
        &["db-cid"],
        &["compare-versions", "1.2.3"],
        &["--cid=x", "db-name"],
        &["--election-timer=5", "db-name"],
        &["--rbac-role"],
    ] {
        rig.same(args);
    }
    rig.same(&["list-commands"]);
    for (a, op, b) in [
        ("1.2.3", "<", "2.0.0"),
        ("1.2.3", ">", "2.0.0"),
        ("1.2.3", "==", "1.2.03"),
        ("1.2.3", "!=", "1.2.3"),
        ("1.10.0", ">=", "1.9.9"),
        ("1.10.0", "<=", "1.9.9"),
        ("1.2.3", "=", "2.0.0"),
        ("1.2", "==", "2.0.0"),
        ("1.2.3", "==", "1.2.x"),
    ] {
        rig.same(&["compare-versions", a, op, b]);
    }
    let help = rig.ok(Ours, &["help"]);
    let commands = rig.ok(Stock, &["list-commands"]);
    for command in commands.lines().skip(1).filter_map(|line| line.split_whitespace().next()) {
        assert!(help.contains(command), "{command} is not in the help");
    }
    assert!(rig.ok(Ours, &["-V"]).starts_with("crosspoint ovsdb-tool (Open vSwitch) 3.1.0\n"));
}

#[test]
fn options_may_stand_after_the_command() {
    let rig = Rig::new();
    rig.filled(Stock, "a.db");
    let select =
        r#"["Zoo",{"op":"select","table":"Animal","where":[["name","==","ox"]],"columns":["legs"]}]"#;
    for args in [
        &["show-log", "-m", "a.db"][..],
        &["show-log", "a.db", "-m"],
        &["query", "a.db", select, "-v"],
        &["query", "-vconsole:off", "--rbac-role=", "a.db", select],
        &["db-name", "a.db", "--"],
        &["db-name", "--", "-m"],
        &["db-name", "a.db", "-Z"],
        &["db-name", "a.db", "--cid=x"],
        &["compare-versions", "1.2.3", "-m", "<", "2.0.0"],
    ] {
        rig.same(args);
    }
    assert_eq!(rig.ok(Ours, &["show-log", "a.db", "-mm"]), rig.ok(Ours, &["-m", "-m", "show-log", "a.db"]));
    assert!(rig.ok(Ours, &["db-name", "a.db", "-V"]).starts_with("crosspoint ovsdb-tool (Open vSwitch)"));
}

/// Nobody who runs it shows a certificate, so a role may read alone.
#[test]
fn a_role_may_change_what_it_may_in_the_stock_tool() {
    let rig = Rig::new();
    const SCHEMA: &str = r#"{"name":"Z","version":"1.0.0","tables":{
      "T":{"isRoot":true,"columns":{"owner":{"type":"string"}}},
      "RBAC_Role":{"isRoot":true,"columns":{"name":{"type":"string"},"permissions":{"type":{"key":"string",
        "value":{"type":"uuid","refTable":"RBAC_Permission"},"min":0,"max":"unlimited"}}}},
      "RBAC_Permission":{"columns":{"authorization":{"type":{"key":"string","min":0,"max":"unlimited"}},
        "insert_delete":{"type":"boolean"},"update":{"type":{"key":"string","min":0,"max":"unlimited"}}}}}}"#;
    std::fs::write(rig.path("z.ovsschema"), SCHEMA).unwrap();
    rig.ok(Stock, &["create", "z.db", "z.ovsschema"]);
    let role = r#"["Z",{"op":"insert","table":"RBAC_Permission","uuid-name":"p",
        "row":{"authorization":"","insert_delete":true}},{"op":"insert","table":"RBAC_Role",
        "row":{"name":"all","permissions":["map",[["T",["named-uuid","p"]]]]}}]"#;
    rig.ok(Stock, &["transact", "z.db", role]);
    let insert = r#"["Z",{"op":"insert","table":"T","row":{}}]"#;
    let select = r#"["Z",{"op":"select","table":"T","where":[]}]"#;
    for command in ["transact", "query"] {
        for operation in [insert, select] {
            for role in ["all", "none"] {
                rig.same(&[&format!("--rbac-role={role}"), command, "z.db", operation]);
            }
        }
    }
    assert!(rig.ok(Ours, &["--rbac-role=all", "transact", "z.db", insert]).contains("permission error"));
    assert_eq!(rig.ok(Ours, &["query", "z.db", select]), "[{\"rows\":[]}]\n");
    rig.same(&["--rbac-role=", "query", "z.db", select]);
}

#[test]
fn damaged_logs_are_shown_up_to_the_damage() {
    let rig = Rig::new();
    rig.filled(Stock, "a.db");
    let whole = std::fs::read(rig.path("a.db")).unwrap();
    std::fs::write(rig.path("torn.db"), &whole[..whole.len() - 7]).unwrap();
    let middle = whole.windows(5).position(|w| w == b"a cow").unwrap();
    let mut damaged = whole.clone();
    damaged[middle] = b'A';
    std::fs::write(rig.path("damaged.db"), &damaged).unwrap();
    let header = whole.iter().enumerate().filter(|(_, c)| **c == b'\n').nth(3).unwrap().0 + 1;
    let mut no_header = whole.clone();
    no_header[header + 7] = b'X';
    std::fs::write(rig.path("no-header.db"), &no_header).unwrap();
    for db in ["torn.db", "damaged.db", "no-header.db"] {
        rig.same(&["show-log", db]);
    }
    // The stock program gives up on a torn end; ours reads what was committed, and says so.
    let output = rig.run(Ours, &["query", "torn.db", EVERYTHING]);
    assert!(output.status.success());
    let warning = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(warning.contains("interrupted write"), "{warning}");
    let (code, _, message) = rig.told(Ours, &["query", "damaged.db", EVERYTHING]);
    assert_eq!(code, Some(1));
    assert!(message.contains("so this is not an interrupted write"), "{message}");
}

#[test]
fn a_database_that_is_served_is_not_written_by_either() {
    let rig = Rig::new();
    rig.ok(Ours, &["create", "a.db", "zoo.ovsschema"]);
    let mut server = rig.dir.command("ovsdb-server");
    server.args(["a.db", "--remote=punix:a.sock", "--unixctl=a.ctl", "-vconsole:off"]);
    let _server = Process::silent(&mut server);
    wait_for("the server", || testkit::listens(rig.path("a.sock")));
    for args in [
        &["transact", "a.db", "[\"Zoo\"]"][..],
        &["compact", "a.db"],
        &["convert", "a.db", "zoo2.ovsschema"],
        &["create", "a.db", "zoo.ovsschema"],
    ] {
        let ours = rig.told(Ours, args);
        assert_eq!(ours, rig.told(Stock, args), "{args:?}");
        assert!(ours.2.contains("failed to lock lockfile"), "{}", ours.2);
    }
    assert_eq!(
        rig.told(Ours, &["query", "a.db", EVERYTHING]),
        rig.told(Stock, &["query", "a.db", EVERYTHING])
    );
}
