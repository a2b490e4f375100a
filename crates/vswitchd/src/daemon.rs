//! Start, schedule and end of the daemon.

use crate::commands;
use crate::conffile;
use crate::config::{Config, Database, Flags};
use crate::configdb::{self, DatabaseClient, Server};
use crate::device_manager;
use crate::listeners::{BridgeSockets, SocketError};
use crate::memory_watch::watch_memory;
use crate::ovsdb::{self, Handle};
use crate::schedule::TICK_MS;
use crate::state::{SetupError, Shared, Vswitch};
use datapath::WORKER_STACK_BYTES;
use host::daemonize::{Daemon, PidFile};
use host::database_file::ids;
use host::log;
use host::program;
use host::rundir::remove_stale_control_sockets;
use packet::wait::Bell;
use rustix::mm::MlockAllFlags;
use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch::control::Left;
use tokio::net::unix::pipe::Receiver;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use transport::unixctl;
use transport::{Tls, TlsFiles};

const TICK: Duration = Duration::from_millis(TICK_MS);
/// How long cleanup waits for workers by yielding before it sleeps in between, and for how long.
const YIELDING: Duration = Duration::from_micros(500);
const PAUSE: Duration = Duration::from_millis(1);

/// The daemon's name, used for its pid file and control socket, by which the stock tools find it.
pub const NAME: &str = "ovs-vswitchd";

/// Why the daemon did not start.
#[derive(Debug)]
pub enum StartError {
    /// A bridge's socket cannot be created.
    Socket(SocketError),
    /// The socket for commands cannot be had.
    ControlSocket(PathBuf, io::Error),
    /// The embedded database cannot be served. A sentence.
    Database(String),
    /// A bridge, a port or the datapath cannot be made.
    Setup(SetupError),
    /// The operating system refused something else.
    Os(io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Database(why) => f.write_str(why),
            StartError::Socket(e) => e.fmt(f),
            StartError::ControlSocket(path, e) => {
                write!(f, "{}: could not initialize control socket ({})", path.display(), log::os_text(e))
            }
            StartError::Setup(e) => e.fmt(f),
            StartError::Os(e) => write!(f, "the switch could not be started: {}", log::os_text(e)),
        }
    }
}

impl std::error::Error for StartError {}

