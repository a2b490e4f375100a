//! The commands of a database server's control socket, with Open vSwitch's texts (ovsdb-server(1), "Runtime
//! management commands").

use super::config_file::ConfigFile;
use super::databases;
use super::remote_options::Overrides;
use super::service::Service;
use super::state::State;
use host::program;
use ovsdb::server::SERVER_DATABASE;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use transport::unixctl::{self, Command, Request};

/// The context of commands.
pub(super) struct Context {
    service: Rc<Service>,
    /// Work that is left to do and to wait for.
    later: Option<Later>,
}

/// The part of a command that takes time.
enum Later {
    AddRemote(String),
    Compact(Vec<String>),
    Reload(ConfigFile),
}

type Answer = Result<String, String>;

const fn row(
    name: &'static str,
    usage: &'static str,
    args_min: usize,
    args_max: usize,
    run: fn(&mut Context, &[String]) -> Answer,
) -> Command<Context> {
    Command { name, usage, args_min, args_max, run }
}

const COMMANDS: [Command<Context>; 29] = [
    row("coverage/read-counter", "COUNTER", 1, 1, read_counter),
    row("coverage/show", "", 0, 0, coverage),
    row("exit", "", 0, 0, exit),
    row("memory/show", "", 0, 0, |c, _| Ok(memory_usage(&c.service))),
    row("ovsdb-server/add-db", "DB", 1, 1, add_db),
    row("ovsdb-server/add-remote", "REMOTE", 1, 1, add_remote),
    row("ovsdb-server/compact", "", 0, 1, compact),
    row("ovsdb-server/connect-active-ovsdb-server", "", 0, 0, connect_active),
    row("ovsdb-server/disconnect-active-ovsdb-server", "", 0, 0, disconnect_active),
    row("ovsdb-server/get-active-ovsdb-server", "", 0, 0, |c, _| Ok(lines(c.service.replication.source()))),
    row("ovsdb-server/get-db-storage-status", "DB", 1, 1, storage_status),
    row("ovsdb-server/get-sync-exclude-tables", "", 0, 0, get_exclude),
    row("ovsdb-server/list-dbs", "", 0, 0, list_dbs),
    row("ovsdb-server/list-remotes", "", 0, 0, |c, _| Ok(lines(c.service.remotes.list()))),
    row("ovsdb-server/memory-trim-on-compaction", "on|off", 1, 1, trim),
    row("ovsdb-server/perf-counters-clear", "", 0, 0, |_, _| nothing()),
    row("ovsdb-server/perf-counters-show", "", 0, 0, show_counters),
    row("ovsdb-server/reconnect", "", 0, 0, reconnect),
    row("ovsdb-server/reload", "", 0, 0, reload),
    row("ovsdb-server/remove-db", "DB", 1, 1, remove_db),
    row("ovsdb-server/remove-remote", "REMOTE", 1, 1, remove_remote),
    row("ovsdb-server/set-active-ovsdb-server", "", 1, 1, set_active),
    row("ovsdb-server/set-active-ovsdb-server-probe-interval", "", 1, 1, set_active_probe),
    row("ovsdb-server/set-sync-exclude-tables", "", 0, 1, set_exclude),
    row("ovsdb-server/sync-status", "", 0, 0, |c, _| Ok(c.service.replication.status())),
    row("ovsdb-server/tlog-list", "", 0, 0, tlog_list),
    row("ovsdb-server/tlog-set", "DB:TABLE on|off", 2, 2, tlog_set),
    row("ovsdb-server/disable-monitor-cond", "", 0, 0, disable_monitor_cond),
    row("version", "", 0, 0, |_, _| Ok(program::version_text("ovsdb-server", &[]))),
];

/// Runs a request, and waits for what it has begun.
pub(super) async fn run(service: &Rc<Service>, request: &Request) -> Answer {
    let answer = execute(service, request).await;
    if is_configuration(&request.method) || request.method == "ovsdb-server/reload" {
        service.remember();
    }
    answer
}

