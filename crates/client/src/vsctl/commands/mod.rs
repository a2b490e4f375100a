//! The commands of `vsctl`: pure functions from a [`Replica`] to a [`Transaction`] and the output to print.
//!
//! A command line is [parsed](parse_chain) into commands. [`prepare`] determines which tables and columns
//! they need and rejects what can be rejected without a database. Once the replica has those, [`run`] runs
//! the commands one after the other in one transaction, each seeing the changes of those before it. The
//! caller commits it, and prints [`outputs`] once it has taken effect; if it must be tried again, the
//! commands run again on the newer rows.
//!
//! - [`command`]: commands, their options and arguments, the context that they run in.
//! - [`names`], `condition`: words that mean tables, columns, records and conditions.
//! - `database`, `show`: commands on the rows of any table.
//! - [`model`]: bridges with their fake bridges, ports and interfaces; `bridges`, `ports`, `settings`,
//!   `zones`: the commands on these.
//!
//! Source: ovs-vsctl(8). Output and errors are the stock tool's; tests run both.

pub mod command;
pub mod lookup;
mod model;
pub mod names;

mod bridges;
mod condition;
mod database;
mod ports;
mod records;
mod settings;
mod show;
mod zones;

pub use command::{Command, Stop, Warning, parse_chain};

use std::collections::BTreeMap;

use command::{Context, Prepare, Spec};

use crate::ctl::table::Table;
use ovsdb::replica::{Committed, Replica, Selection, Transaction};
use ovsdb::{Row, Schema, Uuid, UuidGenerator};

const MANY: usize = usize::MAX;

macro_rules! commands {
    (@ reads) => { false };
    (@ writes) => { true };
    ($($name:literal $access:ident $min:literal..$max:expr, $args:literal, $options:literal, $prepare:path, $run:path;)*) => {
        &[$(Spec {
            name: $name, min: $min, max: $max, args: $args, options: $options, writes: commands!(@ $access), prepare: $prepare, run: $run,
        }),*]
    };
}

