//! The plainest database that could be: everything in maps of JSON text, the whole copied for each
//! transaction, and every rule of the schema found by looking at all rows. It shares no code with the one
//! that it judges.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// What a column holds: atoms as JSON text, with their values where it is a map.
type Datum = BTreeMap<String, Option<String>>;
type Row = BTreeMap<String, Datum>;
type Tables = BTreeMap<String, BTreeMap<String, Row>>;

/// Ways in which the model can be wrong, to see whether that would be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    KeepsGarbage,
    KeepsDeadWeakReferences,
    AllowsDanglingReferences,
    AllowsDuplicates,
    IgnoresMaxRows,
    KeepsHalfATransaction,
    SelfReferenceKeeps,
    MapInsertReplaces,
}

impl Flaw {
    pub const ALL: [Flaw; 8] = [
        Flaw::KeepsGarbage,
        Flaw::KeepsDeadWeakReferences,
        Flaw::AllowsDanglingReferences,
        Flaw::AllowsDuplicates,
        Flaw::IgnoresMaxRows,
        Flaw::KeepsHalfATransaction,
        Flaw::SelfReferenceKeeps,
        Flaw::MapInsertReplaces,
    ];
}

pub struct Model {
    schema: Value,
    flaw: Flaw,
    pub tables: Tables,
}

/// Something that the rules forbid.
pub struct Refused;

impl Model {
    pub fn new(schema: &Value, flaw: Flaw) -> Model {
        let tables = schema["tables"]
            .as_object()
            .unwrap()
            .keys()
            .map(|name| (name.clone(), BTreeMap::new()))
            .collect();
        Model { schema: schema.clone(), flaw, tables }
    }

    /// The results of the operations, or that they are refused; then nothing has changed.
    pub fn execute(&mut self, operations: &Value) -> Result<Vec<Value>, Refused> {
        let before = self.tables.clone();
        let mut deleted = BTreeSet::new();
        let results: Result<Vec<Value>, Refused> = operations
            .as_array()
            .unwrap()
            .iter()
            .map(|operation| self.operation(operation, &mut deleted))
            .collect();
        let results = results.and_then(|results| self.commit().map(|()| results));
        if results.is_err() && self.flaw != Flaw::KeepsHalfATransaction {
            self.tables = before;
        }
        results
    }

