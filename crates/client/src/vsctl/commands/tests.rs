use super::*;
use ovsdb::Datum;
use std::sync::Arc;

/// Runs command lines one after the other on an empty database that each of them changes, and what the last
/// prints.
fn check(lines: &[&str]) -> Result<String, Stop> {
    let schema = Schema::open_vswitch();
    let mut uuids = UuidGenerator::from_seed(1);
    let mut replica = Replica::with_rows(schema.clone(), []);
    let mut text = String::new();
    for line in lines {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let commands = parse_chain(&args, BTreeMap::new(), COMMANDS)?;
        let mut warnings = Vec::new();
        prepare(&commands, &schema, &mut warnings)?;
        let ran = run(&commands, &replica, &Settings::default(), &mut uuids, &mut warnings)?;
        let rows: Vec<_> = schema
            .tables_with_idx()
            .flat_map(|(table, _)| ran.transaction.table(table).iter().map(move |row| (table, row.clone())))
            .collect();
        replica = Replica::with_rows(Arc::clone(&schema), rows);
        text = outputs(ran, None)
            .into_iter()
            .map(|output| match output {
                Output::Text(text) => text,
                Output::Table(table) => format!("{} rows\n", table.rows.len()),
            })
            .collect();
    }
    Ok(text)
}

fn fatal(text: &str) -> Result<String, Stop> {
    Err(Stop::Fatal(text.to_owned()))
}

#[test]
fn commands_of_a_chain_see_what_those_before_them_did() {
    let line = "add-br a -- add-port a b tag=3 -- get port b tag -- del-port b -- list-ports a -- list-br";
    assert_eq!(check(&[line]).unwrap(), "3\na\n");
    let line = "--id=@p create qos type=x -- set qos @p other_config:a=1 -- get qos @p other_config";
    assert!(check(&[line]).unwrap().ends_with("{a=\"1\"}\n"));
}

#[test]
fn fake_bridges_have_the_ports_of_their_vlan() {
    let lines = ["add-br br", "add-br fake br 5", "add-port fake p -- add-port br q tag=5 -- add-port br r"];
    let then = |last: &'static str| check(&[&lines[..], &[last]].concat());
    assert_eq!(then("list-ports fake").unwrap(), "p\nq\n");
    assert_eq!(then("list-ports br").unwrap(), "r\n");
    assert_eq!(then("del-br fake -- list-ports br -- list-br").unwrap(), "r\nbr\n");
    assert_eq!(then("br-to-parent fake -- br-to-vlan fake").unwrap(), "br\n5\n");
    assert_eq!(then("add-br other br 5"), fatal("bridge br already has a child VLAN bridge fake on VLAN 5"));
}

#[test]
fn a_bond_has_each_interface_once() {
    let twice = fatal("cannot create an interface named i twice");
    assert_eq!(check(&["add-br a", "add-bond a b h i i"]), twice);
    assert_eq!(check(&["add-br a -- add-bond a b h i -- list-ifaces a"]).as_deref(), Ok("h\ni\n"));
}

#[test]
fn what_a_chain_has_destroyed_is_not_listed_by_it() {
    let then = |last: &'static str| check(&["add-br a -- add-port a p -- add-port a q", last]);
    assert_eq!(then("--all destroy bridge -- list-br").as_deref(), Ok(""));
    assert_eq!(then("destroy port p -- list-ports a").as_deref(), Ok("q\n"));
    assert_eq!(then("destroy interface p -- list-ifaces a").as_deref(), Ok("q\n"));
}

#[test]
fn what_is_awaited_and_not_there_is_worth_another_try() {
    assert_eq!(check(&["wait-until bridge br"]), Err(Stop::TryAgain));
    assert_eq!(check(&["add-br br", "wait-until bridge br fail_mode=secure"]), Err(Stop::TryAgain));
    assert_eq!(check(&["add-br br", "wait-until bridge br fail_mode=[]"]).as_deref(), Ok(""));
    assert_eq!(check(&["br-exists br"]), Err(Stop::Exit(2)));
}

#[test]
fn several_changes_of_one_column_come_to_what_they_say_in_order() {
    let schema = Schema::open_vswitch();
    let mut uuids = UuidGenerator::from_seed(1);
    let table = schema.find("Open_vSwitch").unwrap();
    let mut root = Row::new(schema.table(table), uuids.next_uuid());
    let ids = schema.table(table).find("external_ids").unwrap();
    root.set(ids, Datum::map([("a", "1"), ("b", "2")]));
    let replica = Replica::with_rows(schema.clone(), [(table, root)]);
    let line = "set open . external_ids:a=9 -- add open . external_ids b=7 c=3 -- remove open . external_ids c -- set open . external_ids:d=4 -- br-exists x";
    let args: Vec<String> =
        line.split(" -- br-exists").next().unwrap().split(' ').map(str::to_owned).collect();
    let commands = parse_chain(&args, BTreeMap::new(), COMMANDS).unwrap();
    let ran = run(&commands, &replica, &Settings::default(), &mut uuids, &mut Vec::new()).unwrap();
    let row = ran.transaction.table(table).iter().next().unwrap();
    assert_eq!(*row.get(ids), Datum::map([("a", "9"), ("b", "7"), ("d", "4")]));
}

#[test]
fn an_unknown_word_is_an_error_before_there_is_a_database() {
    for (line, error) in [
        ("foo", "unknown command 'foo'; use --help for help"),
        ("ad-br x", "unknown command 'ad-br'; use --help for help\n(did you mean 'add-br'?)"),
        ("list foo", "unknown table \"foo\""),
        ("list brigde", "unknown table \"brigde\"\n(did you mean 'Bridge'?)"),
        (
            "set bridge br fail_mdoe=secure",
            "Bridge does not contain a column whose name matches \"fail_mdoe\"\n(did you mean 'fail_mode'?)",
        ),
        ("list c", "\"c\" matches multiple table names: CT_Timeout_Policy, CT_Zone, Controller"),
        ("get bridge br n:x", "Bridge contains more than one column whose name matches \"n\": name, netflow"),
        ("--foo add-br x", "'add-br' command has no '--foo' option"),
        ("-- show x", "'show' command takes at most 0 arguments"),
        ("--", "missing command name (use --help for help)"),
    ] {
        assert_eq!(check(&[line]), fatal(error), "{line}");
    }
}
