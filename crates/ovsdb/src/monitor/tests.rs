//! Clients that apply what they are told have what the database has.

use super::*;
use crate::{ColumnIdx, Datum, Row, TableIdx, UuidGenerator};
use serde_json::{Map, json};

struct Client {
    id: MonitorId,
    form: Form,
    /// The last state that it was told the name of.
    txn: Uuid,
    /// Tables, rows, columns, as the JSON has them.
    rows: BTreeMap<String, BTreeMap<String, Map<String, Value>>>,
    spec: Spec,
}

struct Rig {
    database: Database,
    ids: UuidGenerator,
    monitors: Monitors,
    clients: Vec<Client>,
}

fn schema() -> Schema {
    let columns = json!({
        "i": {"type": "integer"}, "o": {"type": {"key": "integer", "min": 0}},
        "s": {"type": {"key": "integer", "min": 0, "max": "unlimited"}},
        "m": {"type": {"key": "string", "value": "integer", "min": 0, "max": "unlimited"}}});
    let tables = json!({"A": {"columns": columns}, "B": {"columns": columns}, "C": {"columns": columns}});
    Schema::from_json(&json!({"name": "D", "version": "1.0.0", "tables": tables})).unwrap()
}

impl Rig {
    fn new() -> Rig {
        let mut ids = UuidGenerator::from_seed(11);
        let database = Database::new(schema());
        let monitors = Monitors::new(database.schema().clone(), ids.next_uuid());
        Rig { database, ids, monitors, clients: Vec::new() }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.ids.next_u64() % below
    }

    fn step(&mut self) {
        let table = TableIdx(self.random(3) as u16);
        let rows: Vec<Row> = self.database.rows(table).cloned().collect();
        let choices: Vec<u64> = (0..5).map(|_| self.random(1000)).collect();
        let mut transaction = self.database.begin();
        let mut row = if rows.len() < 4 || choices[0] < 200 {
            let row = transaction.new_row(table, self.ids.next_uuid());
            transaction.insert(table, row.clone()).unwrap();
            row
        } else {
            rows[choices[1] as usize % rows.len()].clone()
        };
        if choices[0] >= 800 && rows.iter().any(|r| r.uuid() == row.uuid()) {
            transaction.delete(table, row.uuid());
        } else {
            let value = choices[3] as i64 % 5;
            let datum = match choices[2] % 4 {
                0 => Datum::scalar(value),
                1 => Datum::map((0..value).map(|k| (k.to_string(), choices[4] as i64 % 3))),
                2 => Datum::optional((value > 1).then_some(value)),
                _ => Datum::set(value..value + 2),
            };
            // Columns by name: i, m, o, s.
            row.set(ColumnIdx(ColumnIdx::FIRST.0 + (choices[2] % 4) as u16), datum);
            transaction.replace(table, row);
        }
        let changes = transaction.commit(&mut self.ids).unwrap();
        if !changes.is_empty() {
            let txn = self.ids.next_uuid();
            self.monitors.commit(txn, Arc::new(changes));
        }
    }

    fn conditions(&mut self) -> Value {
        match self.random(5) {
            0 => json!([]),
            1 => json!([["i", "==", self.random(5)], ["i", "==", self.random(5)]]),
            2 => json!([["s", "includes", self.random(5)]]),
            3 => json!([false]),
            _ => json!([["o", ">=", self.random(5)], ["i", "<", 2]]),
        }
    }

    fn connect(&mut self) {
        let form = [Form::Plain, Form::Conditional, Form::Since][self.random(3) as usize];
        let request = match form {
            Form::Plain => json!({"A": [{"columns": ["i", "m"]}, {"columns": ["s"]}], "C": {}}),
            _ => json!({"C": [{"where": self.conditions()}],
                "A": [{"columns": ["i", "m", "s", "o"], "where": self.conditions()}]}),
        };
        let spec = Spec::from_json(form, self.database.schema(), &request).unwrap();
        let (id, initial) = self.monitors.add(&self.database, &request, spec.clone(), None);
        let mut client = Client { id, form, txn: initial.txn, rows: BTreeMap::new(), spec };
        client.apply(self.database.schema(), &initial.updates);
        self.clients.push(client);
    }

    fn tell(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if let Some(update) = self.monitors.poll(client.id) {
            client.be_told(self.database.schema(), &update);
        }
        client.check(&self.database);
    }