    fn operation(&mut self, operation: &Value, deleted: &mut BTreeSet<String>) -> Result<Value, Refused> {
        let table = operation["table"].as_str().unwrap().to_owned();
        let columns = self.schema["tables"][&table]["columns"].clone();
        let matching = match operation.get("where") {
            Some(condition) => self.matching(&table, condition)?,
            None => Vec::new(),
        };
        match operation["op"].as_str().unwrap() {
            "insert" => {
                let uuid = operation["uuid"].as_str().unwrap().to_owned();
                let mut row = Row::new();
                for (name, schema) in columns.as_object().unwrap() {
                    let datum = match operation["row"].get(name) {
                        Some(json) => read(json, &schema["type"], true)?,
                        None => default(&schema["type"])?,
                    };
                    row.insert(name.clone(), datum);
                }
                if deleted.contains(&uuid) || self.tables[&table].contains_key(&uuid) {
                    return Err(Refused);
                }
                self.tables.get_mut(&table).unwrap().insert(uuid.clone(), row);
                Ok(json!({"uuid": ["uuid", uuid]}))
            }
            "update" => {
                let mut new = Row::new();
                for (name, json) in operation["row"].as_object().unwrap() {
                    if is_fixed(&columns[name]) {
                        return Err(Refused);
                    }
                    new.insert(name.clone(), read(json, &columns[name]["type"], true)?);
                }
                for uuid in &matching {
                    self.tables.get_mut(&table).unwrap().get_mut(uuid).unwrap().extend(new.clone());
                }
                Ok(json!({"count": matching.len()}))
            }
            "mutate" => {
                let mutations = operation["mutations"].as_array().unwrap();
                // A mutation that cannot be is refused whether or not there are rows.
                for mutation in mutations {
                    let schema = &columns[mutation[0].as_str().unwrap()];
                    if is_fixed(schema) || !fits(mutation, &schema["type"]) {
                        return Err(Refused);
                    }
                }
                for uuid in &matching {
                    for mutation in mutations {
                        let name = mutation[0].as_str().unwrap();
                        let old = self.tables[&table][uuid][name].clone();
                        let new = self.mutated(old, mutation, &columns[name]["type"])?;
                        self.tables
                            .get_mut(&table)
                            .unwrap()
                            .get_mut(uuid)
                            .unwrap()
                            .insert(name.to_owned(), new);
                    }
                }
                Ok(json!({"count": matching.len()}))
            }
            "delete" => {
                for uuid in &matching {
                    self.tables.get_mut(&table).unwrap().remove(uuid);
                    deleted.insert(uuid.clone());
                }
                Ok(json!({"count": matching.len()}))
            }
            "select" => {
                let names: Vec<&str> = operation["columns"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|name| name.as_str().unwrap())
                    .collect();
                let rows: Vec<Value> = matching
                    .iter()
                    .map(|uuid| {
                        let mut row = json!({});
                        for name in &names {
                            row[*name] = match *name {
                                "_uuid" => json!(["uuid", uuid]),
                                name => write(&self.tables[&table][uuid][name], &columns[name]["type"]),
                            };
                        }
                        row
                    })
                    .collect();
                Ok(json!({"rows": rows}))
            }
            "wait" => {
                let name = operation["columns"][0].as_str().unwrap();
                let kind = &columns[name]["type"];
                let mut expected = BTreeSet::new();
                for row in operation["rows"].as_array().unwrap() {
                    expected.insert(match row.get(name) {
                        Some(json) => read(json, kind, true)?,
                        None => default_unchecked(kind),
                    });
                }
                let found: BTreeSet<Datum> =
                    matching.iter().map(|uuid| self.tables[&table][uuid][name].clone()).collect();
                if (found == expected) == (operation["until"] == "==") { Ok(json!({})) } else { Err(Refused) }
            }
            other => panic!("{other}"),
        }
    }

    fn matching(&self, table: &str, condition: &Value) -> Result<Vec<String>, Refused> {
        let clauses = condition.as_array().unwrap();
        let mut found = Vec::new();
        for clause in clauses {
            let name = clause[0].as_str().unwrap();
            if name != "_uuid" {
                check_clause(clause, &self.schema["tables"][table]["columns"][name]["type"])?;
            }
        }
        for (uuid, row) in &self.tables[table] {
            let holds = |clause: &Value| {
                let name = clause[0].as_str().unwrap();
                if name == "_uuid" {
                    let equal = clause[2][1].as_str().unwrap() == uuid;
                    return equal == (clause[1] == "==");
                }
                let kind = &self.schema["tables"][table]["columns"][name]["type"];
                let argument = read(&clause[2], kind, false).unwrap_or_else(|Refused| panic!("{clause}"));
                let value = &row[name];
                match clause[1].as_str().unwrap() {
                    "==" => *value == argument,
                    "!=" => *value != argument,
                    "includes" => argument.iter().all(|(k, v)| value.get(k) == Some(v)),
                    "excludes" => argument.iter().all(|(k, v)| value.get(k) != Some(v)),
                    order => match (number(value), number(&argument)) {
                        (Some(a), Some(b)) => (order == "<") == (a < b),
                        _ => false,
                    },
                }
            };
            if clauses.iter().all(holds) {
                found.push(uuid.clone());
            }
        }
        Ok(found)
    }