/// Every command.
#[rustfmt::skip]
pub static COMMANDS: &[Spec] = commands! {
    "init" writes 0..0, "", "", database::prepare_nothing, bridges::init;
    "show" reads 0..0, "", "", show::prepare, show::show;
    "emer-reset" writes 0..0, "", "", bridges::prepare_emer_reset, bridges::emer_reset;

    "add-br" writes 1..3, "!NEW-BRIDGE ?PARENT ?NEW-VLAN", "--may-exist", bridges::prepare, bridges::add_br;
    "del-br" writes 1..1, "!BRIDGE", "--if-exists", bridges::prepare, bridges::del_br;
    "list-br" reads 0..0, "", "--real,--fake", bridges::prepare, bridges::list_br;
    "br-exists" reads 1..1, "!BRIDGE", "", bridges::prepare, bridges::br_exists;
    "br-to-vlan" reads 1..1, "!BRIDGE", "", bridges::prepare, bridges::br_to_vlan;
    "br-to-parent" reads 1..1, "!BRIDGE", "", bridges::prepare, bridges::br_to_parent;
    "br-set-external-id" writes 2..3, "!BRIDGE !KEY ?VALUE", "", bridges::prepare_external_id, bridges::br_set_external_id;
    "br-get-external-id" reads 1..2, "!BRIDGE ?KEY", "", bridges::prepare_external_id, bridges::br_get_external_id;

    "list-ports" reads 1..1, "!BRIDGE", "", bridges::prepare, ports::list_ports;
    "add-port" writes 2..MANY, "!BRIDGE !NEW-PORT *COLUMN?:KEY=VALUE", "--may-exist", ports::prepare_add_port, ports::add_port;
    "del-port" writes 1..2, "?BRIDGE !PORT|IFACE", "--if-exists,--with-iface", bridges::prepare, ports::del_port;
    "port-to-br" reads 1..1, "!PORT", "", bridges::prepare, ports::port_to_br;
    "add-bond" writes 4..MANY, "!BRIDGE !BOND +IFACE *COLUMN?:KEY=VALUE", "--may-exist,--fake-iface", ports::prepare_add_bond, ports::add_bond;
    "add-bond-iface" writes 2..2, "!BOND !IFACE", "--may-exist", bridges::prepare, ports::add_bond_iface;
    "del-bond-iface" writes 1..2, "?BOND !IFACE", "--if-exists", bridges::prepare, ports::del_bond_iface;
    "list-ifaces" reads 1..1, "!BRIDGE", "", bridges::prepare, ports::list_ifaces;
    "iface-to-br" reads 1..1, "!IFACE", "", bridges::prepare, ports::iface_to_br;

    "get-controller" reads 1..1, "!BRIDGE", "", settings::prepare_controllers, settings::get_controller;
    "del-controller" writes 1..1, "!BRIDGE", "", settings::prepare_controllers, settings::del_controller;
    "set-controller" writes 1..MANY, "!BRIDGE +TARGET", "--inactivity-probe=", settings::prepare_controllers, settings::set_controller;
    "get-fail-mode" reads 1..1, "!BRIDGE", "", bridges::prepare, settings::get_fail_mode;
    "del-fail-mode" writes 1..1, "!BRIDGE", "", bridges::prepare, settings::del_fail_mode;
    "set-fail-mode" writes 2..2, "!BRIDGE !MODE", "", bridges::prepare, settings::set_fail_mode;

    "get-manager" reads 0..0, "", "", settings::prepare_managers, settings::get_manager;
    "del-manager" writes 0..0, "", "", settings::prepare_managers, settings::del_manager;
    "set-manager" writes 1..MANY, "+TARGET", "--inactivity-probe=", settings::prepare_managers, settings::set_manager;

    "get-ssl" reads 0..0, "", "", settings::prepare_ssl, settings::get_ssl;
    "del-ssl" writes 0..0, "", "", settings::prepare_ssl, settings::del_ssl;
    "set-ssl" writes 3..3, "!PRIVATE-KEY !CERTIFICATE !CA-CERT", "--bootstrap", settings::prepare_ssl, settings::set_ssl;

    "add-aa-mapping" writes 3..3, "!BRIDGE !ARG !ARG", "", settings::prepare_auto_attach, settings::add_aa_mapping;
    "del-aa-mapping" writes 3..3, "!BRIDGE !ARG !ARG", "", settings::prepare_auto_attach, settings::del_aa_mapping;
    "get-aa-mapping" reads 1..1, "!BRIDGE", "", settings::prepare_auto_attach, settings::get_aa_mapping;

    "add-zone-tp" writes 3..18, "", "--may-exist", zones::prepare, zones::add_zone_tp;
    "del-zone-tp" writes 2..2, "", "--if-exists", zones::prepare, zones::del_zone_tp;
    "list-zone-tp" reads 1..1, "", "", zones::prepare, zones::list_zone_tp;
    "list-dp-cap" reads 1..1, "", "", zones::prepare, zones::list_dp_cap;

    "comment" reads 0..MANY, "*ARG", "", database::prepare_nothing, database::comment;
    "get" reads 2..MANY, "!TABLE !RECORD *COLUMN?:KEY", "--if-exists,--id=", database::prepare_get, database::get;
    "list" reads 1..MANY, "!TABLE *RECORD", "--if-exists,--columns=", database::prepare_list, database::list;
    "find" reads 1..MANY, "!TABLE *COLUMN?:KEY=VALUE", "--columns=", database::prepare_find, database::find;
    "set" writes 3..MANY, "!TABLE !RECORD +COLUMN?:KEY=VALUE", "--if-exists", database::prepare_set, database::set;
    "add" writes 4..MANY, "!TABLE !RECORD !COLUMN +?KEY=VALUE", "--if-exists", database::prepare_column, database::add;
    "remove" writes 4..MANY, "!TABLE !RECORD !COLUMN +KEY|VALUE|KEY=VALUE", "--if-exists", database::prepare_column, database::remove;
    "clear" writes 3..MANY, "!TABLE !RECORD +COLUMN", "--if-exists", database::prepare_clear, database::clear;
    "create" writes 2..MANY, "!TABLE +COLUMN?:KEY=VALUE", "--id=", database::prepare_create, database::create;
    "destroy" writes 1..MANY, "!TABLE *RECORD", "--if-exists,--all", database::prepare_destroy, database::destroy;
    "wait-until" reads 2..MANY, "!TABLE !RECORD *COLUMN?:KEY=VALUE", "", database::prepare_wait_until, database::wait_until;
};

/// The tables and columns that commands need, and the warnings that need no database.
///
/// # Errors
/// Commands that cannot succeed: an unknown table or column, an argument of the wrong form.
pub fn prepare(
    commands: &[Command],
    schema: &Schema,
    warnings: &mut Vec<Warning>,
) -> Result<Selection, String> {
    let mut selection = Selection::new();
    selection.add_column("Open_vSwitch", "next_cfg");
    selection.add_column("Open_vSwitch", "cur_cfg");
    for command in commands {
        let mut prepare = Prepare { schema, selection: &mut selection, command, warnings };
        (command.spec.prepare)(&mut prepare)?;
    }
    Ok(selection)
}

