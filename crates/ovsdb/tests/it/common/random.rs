//! Random schemas and transactions, small enough that rows meet: few names, few values, references that often
//! lead somewhere.

use ovsdb::UuidGenerator;
use serde_json::{Map, Value, json};

/// Random numbers from a seed.
pub struct Random(UuidGenerator);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(UuidGenerator::from_seed(seed))
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.0.next_u64() % end as u64) as usize
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Which things random schemas may have.
#[derive(Clone, Copy)]
pub struct Features {
    pub weak_references: bool,
}

/// How many rows of a table have names to choose from.
const NAMES: usize = 8;

/// The `n`th name of the rows of `table`.
pub fn row_name(table: usize, n: usize) -> String {
    format!("{n:04x}{table:04x}-0000-4000-8000-000000000000")
}

/// A schema of two to four tables, `T0` and so on, the first of which is a root.
pub fn schema(random: &mut Random, features: Features) -> Value {
    let tables = 2 + random.below(3);
    let mut members = Map::new();
    for table in 0..tables {
        let mut columns = Map::new();
        for column in 0..2 + random.below(5) {
            let mut schema = json!({"type": column_type(random, tables, features)});
            if random.once_in(12) {
                schema["mutable"] = json!(false);
            }
            columns.insert(format!("c{column}"), schema);
        }
        let mut schema = json!({"columns": columns, "isRoot": table == 0 || random.once_in(2)});
        if random.once_in(3) {
            schema["indexes"] = json!([["c0"]]);
        } else if random.once_in(4) {
            schema["indexes"] = json!([["c1", "c0"]]);
        }
        if random.once_in(5) {
            schema["maxRows"] = json!(1 + random.below(4));
        }
        members.insert(format!("T{table}"), schema);
    }
    json!({"name": "Random", "version": "1.0.0", "tables": members})
}

fn column_type(random: &mut Random, tables: usize, features: Features) -> Value {
    let key = base_type(random, tables, features);
    let mut kind = json!({"key": key});
    if random.once_in(3) {
        kind["value"] = base_type(random, tables, features);
    }
    match random.below(5) {
        0 | 1 if kind.get("value").is_none() => {}
        2 => {
            kind["min"] = json!(0);
            kind["max"] = json!(1 + random.below(3));
        }
        3 if random.once_in(3) => kind["max"] = json!("unlimited"),
        _ => {
            kind["min"] = json!(0);
            kind["max"] = json!("unlimited");
        }
    }
    kind
}

fn base_type(random: &mut Random, tables: usize, features: Features) -> Value {
    match random.below(10) {
        0 => json!("integer"),
        1 => json!({"type": "integer", "minInteger": -2, "maxInteger": 6}),
        2 => json!("real"),
        3 => json!("boolean"),
        4 => json!("string"),
        5 => json!({"type": "string", "enum": ["set", ["", "a", "b"]]}),
        6 => json!({"type": "string", "maxLength": 1}),
        7 if features.weak_references => {
            json!({"type": "uuid", "refTable": format!("T{}", random.below(tables)), "refType": "weak"})
        }
        7 => json!("uuid"),
        _ => json!({"type": "uuid", "refTable": format!("T{}", random.below(tables))}),
    }
}

/// One to four operations on a database of `schema`, most of which make sense.
pub fn transaction(random: &mut Random, schema: &Value) -> Value {
    let operations = 1 + random.below(4);
    Value::Array((0..operations).map(|_| operation(random, schema)).collect())
}

fn operation(random: &mut Random, schema: &Value) -> Value {
    let tables = schema["tables"].as_object().unwrap();
    let number = random.below(tables.len());
    let table = format!("T{number}");
    let columns = &tables[&table]["columns"];
    match random.below(12) {
        0..4 => {
            json!({"op": "insert", "table": table, "uuid": row_name(number, random.below(NAMES)), "row": row(random, columns)})
        }
        4 | 5 => {
            json!({"op": "update", "table": table, "where": condition(random, number, columns), "row": row(random, columns)})
        }
        6 | 7 => {
            json!({"op": "mutate", "table": table, "where": condition(random, number, columns), "mutations": mutations(random, columns)})
        }
        8 => json!({"op": "delete", "table": table, "where": condition(random, number, columns)}),
        9 | 10 => {
            let name = column(random, columns).0;
            json!({"op": "select", "table": table, "where": condition(random, number, columns), "columns": [name, "_uuid"]})
        }
        _ => {
            let name = column(random, columns).0;
            json!({"op": "wait", "timeout": 0, "table": table, "where": condition(random, number, columns), "columns": [name],
                "until": random.pick(&["==", "!="]), "rows": [row(random, &json!({name.clone(): columns[&name]}))]})
        }
    }
}