/// Runs the switch until a signal to end or the command `exit` comes, and notifies `daemon` when it is ready.
/// At the end removes its sockets and what its ports made in the kernel, except devices that the next process
/// will use.
pub fn run(config: Config, daemon: &mut Daemon) -> Result<(), StartError> {
    log::start();
    program::set_daemon_name(NAME);
    // A guest with 64 queue pairs needs 400 descriptors; the usual limit is 1,024.
    crate::ovsdb::raise_descriptor_limit();
    if config.mlockall {
        // Reserved memory is locked when it is first used: the caches reserve far more than they need.
        let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
        if let Err(e) = rustix::mm::mlockall(flags) {
            tracing::error!(target: "vswitchd", "mlockall failed: {}", log::os_text(&e));
        }
    }
    // It translates packets as workers do, and needs as much stack; the first thread has what `ulimit -s`
    // leaves it.
    let control = std::thread::Builder::new().name("main".into()).stack_size(WORKER_STACK_BYTES);
    std::thread::scope(|scope| {
        let control = control.spawn_scoped(scope, || run_here(config, daemon)).map_err(StartError::Os)?;
        control.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs the switch on this thread.
fn run_here(config: Config, daemon: &mut Daemon) -> Result<(), StartError> {
    let runtime = transport::runtime().map_err(StartError::Os)?;
    let local = tokio::task::LocalSet::new();
    let result = local.block_on(&runtime, serve(config, daemon));
    // Tasks hold the state; with them it goes.
    drop(local);
    result
}

async fn serve(config: Config, daemon: &mut Daemon) -> Result<(), StartError> {
    let dir = &config.run_dir;
    let mut terminated = signal(SignalKind::terminate()).map_err(StartError::Os)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(StartError::Os)?;
    let mut hung_up = signal(SignalKind::hangup()).map_err(StartError::Os)?;

    // Sockets before ports: a start that fails for one of them has touched no interface.
    let ctl_path = config.unixctl.clone();
    let ctl_path = ctl_path.unwrap_or_else(|| dir.file(&format!("{NAME}.{}.ctl", std::process::id())));
    remove_stale_control_sockets(&ctl_path);
    let (ctl, ctl_listener) =
        transport::Listener::at(&ctl_path).map_err(|e| StartError::ControlSocket(ctl_path, e))?;
    let embedded = match &config.database {
        Database::Embedded(file) => Some(Embedded::start(&config, file)?),
        Database::Memory(flags) => Some(Embedded::in_memory(flags, &config)?),
        Database::Remote(_) => None,
    };
    let mut sockets = BridgeSockets::new(dir.clone());
    // If the configuration comes from flags, errors in it are reported at once.
    let flags = match &config.database {
        Database::Memory(flags) => Some(flags),
        Database::Embedded(_) | Database::Remote(_) => None,
    };
    for bridge in flags.iter().flat_map(|flags| &flags.bridges) {
        sockets.listen(bridge.name()).map_err(StartError::Socket)?;
    }
    let vswitch = Vswitch::new(&config).map_err(StartError::Setup)?;
    let bell = vswitch.plane.dp.event_bell().clone();
    let workers = vswitch.plane.dp.workers();
    let shared: Shared = Rc::new(RefCell::new(vswitch));
    let server = match (&config.database, &embedded) {
        (Database::Remote(target), _) => {
            let tls = config.tls_files().map(Tls::new);
            Server::Elsewhere(target.clone(), tls.map(Box::new))
        }
        (_, Some(embedded)) => {
            Server::Embedded { handle: embedded.handle.clone(), in_memory: flags.is_some() }
        }
        (_, None) => unreachable!("started above"),
    };
    let dummy = if flags.is_some() { Flags::dummies(config.dummy) } else { config.dummy };
    let (configured, is_configured) = oneshot::channel();
    let client = DatabaseClient { server, dummy, run_dir: dir.clone(), configured };
    tokio::task::spawn_local(configdb::run(client, shared.clone(), sockets));
    let exit = Rc::new(unixctl::Exit::default());
    let answer = {
        let (shared, exit) = (shared.clone(), exit.clone());
        async move |request: &unixctl::Request, growing| {
            let result = commands::run(&shared, request, growing).await;
            if shared.borrow().commands.ending.is_some() {
                exit.tell();
            }
            result
        }
    };
    tokio::task::spawn_local(unixctl::serve_until_exit(ctl_listener, exit.clone(), answer));
    tokio::task::spawn_local(listen_to_workers(shared.clone(), bell));
    tokio::task::spawn_local(tick(shared.clone()));
    let of_memory = shared.clone();
    tokio::task::spawn_local(watch_memory(move || commands::coverage::memory_usage(&of_memory.borrow())));
    if shared.borrow().plane.is_dummy {
        tokio::task::spawn_local(commands::flow_log::log_dumps(shared.clone()));
        tokio::task::spawn_local(commands::flow_log::watch(shared.clone()));
    }
    tracing::debug!(
        target: "vswitchd",
        "crosspoint {} serves with {workers} workers; commands on {}",
        env!("CARGO_PKG_VERSION"), ctl.path().display()
    );
    let ending = async {
        tokio::select! {
            _ = terminated.recv() => told_to_end(15, "Terminated"),
            _ = interrupted.recv() => told_to_end(2, "Interrupt"),
            _ = hung_up.recv() => told_to_end(1, "Hangup"),
            () = exit.ended() => tracing::debug!(target: "daemon", "ending on the command exit"),
            () = database_exited(embedded.as_ref()) => {
                tracing::debug!(target: "daemon", "ending on the command exit to the database server");
            }
        }
    };
    tokio::pin!(ending);
    // As in Open vSwitch, the process that starts a daemon in the background is notified when the database's
    // configuration is in force: `ovs-ctl` then restores rules into bridges.
    tokio::select! {
        () = &mut ending => {
            shared.borrow_mut().close();
            return Ok(());
        }
        _ = is_configured => {}
    }
    let refused = flags.and_then(|_| shared.borrow().first_error());
    if let Some((name, error)) = refused {
        shared.borrow_mut().close();
        return Err(StartError::Setup(SetupError::Port(name, error)));
    }
    daemon.complete();
    // As in Open vSwitch: scripts wait for this line, and it never reaches the terminal of a process that
    // went to the background.
    tracing::info!(target: "bridge", "{}", program::version_line(NAME));
    ending.await;
    shared.borrow_mut().close();
    Ok(())
}

/// The last line that Open vSwitch logs on a signal.
fn told_to_end(signal: u32, name: &str) {
    tracing::warn!(target: "fatal_signal", "terminating with signal {signal} ({name})");
}

/// Waits until the embedded server is told to exit, with which the process ends: the stock programs that stop
/// a server wait for that.
async fn database_exited(embedded: Option<&Embedded>) {
    match embedded {
        Some(embedded) => embedded.handle.exited().await,
        None => std::future::pending().await,
    }
}

/// The database server in this process, with the files by which the stock tools find it.
struct Embedded {
    handle: Rc<Handle>,
    _pid_file: Option<PidFile>,
}

impl Embedded {
    /// With the database that flags define, which only the switch can reach.
    fn in_memory(flags: &Flags, config: &Config) -> Result<Embedded, StartError> {
        let (database, wanted) = flags.database(&mut ids(), config.dummy).map_err(StartError::Database)?;
        // A wrong value of an option is known before anything else of the switch starts.
        device_manager::check(config, &wanted)
            .map_err(|(name, error)| StartError::Setup(SetupError::Port(name, error)))?;
        let options = ovsdb::Options { in_memory: Some(database), ..ovsdb::Options::default() };
        let handle = ovsdb::serve(options).map_err(StartError::Database)?;
        Ok(Embedded { handle: Rc::new(handle), _pid_file: None })
    }

    fn start(config: &Config, file: &Path) -> Result<Embedded, StartError> {
        let dir = &config.run_dir;
        // First, so that a server that runs there is not disturbed.
        let pid_file = PidFile::create(&dir.file("ovsdb-server.pid"), false)
            .map_err(|e| StartError::Database(e.to_string()))?;
        conffile::prepare(file).map_err(StartError::Database)?;
        let socket = dir.file("db.sock");
        let options = ovsdb::Options {
            databases: vec![file.to_owned()],
            first_row: true,
            remotes: vec![
                format!("punix:{}", socket.display()),
                "db:Open_vSwitch,Open_vSwitch,manager_options".into(),
            ],
            control: Some(dir.file(&format!("ovsdb-server.{}.ctl", std::process::id()))),
            tls: tls_of_managers(&config.tls),
            ..ovsdb::Options::default()
        };
        let handle = ovsdb::serve(options).map_err(StartError::Database)?;
        tracing::debug!(
            target: "ovsdb",
            "serving the database {} on {}", file.display(), socket.display()
        );
        Ok(Embedded { handle: Rc::new(handle), _pid_file: Some(pid_file) })
    }
}

/// The sources of managers' keys: what the command line leaves out comes from `ovs-vsctl set-ssl`.
fn tls_of_managers(given: &TlsFiles) -> TlsFiles {
    let or_column = |file: &Option<PathBuf>, column: &str| {
        Some(file.clone().unwrap_or_else(|| format!("db:Open_vSwitch,SSL,{column}").into()))
    };
    TlsFiles {
        private_key: or_column(&given.private_key, "private_key"),
        certificate: or_column(&given.certificate, "certificate"),
        ca_cert: or_column(&given.ca_cert, "ca_cert"),
        ..given.clone()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.handle.stop();
    }
}

/// The periodic work, and cleanup in between. However much there is to clean up, ticks come in time.
async fn tick(shared: Shared) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let urgent = shared.borrow().urgent.clone();
    let mut next = Instant::now();
    loop {
        tokio::select! {
            biased;
            _ = interval.tick() => {
                next = Instant::now() + TICK;
                let mut has_events = shared.borrow_mut().tick();
                while has_events && Instant::now() < next {
                    tokio::task::yield_now().await;
                    has_events = shared.borrow_mut().handle_events();
                }
            }
            _ = urgent.notified() => {}
        }
        let mut waiting_since: Option<Instant> = None;
        loop {
            let left = shared.borrow_mut().clean();
            match left {
                Left::Nothing => break,
                Left::More => waiting_since = None,
                // A worker that is stuck, or somebody's long change, may keep it waiting for long.
                Left::Waiting => {
                    let since = *waiting_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= YIELDING {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
            tokio::task::yield_now().await;
            if Instant::now() >= next {
                urgent.notify_one();
                break;
            }
        }
    }
}

/// Effects and packet-ins, as soon as workers ring.
async fn listen_to_workers(shared: Shared, bell: Arc<Bell>) {
    // An eventfd is read like a pipe; a descriptor of its own keeps it registered as long as this task lives.
    let fd = bell.as_fd().try_clone_to_owned();
    let rings = match fd.and_then(Receiver::from_owned_fd_unchecked) {
        Ok(rings) => rings,
        // The periodic work takes events too, only later.
        Err(e) => return tracing::error!(target: "datapath", "cannot wait for the workers: {e}"),
    };
    while rings.readable().await.is_ok() {
        // Tells the runtime that what was ringing is taken. Errors say that nothing was.
        let _ = rings.try_read(&mut [0; 8]);
        while shared.borrow_mut().handle_events() {
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DatapathFlags;
    use flow::{FieldId, Match};
    use host::rundir::RunDir;
    use switch::BridgeConfig;
    use switch::control::FlowMod;

    #[test]
    fn ticks_come_while_a_worker_keeps_a_removed_rule_from_being_freed() {
        let datapath = DatapathFlags { pool_packets: 4096, ..DatapathFlags::default() };
        let config = Config::new(RunDir::new("/nowhere"), Database::Memory(Flags::default()));
        let mut vswitch = Vswitch::new(&Config { datapath, ..config }).unwrap();
        let bridge = vswitch.plane.control.add_bridge(BridgeConfig::new("br0"));
        let matching = Match::any().with(FieldId::EthDst, 1);
        vswitch.plane.control.flow_mod(bridge, &FlowMod::add(matching.clone(), Vec::new()), 0).unwrap();
        let stuck = vswitch.plane.domain.register();
        vswitch.plane.control.flow_mod(bridge, &FlowMod::delete(matching), 0).unwrap();
        let pulse = vswitch.keepalive.pulse();
        let shared: Shared = Rc::new(RefCell::new(vswitch));
        let (runtime, local) = (transport::runtime().unwrap(), tokio::task::LocalSet::new());
        local.block_on(&runtime, async {
            let ticks = tokio::task::spawn_local(tick(shared.clone()));
            tokio::time::sleep(Duration::from_millis(700)).await;
            assert!(shared.borrow().schedule.waits_for_workers());
            assert!(!pulse.is_late(Instant::now()));
            drop(stuck);
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert!(!shared.borrow().schedule.waits_for_workers());
            ticks.abort();
        });
    }

    #[test]
    fn managers_get_what_the_command_line_says_about_tls_and_the_rest_from_the_database() {
        let given = TlsFiles {
            certificate: Some("cert.pem".into()),
            ciphers: Some("CHACHA20".into()),
            ..TlsFiles::default()
        };
        let tls = tls_of_managers(&given);
        assert_eq!((tls.certificate, tls.ciphers), (given.certificate, given.ciphers));
        assert_eq!(tls.private_key, Some("db:Open_vSwitch,SSL,private_key".into()));
    }
}