/// How to run commands.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The comment for the server's log about the transaction.
    pub comment: String,
    /// `--dry-run`.
    pub is_dry_run: bool,
    /// Counts `next_cfg` up, so that it can be waited for.
    pub counts: bool,
}

/// A run that came to its end.
#[derive(Debug)]
pub struct Ran {
    /// The transaction to commit.
    pub transaction: Transaction,
    /// Interfaces that were added, as the transaction calls them.
    pub new_interfaces: Vec<Uuid>,
    results: Vec<CommandResult>,
}

#[derive(Debug)]
struct CommandResult {
    output: String,
    table: Option<Table>,
    created: Option<Uuid>,
}

/// The output of a command.
#[derive(Debug)]
pub enum Output {
    /// Text, with its newlines.
    Text(String),
    /// A table, in the style that the options say.
    Table(Table),
}

/// Runs commands on the rows of `replica`, which must have its schema. Warnings are appended whatever the
/// outcome.
pub fn run(
    commands: &[Command],
    replica: &Replica,
    settings: &Settings,
    uuids: &mut UuidGenerator,
    warnings: &mut Vec<Warning>,
) -> Result<Ran, Stop> {
    let mut txn = replica.begin();
    if settings.is_dry_run {
        txn.set_dry_run();
    }
    txn.comment(&settings.comment);
    let lacks = || Stop::Fatal(format!("{} database lacks Open_vSwitch table", replica.database()));
    let table = txn.schema().find("Open_vSwitch").ok_or_else(lacks)?;
    let existing = txn.table(table).iter().next().map(Row::uuid);
    let root = match existing {
        Some(root) => root,
        None => {
            let root = uuids.next_uuid();
            txn.insert(table, root);
            root
        }
    };
    if settings.counts
        && let Some(column) = txn.schema().table(table).find("next_cfg")
    {
        txn.increment(table, root, column);
    }
    let Some(first) = commands.first() else { return Err(Stop::Fatal("no command".into())) };
    let mut ctx = Context {
        txn,
        root,
        symbols: BTreeMap::new(),
        uuids,
        command: first,
        is_last: false,
        output: String::new(),
        table: None,
        created: None,
        warnings: Vec::new(),
        model: None,
        new_interfaces: Vec::new(),
        ports_verified: false,
    };
    let mut results = Vec::new();
    for (idx, command) in commands.iter().enumerate() {
        ctx.command = command;
        ctx.is_last = idx + 1 == commands.len();
        let done = (command.spec.run)(&mut ctx);
        warnings.append(&mut ctx.warnings);
        done?;
        results.push(CommandResult {
            output: std::mem::take(&mut ctx.output),
            table: ctx.table.take(),
            created: ctx.created.take(),
        });
    }
    check_symbols(&ctx, warnings)?;
    Ok(Ran { transaction: ctx.txn, new_interfaces: ctx.new_interfaces, results })
}

/// Undefined names, and rows that would be garbage-collected.
fn check_symbols(ctx: &Context<'_>, warnings: &mut Vec<Warning>) -> Result<(), Stop> {
    for (name, symbol) in &ctx.symbols {
        if !symbol.is_created {
            return Err(Stop::Fatal(format!(
                "row id \"{name}\" is referenced but never created (e.g. with \"-- --id={name} create ...\")"
            )));
        }
        if !symbol.has_strong {
            let what = match symbol.has_weak {
                true => "only a weak reference",
                false => "no reference",
            };
            let text = format!(
                "row id \"{name}\" was created but {what} to it was inserted, so it will not actually appear in the database"
            );
            warnings.push(Warning { module: "vsctl", text });
        }
    }
    Ok(())
}

/// The output of each command, once its transaction has taken effect. `committed` is `None` if there was
/// nothing to change.
pub fn outputs(ran: Ran, committed: Option<&Committed>) -> Vec<Output> {
    let output = |result: CommandResult| match (result.table, result.created) {
        (Some(table), _) => Output::Table(table),
        (None, Some(uuid)) => {
            let made = committed.and_then(|committed| committed.uuid_of(uuid)).unwrap_or(uuid);
            Output::Text(format!("{made}\n"))
        }
        (None, None) => Output::Text(result.output),
    };
    ran.results.into_iter().map(output).collect()
}

#[cfg(test)]
mod tests;