    fn mutated(&self, old: Datum, mutation: &Value, kind: &Value) -> Result<Datum, Refused> {
        let mut new = old.clone();
        match mutation[1].as_str().unwrap() {
            "insert" => {
                for (key, value) in read(&mutation[2], kind, false)? {
                    if self.flaw == Flaw::MapInsertReplaces {
                        new.insert(key, value);
                    } else {
                        new.entry(key).or_insert(value);
                    }
                }
            }
            "delete" => {
                for (key, value) in read(&mutation[2], kind, false)? {
                    if new.get(&key) == Some(&value) {
                        new.remove(&key);
                    }
                }
            }
            mutator => {
                let operand = mutation[2].as_f64().unwrap();
                new.clear();
                for atom in old.keys() {
                    let result = computed(atom, mutator, operand, name_of(&kind["key"]) == "real")?;
                    check_atom(&result, &kind["key"])?;
                    if new.insert(result.to_string(), None).is_some() {
                        return Err(Refused);
                    }
                }
            }
        }
        let (min, max) = sizes(kind);
        if (min..=max).contains(&new.len()) { Ok(new) } else { Err(Refused) }
    }

    fn commit(&mut self) -> Result<(), Refused> {
        if self.flaw != Flaw::AllowsDanglingReferences {
            for (_, _, table, target) in self.references("strong") {
                if !self.tables[&table].contains_key(&target) {
                    return Err(Refused);
                }
            }
        }
        loop {
            let changed = self.collect_garbage();
            if !(self.prune_weak()? || changed) {
                break;
            }
        }
        for (name, table) in self.schema["tables"].as_object().unwrap() {
            let rows = &self.tables[name];
            if self.flaw != Flaw::IgnoresMaxRows
                && table["maxRows"].as_u64().is_some_and(|max| rows.len() as u64 > max)
            {
                return Err(Refused);
            }
            for index in table["indexes"].as_array().into_iter().flatten() {
                let mut seen = BTreeSet::new();
                for row in rows.values() {
                    let key: Vec<&Datum> =
                        index.as_array().unwrap().iter().map(|name| &row[name.as_str().unwrap()]).collect();
                    if !seen.insert(key) && self.flaw != Flaw::AllowsDuplicates {
                        return Err(Refused);
                    }
                }
            }
        }
        Ok(())
    }

    fn collect_garbage(&mut self) -> bool {
        let mut any = false;
        while self.flaw != Flaw::KeepsGarbage {
            let own_counts = self.flaw == Flaw::SelfReferenceKeeps;
            let held: BTreeSet<(String, String)> = self
                .references("strong")
                .into_iter()
                .filter(|(table, uuid, to, target)| own_counts || (table, uuid) != (to, target))
                .map(|(_, _, to, target)| (to, target))
                .collect();
            let mut changed = false;
            for (name, rows) in &mut self.tables {
                // Where no table says so, all are roots; here the first one always says so.
                if self.schema["tables"][name]["isRoot"] == json!(true) {
                    continue;
                }
                let before = rows.len();
                rows.retain(|uuid, _| held.contains(&(name.clone(), uuid.clone())));
                changed |= rows.len() < before;
            }
            any |= changed;
            if !changed {
                break;
            }
        }
        any
    }

    fn prune_weak(&mut self) -> Result<bool, Refused> {
        if self.flaw == Flaw::KeepsDeadWeakReferences {
            return Ok(false);
        }
        let alive: BTreeSet<(String, String)> = self
            .tables
            .iter()
            .flat_map(|(name, rows)| rows.keys().map(|uuid| (name.clone(), uuid.clone())))
            .collect();
        let mut changed = false;
        for (name, rows) in &mut self.tables {
            for row in rows.values_mut() {
                for (column, datum) in row {
                    let kind = &self.schema["tables"][name]["columns"][column]["type"];
                    let lives = |base: &Value, atom: Option<&String>| {
                        base["refType"] != json!("weak")
                            || atom.is_none_or(|atom| {
                                alive
                                    .contains(&(base["refTable"].as_str().unwrap().to_owned(), uuid_of(atom)))
                            })
                    };
                    let before = datum.len();
                    datum.retain(|key, value| {
                        lives(&kind["key"], Some(key)) && lives(&kind["value"], value.as_ref())
                    });
                    changed |= datum.len() < before;
                    if datum.len() < before && datum.len() < sizes(kind).0 {
                        return Err(Refused);
                    }
                }
            }
        }
        Ok(changed)
    }