async fn execute(service: &Rc<Service>, request: &Request) -> Answer {
    if is_configuration(&request.method)
        && let Some(file) = &*service.config_file.borrow()
    {
        return Err(format!("Update the {file} and use ovsdb-server/reload instead"));
    }
    let mut context = Context { service: service.clone(), later: None };
    // Within the switch's process it is a program of its own all the same.
    let standard = unixctl::standard::commands().into_iter().filter(|command| command.name != "version");
    let standard: Vec<Command<Context>> = standard.collect();
    let answer = unixctl::run(&[&COMMANDS, &standard], &[], &mut context, request)?;
    match context.later {
        None => Ok(answer),
        Some(Later::AddRemote(remote)) => {
            service.remotes.add(&remote, Overrides::default()).await.map(|()| String::new())
        }
        Some(Later::Reload(file)) => service.apply(&file).await.map(|()| String::new()),
        Some(Later::Compact(names)) => {
            service.flush_once();
            for name in &names {
                while service.state.server.borrow().is_compacting(name) {
                    service.state.job_done.notified().await;
                    service.flush_once();
                }
            }
            let failed = service.state.not_compacted.borrow();
            match names.iter().find_map(|name| Some((name, failed.get(name)?))) {
                Some((name, why)) => Err(format!("I/O error: {name} could not be compacted ({why})")),
                None => Ok(answer),
            }
        }
    }
}

/// Whether a command changes what a configuration file, if there is one, defines.
fn is_configuration(command: &str) -> bool {
    matches!(
        command.strip_prefix("ovsdb-server/"),
        Some(
            "add-db"
                | "add-remote"
                | "connect-active-ovsdb-server"
                | "disconnect-active-ovsdb-server"
                | "remove-db"
                | "remove-remote"
                | "set-active-ovsdb-server"
                | "set-active-ovsdb-server-probe-interval"
                | "set-sync-exclude-tables"
        )
    )
}

fn nothing() -> Answer {
    Ok(String::new())
}

fn lines(names: impl IntoIterator<Item: std::fmt::Display>) -> String {
    names.into_iter().map(|name| format!("{name}\n")).collect()
}

/// The switch that the server is part of ends with it: whoever stops the one waits for the process to go.
fn exit(context: &mut Context, _: &[String]) -> Answer {
    context.service.state.exit.tell();
    nothing()
}

/// Counters by name, for `coverage/*`.
fn counters(state: &State) -> BTreeMap<&'static str, u64> {
    let (own, server) = (state.counters.get(), state.server.borrow().counters());
    BTreeMap::from([
        ("ovsdb_session_connected", own.connections),
        ("ovsdb_session_bad_stream", own.bad_streams),
        ("ovsdb_session_over_budget", own.over_budget),
        ("ovsdb_session_silent", own.silent),
        ("ovsdb_session_cut", own.cut),
        ("ovsdb_session_too_far_behind", server.sessions_too_far_behind),
        ("ovsdb_message", server.messages),
        ("ovsdb_commit", server.commits),
        ("ovsdb_transaction_without_change", server.others),
        ("ovsdb_update", server.updates),
    ])
}

fn read_counter(context: &mut Context, args: &[String]) -> Answer {
    match counters(&context.service.state).get(args[0].as_str()) {
        Some(count) => Ok(format!("{count}\n")),
        None => Err("No such counter".into()),
    }
}

fn coverage(context: &mut Context, _: &[String]) -> Answer {
    let counters = counters(&context.service.state);
    Ok(counters.iter().map(|(name, count)| format!("{name:<34} total: {count}\n")).collect())
}

/// What memory is used for.
pub(super) fn memory_usage(service: &Service) -> String {
    let server = service.state.server.borrow();
    let (mut atoms, mut cells) = (0, 0);
    for database in server.database_names().filter_map(|name| server.database(name)) {
        for (table, _) in database.schema().tables_with_idx() {
            for row in database.rows(table) {
                cells += row.columns().len();
                atoms += row.columns().iter().map(|d| d.keys().len() + d.as_map().len()).sum::<usize>();
            }
        }
    }
    let mut text = format!("atoms:{atoms} backlog:{} cells:{cells} ", server.output_bytes());
    text += &format!("monitors:{} sessions:{}\n", server.monitor_count(), server.session_count());
    text
}

fn list_dbs(context: &mut Context, _: &[String]) -> Answer {
    Ok(lines(context.service.state.server.borrow().database_names()))
}

fn add_db(context: &mut Context, args: &[String]) -> Answer {
    let path = Path::new(&args[0]);
    databases::open(&context.service.state, path, path, false)?;
    context.service.state.has_work();
    nothing()
}

fn remove_db(context: &mut Context, args: &[String]) -> Answer {
    let name = args[0].as_str();
    if name == SERVER_DATABASE {
        return Err("Cannot remove reserved database.".into());
    }
    let removed = context.service.state.server.borrow_mut().remove_database(name);
    removed.map_err(|_| "Failed to find the database.".to_string())?;
    context.service.state.files.borrow_mut().remove(name);
    context.service.state.has_work();
    nothing()
}

fn add_remote(context: &mut Context, args: &[String]) -> Answer {
    context.later = Some(Later::AddRemote(args[0].clone()));
    nothing()
}

