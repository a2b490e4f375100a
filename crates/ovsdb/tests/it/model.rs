//! Random transactions on databases of random schemas, against a plain model; and after each of them what
//! must always hold, found by looking at everything.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::model::{Flaw, Model, sorted};
use crate::common::pair::{comparable, run};
use crate::common::random::{Features, Random, schema, transaction};
use ovsdb::{Changes, Database, Datum, RefKind, Row, Schema, UuidGenerator};
use serde_json::{Value, json};

/// Runs `transactions` random ones on a database of a random schema and on the model: how many were in force,
/// or the first difference.
fn compare(seed: u64, transactions: usize, flaw: Flaw) -> Result<usize, String> {
    let mut random = Random::new(seed);
    let schema = schema(&mut random, Features { weak_references: true });
    let mut ours = Database::new(Schema::from_json(&schema).unwrap());
    let mut model = Model::new(&schema, flaw);
    let mut ids = UuidGenerator::from_seed(seed);
    let mut in_force = 0;
    for _ in 0..transactions {
        let operations = transaction(&mut random, &schema);
        let before = ours.snapshot();
        let outcome = run(&mut ours, &mut ids, &operations);
        let reply = outcome.reply.to_json();
        let is_refused = reply.as_array().unwrap().iter().any(|result| result.get("error").is_some());
        let report = |what: &str| format!("seed {seed}: {what}\n{schema}\n{operations}\n{reply}");
        match model.execute(&operations) {
            Err(_) if is_refused => {}
            Ok(results) if !is_refused => {
                in_force += 1;
                if sorted(&comparable(&reply)) != sorted(&comparable(&Value::Array(results))) {
                    return Err(report("other results"));
                }
            }
            _ => return Err(report("only one refuses it")),
        }
        if dump(&ours) != sorted(&model.dump()) {
            return Err(report(&format!("other rows\n{}\n{}", dump(&ours), sorted(&model.dump()))));
        }
        check_changes(&before, &ours, &outcome.changes).map_err(|what| report(&what))?;
        check_invariants(&ours).map_err(|what| report(&what))?;
        // What a log cannot take is taken back, and then done again.
        if random.once_in(4) && !outcome.changes.is_empty() {
            let after = dump(&ours);
            ours.revert(&outcome.changes);
            check_invariants(&ours).map_err(|what| report(&format!("after reverting: {what}")))?;
            let again = run(&mut ours, &mut ids, &operations);
            if again.changes.len() != outcome.changes.len() || dump(&ours) != after {
                return Err(report("other changes after reverting"));
            }
        }
    }
    Ok(in_force)
}

fn dump(database: &Database) -> Value {
    let mut dump = json!({});
    for (table, schema) in database.schema().tables_with_idx() {
        dump[&schema.name] = json!({});
        for row in database.rows(table) {
            for (column, column_schema) in schema.named_columns() {
                let value = row.get(column).to_json(&column_schema.kind);
                dump[&schema.name][row.uuid().to_string()][&column_schema.name] = value;
            }
        }
    }
    sorted(&dump)
}

/// Changes are exactly the difference between before and after, each row once.
fn check_changes(before: &ovsdb::Snapshot, after: &Database, changes: &Changes) -> Result<(), String> {
    let mut expected = Vec::new();
    for (table, _) in after.schema().tables_with_idx() {
        let old: BTreeMap<_, &Row> = before.rows(table).map(|row| (row.uuid(), row)).collect();
        let new: BTreeMap<_, &Row> = after.rows(table).map(|row| (row.uuid(), row)).collect();
        for uuid in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
            let (old, new) = (old.get(uuid).copied(), new.get(uuid).copied());
            if old != new {
                expected.push((table, *uuid, old.cloned(), new.cloned()));
            }
        }
    }
    let told: Vec<_> = changes.iter().map(|c| (c.table, c.uuid, c.old.clone(), c.new.clone())).collect();
    if told != expected {
        return Err(format!("changes {told:?}, but {expected:?} changed"));
    }
    for change in changes {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && (old.version() == new.version() || old.changed_columns(new).next().is_none())
        {
            return Err("a change that changes nothing".to_owned());
        }
    }
    Ok(())
}

fn check_invariants(database: &Database) -> Result<(), String> {
    let schema = database.schema();
    let mut referred = BTreeSet::new();
    for (table, table_schema) in schema.tables_with_idx() {
        if database.row_count(table) != database.rows(table).count()
            || database.row_count(table) > table_schema.max_rows as usize
        {
            return Err(format!("{} has {} rows", table_schema.name, database.row_count(table)));
        }
        for row in database.rows(table) {
            for (column, column_schema) in table_schema.named_columns() {
                for reference in &column_schema.references {
                    let datum: &Datum = row.get(column);
                    let atoms: Vec<_> =
                        if reference.in_values { datum.values().collect() } else { datum.keys().collect() };
                    for target in atoms.into_iter().filter_map(|atom| atom.as_uuid()) {
                        if database.row(reference.table, target).is_none() {
                            return Err(format!(
                                "{} of {} leads nowhere",
                                column_schema.name, table_schema.name
                            ));
                        }
                        if reference.kind == RefKind::Strong
                            && (reference.table, target) != (table, row.uuid())
                        {
                            referred.insert((reference.table, target));
                        }
                    }
                }
            }
        }
        for index in &table_schema.indexes {
            let mut seen = BTreeSet::new();
            for row in database.rows(table) {
                let key: Vec<Datum> = index.iter().map(|column| row.get(*column).clone()).collect();
                let values: Vec<_> = index.iter().copied().zip(&key).collect();
                let found = database.find_by_index(table, &values).ok_or("no index")?;
                if found.len() != 1 || !found[0].is_same(row) || !seen.insert(key.clone()) {
                    return Err(format!("{} is not unique in {}", found.len(), table_schema.name));
                }
            }
        }
    }
    for (table, table_schema) in schema.tables_with_idx().filter(|(_, schema)| !schema.is_root) {
        if let Some(row) = database.rows(table).find(|row| !referred.contains(&(table, row.uuid()))) {
            return Err(format!("nothing refers to {} of {}", row.uuid(), table_schema.name));
        }
    }
    Ok(())
}

#[test]
fn random_transactions_do_what_the_model_says_and_keep_the_invariants() {
    let seeds =
        testkit::cases("ovsdb::random_transactions_do_what_the_model_says_and_keep_the_invariants", 150);
    let mut in_force = 0;
    for seed in 0..u64::from(seeds) {
        in_force += compare(seed, 60, Flaw::None).unwrap_or_else(|difference| panic!("{difference}"));
    }
    // Random transactions that are all refused would test little.
    assert!(in_force > seeds as usize * 12, "{in_force} of {} in force", seeds * 60);
}

#[test]
fn every_flaw_of_the_model_is_found() {
    for flaw in Flaw::ALL {
        let found = (0..400).any(|seed| compare(seed, 60, flaw).is_err());
        assert!(found, "{flaw:?} went unnoticed");
    }
}