    /// From which row, to which row.
    fn references(&self, of: &str) -> Vec<(String, String, String, String)> {
        let mut found = Vec::new();
        for (name, rows) in &self.tables {
            for (uuid, row) in rows {
                for (column, datum) in row {
                    let kind = &self.schema["tables"][name]["columns"][column]["type"];
                    let mut look = |base: &Value, atom: &String| {
                        let is_weak = base["refType"] == json!("weak");
                        if let Some(table) = base["refTable"].as_str()
                            && is_weak == (of == "weak")
                        {
                            found.push((name.clone(), uuid.clone(), table.to_owned(), uuid_of(atom)));
                        }
                    };
                    for (key, value) in datum {
                        look(&kind["key"], key);
                        value.iter().for_each(|value| look(&kind["value"], value));
                    }
                }
            }
        }
        found
    }

    /// All rows, as a select of all columns would give them: by table, UUID and column.
    pub fn dump(&self) -> Value {
        let mut dump = json!({});
        for (name, rows) in &self.tables {
            dump[name] = json!({});
            for (uuid, row) in rows {
                for (column, datum) in row {
                    dump[name][uuid][column] =
                        write(datum, &self.schema["tables"][name]["columns"][column]["type"]);
                }
            }
        }
        dump
    }
}

fn uuid_of(atom: &str) -> String {
    serde_json::from_str::<Value>(atom).unwrap()[1].as_str().unwrap().to_owned()
}

fn is_fixed(column: &Value) -> bool {
    let kind = &column["type"];
    let is_weak = |base: &Value| base["refType"] == json!("weak");
    column["mutable"] == json!(false) && !is_weak(&kind["key"]) && !is_weak(&kind["value"])
}

fn name_of(base: &Value) -> &str {
    base.as_str().or_else(|| base["type"].as_str()).unwrap()
}

fn sizes(kind: &Value) -> (usize, usize) {
    let min = kind.get("min").map_or(1, |min| min.as_u64().unwrap() as usize);
    (min, kind.get("max").map_or(1, |max| max.as_u64().map_or(usize::MAX, |max| max as usize)))
}

fn is_scalar(kind: &Value) -> bool {
    kind.get("value").is_none() && sizes(kind) == (1, 1)
}

fn check_clause(clause: &Value, kind: &Value) -> Result<(), Refused> {
    let function = clause[1].as_str().unwrap();
    let (min, max) = sizes(kind);
    let read = read(&clause[2], kind, false)?;
    let (min, max) = match function {
        "<" | ">="
            if kind.get("value").is_some()
                || max != 1
                || !matches!(name_of(&kind["key"]), "integer" | "real") =>
        {
            return Err(Refused);
        }
        "<" | ">=" => (1, 1),
        "includes" if !is_scalar(kind) => (0, max),
        "excludes" if !is_scalar(kind) => (0, usize::MAX),
        _ => (min, max),
    };
    if (min..=max).contains(&read.len()) { Ok(()) } else { Err(Refused) }
}

fn fits(mutation: &Value, kind: &Value) -> bool {
    let key = name_of(&kind["key"]);
    match mutation[1].as_str().unwrap() {
        "insert" => {
            !is_scalar(kind)
                && read(&mutation[2], kind, false).is_ok_and(|datum| datum.len() <= sizes(kind).1)
        }
        "delete" => !is_scalar(kind) && read(&mutation[2], kind, false).is_ok(),
        mutator => {
            kind.get("value").is_none()
                && (key == "integer" || key == "real" && mutator != "%=")
                && mutation[2].is_number()
        }
    }
}

fn computed(atom: &str, mutator: &str, y: f64, is_real: bool) -> Result<Value, Refused> {
    let x: f64 = atom.parse().unwrap();
    if y == 0.0 && matches!(mutator, "/=" | "%=") {
        return Err(Refused);
    }
    let result = match mutator {
        "+=" => x + y,
        "-=" => x - y,
        "*=" => x * y,
        "/=" if is_real => x / y,
        "/=" => (x / y).trunc(),
        _ => x % y,
    };
    Ok(plain_number(result))
}