fn remove_remote(context: &mut Context, args: &[String]) -> Answer {
    if context.service.remotes.remove(&args[0]) { nothing() } else { Err("no such remote".into()) }
}

fn compact(context: &mut Context, args: &[String]) -> Answer {
    let names: Vec<String> = match args.first() {
        Some(name) if name == SERVER_DATABASE => return Err("cannot compact built-in databases".into()),
        Some(name) => vec![name.clone()],
        None => context.service.state.server.borrow().database_names().map(str::to_owned).collect(),
    };
    for name in &names {
        let known = context.service.state.server.borrow_mut().compact(name);
        known.map_err(|_| "no database by that name".to_string())?;
        tracing::info!(target: "ovsdb_server", "compacting {name} database by user request");
    }
    context.later = Some(Later::Compact(names));
    nothing()
}

fn reconnect(context: &mut Context, _: &[String]) -> Answer {
    context.service.remotes.reconnect();
    nothing()
}

/// Freed memory returns to the system at once, so there is nothing to switch.
fn trim(_: &mut Context, args: &[String]) -> Answer {
    match args[0].as_str() {
        "on" | "off" => nothing(),
        _ => Err("invalid argument".into()),
    }
}

fn show_counters(_: &mut Context, _: &[String]) -> Answer {
    Ok("performance counter is not supported on this platform\n".into())
}

fn storage_status(context: &mut Context, args: &[String]) -> Answer {
    match context.service.state.server.borrow().database(&args[0]) {
        Some(_) => Ok("status: ok\n".into()),
        None => Err("Failed to find the database.".into()),
    }
}

fn set_active(context: &mut Context, args: &[String]) -> Answer {
    context.service.replication.set_source(&args[0])?;
    nothing()
}

fn set_active_probe(context: &mut Context, args: &[String]) -> Answer {
    let Ok(milliseconds) = args[0].parse::<u64>() else {
        return Ok("Invalid probe interval, integer value expected\n".into());
    };
    let interval = (milliseconds > 0).then(|| Duration::from_millis(milliseconds));
    context.service.replication.set_probe_interval(interval)?;
    nothing()
}

fn connect_active(context: &mut Context, _: &[String]) -> Answer {
    match context.service.replication.start()? {
        true => nothing(),
        false => Ok("Unable to connect: active server is not specified.\n".into()),
    }
}

fn disconnect_active(context: &mut Context, _: &[String]) -> Answer {
    context.service.replication.stop();
    nothing()
}

fn get_exclude(context: &mut Context, _: &[String]) -> Answer {
    Ok(lines([context.service.replication.exclude_text()]))
}

fn set_exclude(context: &mut Context, args: &[String]) -> Answer {
    let text = args.first().map_or("", String::as_str);
    context.service.replication.set_exclude(text)?;
    nothing()
}

fn tlog_list(context: &mut Context, _: &[String]) -> Answer {
    let server = context.service.state.server.borrow();
    let mut text = format!("{:<16}{:<28}{}\n", "database", "table", "logging");
    text += &format!("{:<16}{:<28}{}\n", "--------", "-----", "-------");
    for name in server.database_names() {
        text += &format!("{name:<16} \n");
        let Some(database) = server.database(name) else { continue };
        for table in database.schema().tables() {
            let state = if server.is_logged(name, &table.name) { "ON" } else { "OFF" };
            text += &format!("{:<16}{:<27} {state}\n", "", table.name);
        }
    }
    Ok(text)
}

fn tlog_set(context: &mut Context, args: &[String]) -> Answer {
    let Some((name, table)) = args[0].split_once(':') else {
        return Err("invalid DB:TABLE argument".into());
    };
    let on = match args[1].as_str() {
        "on" => true,
        "off" => false,
        _ => return Err("invalid command argument".into()),
    };
    let mut server = context.service.state.server.borrow_mut();
    let Some(database) = server.database(name) else { return Err("no such database".into()) };
    if database.schema().find(table).is_none() {
        return Err("no such table".into());
    }
    server.set_logged(name, table, on);
    nothing()
}

fn reload(context: &mut Context, _: &[String]) -> Answer {
    match context.service.config_file.borrow().clone() {
        Some(file) => context.later = Some(Later::Reload(file)),
        None => return Err("no --config-file was given".into()),
    }
    nothing()
}

/// The stock server's tests take the method away to see clients do without.
fn disable_monitor_cond(context: &mut Context, _: &[String]) -> Answer {
    context.service.state.server.borrow_mut().disable_monitor_cond();
    nothing()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_stock_server_is_there() {
        let names: Vec<&str> = COMMANDS.iter().map(|c| c.name).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
    }
}
