//! What clients of a database server send: the framing of JSON-RPC, monitors and their conditions, whole
//! sessions.

use ovsdb::jsonrpc::Message;
use ovsdb::monitor::{Form, Monitors, Spec};
use ovsdb::server::{Model, Now, Server};
use ovsdb::{Database, Datum, Schema, UuidGenerator};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use transport::jsonrpc::{BadFrame, Framer, Limits};

const LIMITS: Limits = Limits { bytes_max: 1 << 16, depth_max: 20 };

/// Objects do not depend on how their bytes are cut, what is kept is bounded, and a message is written as it
/// was read.
pub fn ovsdb_jsonrpc(input: &[u8]) {
    let whole = objects(input, input.len().max(1));
    let piece = usize::from(input.first().copied().unwrap_or(0) % 13) + 1;
    assert_eq!(objects(input, piece), whole);
    for text in &whole.0 {
        assert!(text.len() <= LIMITS.bytes_max);
        if let Ok(message) = Message::parse(text) {
            let written = String::from_utf8(message.to_bytes()).expect("JSON is UTF-8");
            let again = Message::parse(&written).expect("what is written is read");
            assert_eq!(again.to_bytes(), message.to_bytes());
        }
    }
}

fn objects(input: &[u8], piece: usize) -> (Vec<String>, Option<BadFrame>) {
    let mut framer = Framer::new(LIMITS);
    let mut objects = Vec::new();
    for bytes in input.chunks(piece) {
        framer.feed(bytes);
        loop {
            match framer.next_object() {
                Ok(Some(text)) => objects.push(text.to_owned()),
                Ok(None) => break,
                // How long what is too long was when that was found depends on the pieces.
                Err(error) => return (objects, Some(error)),
            }
        }
        assert!(framer.buffered() <= LIMITS.bytes_max + piece);
    }
    (objects, None)
}

fn schema() -> Arc<Schema> {
    let columns = json!({
        "i": {"type": "integer"}, "r": {"type": "real"}, "b": {"type": "boolean"}, "s": {"type": "string"},
        "o": {"type": {"key": "integer", "min": 0}},
        "set": {"type": {"key": "string", "min": 0, "max": "unlimited"}},
        "map": {"type": {"key": "string", "value": "integer", "min": 0, "max": "unlimited"}}});
    let schema = json!({"name": "D", "version": "1.0.0", "tables": {"A": {"columns": columns}, "B": {"columns": columns}}});
    Arc::new(Schema::from_json(&schema).expect("it is well-formed"))
}

/// Requests for monitors are refused or served, and what is told of changes is JSON. The first line is the
/// request, the second a change of its conditions.
pub fn ovsdb_monitor(input: &[u8]) {
    let mut lines = input.split(|&b| b == b'\n').map(serde_json::from_slice::<Value>);
    let Some(Ok(requests)) = lines.next() else { return };
    let change = lines.next().and_then(Result::ok);
    let mut ids = UuidGenerator::from_seed(1);
    let mut database = Database::new(schema());
    let mut monitors = Monitors::new(schema(), ids.next_uuid());
    let mut running = Vec::new();
    for form in [Form::Plain, Form::Conditional, Form::Since] {
        if let Ok(spec) = Spec::from_json(form, &schema(), &requests) {
            let (id, initial) = monitors.add(&database, &requests, spec, Some(ids.next_uuid()));
            assert!(!initial.found);
            running.push(id);
        }
    }
    for n in 0..8_i64 {
        let mut transaction = database.begin();
        let table = schema().find(["A", "B"][n as usize % 2]).expect("it is there");
        let column = |name| schema().table(table).find(name).expect("it is there");
        let mut row = transaction.new_row(table, ids.next_uuid());
        row.set(column("i"), Datum::scalar(n));
        row.set(column("o"), Datum::optional((n % 3 == 0).then_some(n)));
        row.set(column("set"), Datum::set((0..n).map(|k| k.to_string())));
        row.set(column("map"), Datum::map((0..n % 4).map(|k| (k.to_string(), k))));
        transaction.insert(table, row).expect("its name is new");
        let changes = transaction.commit(&mut ids).expect("nothing forbids it");
        monitors.commit(ids.next_uuid(), Arc::new(changes));
        for &id in running.iter().take(1 + n as usize % 3) {
            if let Some(update) = monitors.poll(id) {
                serde_json::from_slice::<Value>(&update.updates).expect("updates are JSON");
            }
        }
    }
    for id in running {
        monitors.poll(id);
        if let Some(change) = &change
            && let Ok(Some(update)) = monitors.change_conditions(&database, id, change)
        {
            serde_json::from_slice::<Value>(&update.updates).expect("updates are JSON");
        }
        assert_eq!(monitors.poll(id).map(|u| u.txn), None);
        monitors.remove(id);
    }
}

/// Two clients say whatever they like: they get JSON, each request at most one answer, and the server's state
/// holds together.
pub fn ovsdb_session(input: &[u8]) {
    let mut now = Now { at: Instant::now(), date_ms: 0 };
    let mut server = Server::new(now, UuidGenerator::from_seed(2));
    assert!(server.add_in_memory(Database::new(schema()), Model::Standalone));
    let clients = [server.connect(false), server.connect(false)];
    let mut framer = Framer::new(LIMITS);
    framer.feed(input);
    let mut requests = 0;
    let mut turn = 0;
    while let Ok(Some(text)) = framer.next_object() {
        let Ok(message) = Message::parse(text) else { break };
        requests += usize::from(matches!(message, Message::Request { .. }));
        // By the length of what was said, so that the input decides.
        let client = clients[text.len() % 2];
        if let Err(why) = server.handle_text(now, client, text) {
            let is_answer = matches!(message, Message::Reply { .. } | Message::Error { .. });
            assert!(is_answer, "it is a message: {why}");
            // An unsolicited answer ends its connection.
            break;
        }
        turn += 1;
        if turn % 3 == 0 {
            server.flush(now);
            now.at += Duration::from_millis(100);
            server.handle_timeout(now);
        }
    }
    server.flush(now);
    let mut answers = 0;
    for client in clients {
        let mut heard = Vec::new();
        let output = server.output(client);
        while let Some(front) = output.front() {
            heard.extend_from_slice(front);
            let sent = front.len();
            output.advance(sent);
        }
        for said in serde_json::Deserializer::from_slice(&heard).into_iter::<Value>() {
            let said = said.expect("what the server says is JSON");
            answers += usize::from(said.get("method").is_none());
        }
    }
    assert!(answers <= requests);
    clients.into_iter().for_each(|client| server.disconnect(client));
    assert_eq!((server.session_count(), server.monitor_count()), (0, 0));
}