    fn change_conditions(&mut self, at: usize) {
        if self.clients[at].form == Form::Plain {
            return;
        }
        self.tell(at);
        let request = json!({"A": [{"where": self.conditions()}]});
        let client = &mut self.clients[at];
        let update = self.monitors.change_conditions(&self.database, client.id, &request).unwrap();
        client.spec = client.spec.with_conditions(self.database.schema(), &request).unwrap();
        if let Some(update) = update {
            client.be_told(self.database.schema(), &update);
        }
        client.check(&self.database);
    }

    /// Its connection is lost after it was told everything; it asks for what happened since the state whose
    /// name it has.
    fn reconnect(&mut self, at: usize) {
        if self.clients[at].form != Form::Since {
            return;
        }
        self.tell(at);
        if self.random(2) == 0 {
            self.change_conditions(at);
        }
        (0..self.random(3)).for_each(|_| self.step());
        let client = &mut self.clients[at];
        self.monitors.remove(client.id);
        let request = json!({ "again": client.id.0 });
        let (id, initial) =
            self.monitors.add(&self.database, &request, client.spec.clone(), Some(client.txn));
        if !initial.found {
            client.rows.clear();
        }
        (client.id, client.txn) = (id, initial.txn);
        client.apply(self.database.schema(), &initial.updates);
        client.check(&self.database);
    }
}

impl Client {
    fn be_told(&mut self, schema: &Schema, update: &Update) {
        self.txn = update.txn;
        self.apply(schema, &update.updates);
    }

    fn apply(&mut self, schema: &Schema, updates: &[u8]) {
        let updates: Value = serde_json::from_slice(updates).unwrap();
        for (table_name, rows) in updates.as_object().unwrap() {
            let table = schema.table(schema.find(table_name).unwrap());
            let mine = self.rows.entry(table_name.clone()).or_default();
            for (uuid, update) in rows.as_object().unwrap() {
                let update = update.as_object().unwrap();
                if self.form == Form::Plain {
                    match (update.get("old"), update.get("new")) {
                        (None, Some(new)) => {
                            assert!(mine.insert(uuid.clone(), new.as_object().unwrap().clone()).is_none());
                        }
                        (Some(old), None) => {
                            assert_eq!(mine.remove(uuid).map(Value::Object).as_ref(), Some(old))
                        }
                        (Some(old), Some(new)) => {
                            let before = mine.insert(uuid.clone(), new.as_object().unwrap().clone()).unwrap();
                            for (column, value) in old.as_object().unwrap() {
                                assert_eq!(&before[column], value);
                                assert_ne!(&new[column], value);
                            }
                        }
                        (None, None) => panic!("{update:?}"),
                    }
                    continue;
                }
                if update.contains_key("delete") {
                    assert!(mine.remove(uuid).is_some());
                } else if let Some(modify) = update.get("modify") {
                    let row = mine.get_mut(uuid).unwrap();
                    for (name, diff) in modify.as_object().unwrap() {
                        let kind = &table.column(table.find(name).unwrap()).kind;
                        let diff = Datum::from_json_any_size(diff, kind, None).unwrap();
                        let old = Datum::from_json(&row[name], kind, None).unwrap();
                        let new = if kind.max == 1 { diff } else { old.apply_difference(&diff) };
                        assert_ne!(old, new);
                        row.insert(name.clone(), new.to_json(kind));
                    }
                } else {
                    let shown = update.get("insert").or(update.get("initial")).unwrap().as_object().unwrap();
                    let spec = self.spec.tables.iter().find(|t| schema.table(t.table).name == *table_name);
                    let full = spec.unwrap().columns.iter().map(|c| {
                        let column = table.column(c.column);
                        let default = column.default.to_json(&column.kind);
                        (column.name.clone(), shown.get(&column.name).cloned().unwrap_or(default))
                    });
                    assert!(mine.insert(uuid.clone(), full.collect()).is_none());
                }
            }
        }
    }

