//! What clients read: command lines of `vsctl`, what a server sends to a replica, captures of OpenFlow.

use client::ctl::table::{Format, Printer, Style};
use client::vsctl::commands::{self, Output, Settings, Stop};
use ovsdb::jsonrpc::Message;
use ovsdb::replica::{Replica, Selection};
use ovsdb::{Schema, UuidGenerator};
use std::collections::BTreeMap;
use std::sync::Arc;
use transport::jsonrpc::{Framer, Limits};

/// Lines of words, each run by `vsctl` on what those before it made of an empty database, without a socket.
/// What a line is refused for is a sentence; what it comes to prints in every format; and the transaction is
/// one that can be sent.
pub fn vsctl_command(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let schema = Schema::open_vswitch();
    let mut uuids = UuidGenerator::from_seed(1);
    let mut replica = Replica::with_rows(schema.clone(), []);
    for line in text.lines().take(32) {
        let args: Vec<String> = words(line);
        let commands = match commands::parse_chain(&args, BTreeMap::new(), commands::COMMANDS) {
            Ok(commands) => commands,
            Err(error) => {
                assert!(!error.is_empty());
                continue;
            }
        };
        let mut warnings = Vec::new();
        if commands::prepare(&commands, &schema, &mut warnings).is_err() {
            continue;
        }
        let settings = Settings { comment: line.to_owned(), is_dry_run: false, counts: true };
        let ran = match commands::run(&commands, &replica, &settings, &mut uuids, &mut warnings) {
            Ok(ran) => ran,
            Err(Stop::Fatal(error)) => {
                assert!(!error.is_empty());
                continue;
            }
            Err(Stop::Exit(_) | Stop::TryAgain) => continue,
        };
        replica.commit(&ran.transaction);
        while let Some(message) = replica.poll_transmit() {
            let bytes = message.to_bytes();
            assert!(Message::parse(std::str::from_utf8(&bytes).expect("JSON is text")).is_ok());
        }
        let rows: Vec<_> = schema
            .tables_with_idx()
            .flat_map(|(table, _)| ran.transaction.table(table).iter().map(move |row| (table, row.clone())))
            .collect();
        print(commands::outputs(ran, None));
        replica = Replica::with_rows(Arc::clone(&schema), rows);
    }
}

/// Words are separated by spaces; in single quotes a space is part of one.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut in_quotes = false;
    for c in line.chars() {
        match c {
            '\'' => in_quotes = !in_quotes,
            ' ' if !in_quotes => words.push(String::new()),
            c => words.last_mut().expect("there is always one").push(c),
        }
    }
    words
}

fn print(outputs: Vec<Output>) {
    for output in outputs {
        let Output::Table(table) = output else { continue };
        for format in [Format::Table, Format::List, Format::Html, Format::Csv, Format::Json] {
            let mut style = Style::new(format);
            style.max_column_width = 3;
            assert!(Printer::new().print(&table, &style).len() < 64 << 20);
            style.set_bare();
            style.format = format;
            Printer::new().print(&table, &style);
        }
    }
}

/// Messages of a server. The replica follows them, or reports an error and starts again; the changes that it
/// reports are consistent.
pub fn ovsdb_replica(input: &[u8]) {
    let schema = Schema::open_vswitch();
    let mut replica = Replica::new("Open_vSwitch", Selection::everything());
    let mut framer = Framer::new(Limits { bytes_max: 1 << 20, depth_max: 60 });
    framer.feed(input);
    connect(&mut replica, &schema);
    while let Ok(Some(text)) = framer.next_object() {
        let Ok(message) = Message::parse(text) else { continue };
        if replica.handle(message).is_err() {
            replica.disconnected();
            connect(&mut replica, &schema);
        }
        if replica.is_synced() {
            for change in replica.take_changes() {
                assert!(change.old != change.new);
                let now = replica.row(change.table, change.uuid);
                assert_eq!(now, change.new.as_ref());
            }
            let mut transaction = replica.begin();
            if let Some(table) = schema.find("QoS") {
                let first = transaction.table(table).iter().next().cloned();
                if let Some(row) = first {
                    transaction.delete(table, row.uuid());
                    assert!(!transaction.is_unchanged());
                }
            }
            let ticket = replica.commit(&transaction);
            replica.take_outcome(ticket);
        }
        while replica.poll_transmit().is_some() {}
    }
}

/// Up to the first rows, which are the input's.
fn connect(replica: &mut Replica, schema: &Schema) {
    replica.connected();
    let mut asked = None;
    while let Some(message) = replica.poll_transmit() {
        if let Message::Request { method, id, .. } = message
            && method == "get_schema"
        {
            asked = Some(id);
        }
    }
    let id = asked.expect("a replica asks for the schema first");
    replica.handle(Message::reply(&schema.to_json(), id)).expect("the schema is a good one");
}

/// A capture file: every message that is put together from it is whole, and prints.
pub fn ofctl_capture(input: &[u8]) {
    let mut messages = 0;
    let shown = client::ofctl::capture::each_message(input, &[6633, 6653], |heard| {
        let length = openflow::Header::parse(heard.message).expect("a header at least").length;
        assert_eq!(usize::from(length), heard.message.len());
        assert!(!openflow::text::bytes_text(heard.message, openflow::text::PortNames::none(), 0).is_empty());
        messages += 1;
    });
    match shown {
        Ok(left_out) => assert!(left_out + messages <= input.len() as u64),
        Err(why) => assert!(!why.is_empty() && messages == 0),
    }
}
