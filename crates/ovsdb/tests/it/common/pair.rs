//! Our database beside a stock server's: the same operations for both, the same replies and rows from both.

use ovsdb::{Atom, Context, Database, Datum, Execution, Outcome, RefKind, Schema, UuidGenerator};
use serde_json::{Map, Value, json};

use super::{StockServer, StockSession};

/// Ours and the stock server's, with the same schema and contents.
pub struct Pair {
    pub ours: Database,
    pub ids: UuidGenerator,
    schema: Value,
    stock: StockSession,
    _server: StockServer,
}

impl Pair {
    /// Two empty databases of `schema`.
    pub fn new(schema: &Value) -> Pair {
        let server = StockServer::with_schema(schema);
        Pair {
            ours: Database::new(Schema::from_json(schema).unwrap()),
            ids: UuidGenerator::from_seed(1),
            schema: schema.clone(),
            stock: server.connect(),
            _server: server,
        }
    }

    /// Runs operations in both and compares. Rows must be inserted with a "uuid", so that both give the same
    /// names.
    pub fn both(&mut self, operations: Value) -> Value {
        let (ours, stock) = self.replies(&operations);
        if std::env::var_os("SHOW_DETAILS").is_some() && first_details(&ours) != first_details(&stock) {
            println!("{ours}\n{stock}\n");
        }
        assert_eq!(
            comparable(&ours),
            comparable(&stock),
            "{operations}\nours: {ours}\nstock: {stock}\n{}",
            self.schema
        );
        let (ours_rows, mut stock_rows) = self.rows();
        self.take_out_dead_weak_references(&mut stock_rows);
        assert_eq!(ours_rows, stock_rows, "rows differ after {operations}\nreply: {ours}");
        ours
    }

    /// Runs operations in both: both replies.
    pub fn replies(&mut self, operations: &Value) -> (Value, Value) {
        let ours = run(&mut self.ours, &mut self.ids, operations).reply.to_json();
        let mut params = vec![self.schema["name"].clone()];
        params.extend(operations.as_array().unwrap().iter().cloned());
        let stock = self.stock.request("transact", Value::Array(params)).unwrap();
        (ours, stock)
    }

    /// Converts the stock server's database to another schema.
    pub fn convert_stock(&mut self, schema: &Value) -> Result<Value, Value> {
        // Unless it says that it can follow, a client is disconnected.
        self.stock.request("set_db_change_aware", json!([true])).unwrap();
        self.stock.request("convert", json!([schema["name"], schema]))
    }

    /// From now on the databases have this schema.
    pub fn set_schema(&mut self, schema: &Value) {
        self.schema = schema.clone();
    }

    /// All rows of ours and of the stock server's, without versions, in the same order.
    pub fn rows(&mut self) -> (Value, Value) {
        let selects: Vec<Value> = self.schema["tables"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(table, schema)| {
                let mut columns: Vec<&str> =
                    schema["columns"].as_object().unwrap().keys().map(String::as_str).collect();
                columns.push("_uuid");
                json!({"op": "select", "table": table, "where": [], "columns": columns})
            })
            .collect();
        let (ours, stock) = self.replies(&Value::Array(selects));
        (comparable(&ours), comparable(&stock))
    }
}

impl Pair {
    /// The stock server 3.1 leaves a weak reference to a row that goes, where the row that holds it is
    /// changed in the same transaction. RFC 7047 wants it taken out, and ours does, so that is where the two
    /// may differ.
    fn take_out_dead_weak_references(&self, replies: &mut Value) {
        let schema = self.ours.schema().clone();
        let selected = schema.tables().iter().zip(replies.as_array_mut().unwrap());
        for (table, reply) in selected {
            for row in reply["rows"].as_array_mut().unwrap() {
                for (_, column) in table.named_columns().filter(|(_, column)| !column.references.is_empty()) {
                    let datum = Datum::from_json_any_size(&row[&column.name], &column.kind, None).unwrap();
                    let lives = |atom: Option<&Atom>, in_values: bool| {
                        column
                            .references
                            .iter()
                            .filter(|r| r.in_values == in_values && r.kind == RefKind::Weak)
                            .all(|r| {
                                atom.and_then(Atom::as_uuid)
                                    .is_none_or(|uuid| self.ours.row(r.table, uuid).is_some())
                            })
                    };
                    let kept = datum.filter(|key, value| lives(Some(key), false) && lives(value, true));
                    row[&column.name] = kept.to_json(&column.kind);
                }
            }
        }
    }
}

/// Runs operations in `database`; none may wait.
pub fn run(database: &mut Database, ids: &mut UuidGenerator, operations: &Value) -> Outcome {
    let mut context = Context {
        ids,
        has_lock: &|_| false,
        elapsed_ms: 0,
        read_only: false,
        principal: ovsdb::Principal::ROOT,
        room: None,
    };
    match database.execute(operations.as_array().unwrap(), &mut context) {
        Execution::Done(outcome) => outcome,
        Execution::Pending { .. } => panic!("waits: {operations}"),
    }
}

fn first_details(reply: &Value) -> Option<&str> {
    reply.as_array()?.iter().find_map(|result| result["details"].as_str())
}

/// A reply without what may differ: details for people, versions, and the order of rows.
pub fn comparable(reply: &Value) -> Value {
    match reply {
        Value::Array(elements) => Value::Array(elements.iter().map(comparable).collect()),
        Value::Object(members) => {
            // The stock server has no name for it but "ovsdb error".
            if members.get("error") == Some(&json!("ovsdb error"))
                && members["details"].as_str().unwrap().contains("contains duplicate")
            {
                return json!({"error": "constraint violation"});
            }
            let kept = |name: &str| !matches!(name, "details" | "syntax" | "_version");
            let members: Map<String, Value> = members
                .iter()
                .filter(|(name, _)| kept(name))
                .map(|(name, value)| {
                    let mut value = comparable(value);
                    if name == "rows"
                        && let Some(rows) = value.as_array_mut()
                    {
                        rows.sort_by_key(|row| (row["_uuid"].to_string(), row.to_string()));
                    }
                    (name.clone(), value)
                })
                .collect();
            Value::Object(members)
        }
        other => other.clone(),
    }
}