    #[track_caller]
    fn check(&self, database: &Database) {
        for table in &self.spec.tables {
            let schema = database.schema().table(table.table);
            let expected: BTreeMap<String, Map<String, Value>> = database
                .rows(table.table)
                .filter(|row| table.condition.matches(row))
                .map(|row| {
                    let columns = table.columns.iter().map(|c| {
                        let column = schema.column(c.column);
                        (column.name.clone(), row.get(c.column).to_json(&column.kind))
                    });
                    (row.uuid().to_string(), columns.collect())
                })
                .collect();
            let mine = self.rows.get(&schema.name).cloned().unwrap_or_default();
            assert_eq!(mine, expected);
        }
    }
}

#[test]
fn clients_have_what_the_database_has_however_late_they_listen() {
    let mut rig = Rig::new();
    for step in 0..testkit::cases("ovsdb_monitor", 6_000) {
        rig.step();
        if step % 100 == 0 && rig.clients.len() < 12 {
            rig.connect();
        }
        let at = rig.random(40) as usize;
        if at < rig.clients.len() {
            match rig.random(20) {
                0 => rig.change_conditions(at),
                2 => rig.reconnect(at),
                1 if rig.clients.len() > 4 => {
                    let client = rig.clients.swap_remove(at);
                    rig.monitors.remove(client.id);
                }
                // The first is told rarely, so that what it misses is folded.
                _ if at > 0 || step % 1_500 > 1_480 => rig.tell(at),
                _ => {}
            }
        }
    }
    (0..rig.clients.len()).for_each(|at| rig.tell(at));
    for client in std::mem::take(&mut rig.clients) {
        rig.monitors.remove(client.id);
    }
    assert!(rig.monitors.feeds.is_empty() && rig.monitors.by_key.is_empty());
}

#[test]
fn who_changes_conditions_and_comes_back_is_not_told_of_rows_that_it_never_had() {
    let mut rig = Rig::new();
    let table = TableIdx(0);
    let where_i_is = |i: i64| json!({"A": [{"where": [["i", "==", i]]}]});
    let mut transaction = rig.database.begin();
    let row = transaction.new_row(table, rig.ids.next_uuid());
    transaction.insert(table, row.clone()).unwrap();
    let changes = transaction.commit(&mut rig.ids).unwrap();
    rig.monitors.commit(rig.ids.next_uuid(), Arc::new(changes));
    let spec = Spec::from_json(Form::Since, rig.database.schema(), &where_i_is(5)).unwrap();
    let (id, _) = rig.monitors.add(&rig.database, &where_i_is(5), spec, None);

    // A row that the old condition hides goes; the new one would have shown it.
    let mut transaction = rig.database.begin();
    transaction.delete(table, row.uuid());
    let changes = transaction.commit(&mut rig.ids).unwrap();
    rig.monitors.commit(rig.ids.next_uuid(), Arc::new(changes));
    assert!(rig.monitors.poll(id).is_none());
    let update = rig.monitors.change_conditions(&rig.database, id, &where_i_is(0)).unwrap();
    let update = update.expect("the name of the state in which the conditions changed");
    assert_eq!((&*update.updates, update.txn), (&b"{}"[..], rig.monitors.last_txn()));

    rig.monitors.remove(id);
    let spec = Spec::from_json(Form::Since, rig.database.schema(), &where_i_is(0)).unwrap();
    let (id, again) = rig.monitors.add(&rig.database, &where_i_is(0), spec, Some(update.txn));
    assert_eq!((again.found, &*again.updates), (true, &b"{}"[..]));
    // Nothing has happened since.
    let update = rig.monitors.change_conditions(&rig.database, id, &where_i_is(5)).unwrap();
    assert!(update.is_none());
}

#[test]
fn those_who_ask_for_the_same_are_told_by_one_text() {
    let mut rig = Rig::new();
    let request = json!({"A": [{}]});
    let spec = Spec::from_json(Form::Conditional, rig.database.schema(), &request).unwrap();
    let ids: Vec<MonitorId> =
        (0..100).map(|_| rig.monitors.add(&rig.database, &request, spec.clone(), None).0).collect();
    assert_eq!(rig.monitors.feeds.len(), 1);
    while rig.monitors.behind().is_empty() || rig.database.row_count(TableIdx(0)) == 0 {
        rig.step();
    }
    let texts: Vec<Arc<[u8]>> = ids.iter().map(|&id| rig.monitors.poll(id).unwrap().updates).collect();
    assert!(texts.windows(2).all(|pair| Arc::ptr_eq(&pair[0], &pair[1])));
    assert!(rig.monitors.behind().is_empty());
}