fn column<'a>(random: &mut Random, columns: &'a Value) -> (String, &'a Value) {
    let columns = columns.as_object().unwrap();
    let (name, schema) = columns.iter().nth(random.below(columns.len())).unwrap();
    (name.clone(), &schema["type"])
}

fn row(random: &mut Random, columns: &Value) -> Value {
    let mut row = Map::new();
    for (name, schema) in columns.as_object().unwrap() {
        if schema["mutable"] == json!(false) && !random.once_in(6) || random.once_in(3) {
            continue;
        }
        row.insert(name.clone(), datum(random, &schema["type"]));
    }
    Value::Object(row)
}

fn condition(random: &mut Random, table: usize, columns: &Value) -> Value {
    let by_name = || json!(["uuid", row_name(table, 0)]);
    let mut name_of_a_row = by_name();
    name_of_a_row[1] = json!(row_name(table, random.below(NAMES)));
    match random.below(6) {
        0 => json!([]),
        1 | 2 => json!([["_uuid", "==", name_of_a_row]]),
        3 => json!([["_uuid", "!=", name_of_a_row]]),
        _ => {
            let (name, kind) = column(random, columns);
            let function = *random.pick(&["==", "!=", "includes", "excludes", "<", ">="]);
            json!([[name, function, datum(random, kind)]])
        }
    }
}

fn mutations(random: &mut Random, columns: &Value) -> Value {
    let count = 1 + random.below(2);
    (0..count)
        .map(|_| {
            let (name, kind) = column(random, columns);
            let is_numeric = matches!(key_type(kind), "integer" | "real") && kind.get("value").is_none();
            if is_numeric && !random.once_in(3) {
                let mutator = *random.pick(&["+=", "-=", "*=", "/=", "%="]);
                return json!([name, mutator, random.below(4) as i64 - 1]);
            }
            json!([name, random.pick(&["insert", "delete"]), datum(random, kind)])
        })
        .collect()
}

fn key_type(kind: &Value) -> &str {
    let key = &kind["key"];
    key.as_str().or_else(|| key["type"].as_str()).unwrap()
}

/// A value of that type; one in twenty breaks a constraint.
fn datum(random: &mut Random, kind: &Value) -> Value {
    let (min, max) = (kind.get("min").map_or(1, |min| min.as_u64().unwrap()), kind.get("max"));
    let max = max.map_or(1, |max| max.as_u64().unwrap_or(4));
    let wanted = min as usize + random.below((max - min) as usize + 1);
    let mut keys: Vec<Value> = Vec::new();
    for _ in 0..wanted {
        let key = atom(random, &kind["key"]);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    match kind.get("value") {
        Some(value) => {
            let pairs: Vec<Value> = keys.into_iter().map(|key| json!([key, atom(random, value)])).collect();
            json!(["map", pairs])
        }
        None if keys.len() == 1 => keys.remove(0),
        None => json!(["set", keys]),
    }
}

fn atom(random: &mut Random, base: &Value) -> Value {
    let kind = base.as_str().or_else(|| base["type"].as_str()).unwrap();
    match kind {
        "integer" if random.once_in(20) => json!(1000),
        "integer" => json!(random.below(7) as i64 - 1),
        "real" => json!(random.below(8) as f64 / 2.0 - 1.0),
        "boolean" => json!(random.once_in(2)),
        "string" if random.once_in(20) => json!("long"),
        "string" => json!(random.pick(&["", "a", "b"])),
        _ => {
            let table = base["refTable"].as_str().map_or(0, |table| table[1..].parse().unwrap());
            let beyond = if random.once_in(20) { NAMES } else { 0 };
            json!(["uuid", row_name(table, beyond + random.below(NAMES))])
        }
    }
}