/// Whole numbers without a fraction, and no negative zero.
fn plain_number(value: f64) -> Value {
    if value.fract() == 0.0 { json!(value as i64) } else { json!(value) }
}

fn number(datum: &Datum) -> Option<f64> {
    datum.keys().next().map(|atom| atom.parse().unwrap())
}

fn check_atom(atom: &Value, base: &Value) -> Result<(), Refused> {
    let good = match name_of(base) {
        "integer" => {
            let value = atom.as_i64().ok_or(Refused)?;
            base["minInteger"].as_i64().is_none_or(|min| value >= min)
                && base["maxInteger"].as_i64().is_none_or(|max| value <= max)
        }
        "real" => atom.is_number(),
        "boolean" => atom.is_boolean(),
        "string" => {
            let text = atom.as_str().ok_or(Refused)?;
            base["enum"][1].as_array().is_none_or(|words| words.contains(atom))
                && base["maxLength"].as_u64().is_none_or(|max| text.chars().count() as u64 <= max)
        }
        _ => atom[0] == "uuid",
    };
    if good { Ok(()) } else { Err(Refused) }
}

fn read(json: &Value, kind: &Value, check_size: bool) -> Result<Datum, Refused> {
    let mut datum = Datum::new();
    let text = |atom: &Value, base: &Value| {
        check_atom(atom, base)?;
        Ok(if atom.is_number() { plain_number(atom.as_f64().unwrap()).to_string() } else { atom.to_string() })
    };
    match (json[0].as_str(), kind.get("value")) {
        (Some("map"), Some(value)) => {
            for pair in json[1].as_array().unwrap() {
                datum.insert(text(&pair[0], &kind["key"])?, Some(text(&pair[1], value)?));
            }
        }
        (Some("set"), None) => {
            for atom in json[1].as_array().unwrap() {
                datum.insert(text(atom, &kind["key"])?, None);
            }
        }
        _ => {
            datum.insert(text(json, &kind["key"])?, None);
        }
    }
    let (min, max) = sizes(kind);
    if check_size && !(min..=max).contains(&datum.len()) { Err(Refused) } else { Ok(datum) }
}

fn default_atom(base: &Value) -> Value {
    match name_of(base) {
        "integer" | "real" => json!(0),
        "boolean" => json!(false),
        "string" => json!(""),
        _ => json!(["uuid", "00000000-0000-0000-0000-000000000000"]),
    }
}

fn default_unchecked(kind: &Value) -> Datum {
    let mut datum = Datum::new();
    if sizes(kind).0 > 0 {
        let value = kind.get("value").map(|value| default_atom(value).to_string());
        datum.insert(default_atom(&kind["key"]).to_string(), value);
    }
    datum
}

fn default(kind: &Value) -> Result<Datum, Refused> {
    if sizes(kind).0 > 0 {
        check_atom(&default_atom(&kind["key"]), &kind["key"])?;
        if let Some(value) = kind.get("value") {
            check_atom(&default_atom(value), value)?;
        }
    }
    Ok(default_unchecked(kind))
}

/// As the wire has it: one atom bare, else a set or a map.
fn write(datum: &Datum, kind: &Value) -> Value {
    let json = |text: &String| serde_json::from_str::<Value>(text).unwrap();
    if kind.get("value").is_some() {
        let pairs: Vec<Value> = datum.iter().map(|(k, v)| json!([json(k), v.as_ref().map(json)])).collect();
        return json!(["map", pairs]);
    }
    match datum.len() {
        1 => json(datum.keys().next().unwrap()),
        _ => json!(["set", datum.keys().map(json).collect::<Vec<_>>()]),
    }
}

/// A value in which the order of elements says nothing, put in one order.
pub fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(elements) => {
            let mut elements: Vec<Value> = elements.iter().map(sorted).collect();
            let is_tagged =
                matches!(elements.first(), Some(Value::String(tag)) if tag == "set" || tag == "map");
            if is_tagged && let Some(inner) = elements[1].as_array_mut() {
                inner.sort_by_key(Value::to_string);
            }
            Value::Array(elements)
        }
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), sorted(value))).collect(),
        other => other.clone(),
    }
}
