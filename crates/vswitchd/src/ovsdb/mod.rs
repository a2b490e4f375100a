//! The database server with its sockets and files: the embedded one of the switch, and
//! `crosspoint ovsdb-server`.
//!
//! [`serve`] starts it in a thread of its own, so that no transaction, however big, holds up OpenFlow, and no
//! packet-in a transaction. The switch is one of its clients, over a socket pair ([`Handle::connect`]), as if
//! the server were elsewhere.
//!
//! Inside, one thread runs everything as tasks: a connection reads, passes messages to the
//! [`Server`](ovsdb::server::Server), and sends; the [flusher](service) notifies monitors and starts disk
//! work; whatever blocks (a sync, a compaction) runs on other threads. What a client can make the server keep
//! is bounded: 256 KiB of output before its requests wait (plus the answer to one), 256 MiB of one request, 1
//! GiB of both for all clients together.

mod columns;
mod config_file;
mod connection;
mod control;
mod databases;
mod incomplete;
mod memory;
mod options;
mod remote_options;
mod remotes;
mod replication;
mod service;
mod session;
mod state;
mod tls_sources;

pub use config_file::ConfigFile;
pub use options::Options;

use crate::memory_watch::watch_memory;
use connection::Connection;
use host::database_file::ids;
use host::rundir::remove_stale_control_sockets;
use ovsdb::server::{Model, Server};
use remote_options::Overrides;
use service::Service;
use state::{State, now};
use std::convert::Infallible;
use std::io;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc as sync_mpsc};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot, watch};
use transport::unixctl::{self, Request};
use transport::{Stream, Tls, TlsFiles};
use unix_socket::Socket;

/// A server that runs in a thread of its own. It ends when this is dropped.
#[derive(Debug)]
pub struct Handle {
    orders: mpsc::UnboundedSender<Order>,
    exited: watch::Receiver<bool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A request from a handle to its server.
enum Order {
    Connect(UnixStream, String),
    Command(Request, oneshot::Sender<Result<String, String>>),
    ConnectOut,
    Stop,
}

/// Starts a server and returns when its databases are open and it listens on every remote.
///
/// # Errors
/// A sentence: a database that cannot be opened, a remote that cannot be listened on.
pub fn serve(options: Options) -> Result<Handle, String> {
    let (orders, received) = mpsc::unbounded_channel();
    let (started, has_started) = sync_mpsc::sync_channel(1);
    let (exiting, exited) = watch::channel(false);
    let run = move || {
        // Whatever happens to this thread, those who wait for its end are notified.
        let exiting = Exiting(exiting);
        let runtime = match transport::runtime() {
            Ok(runtime) => runtime,
            Err(error) => {
                let why = format!("the database server could not be started: {}", transport::reason(&error));
                let _ = started.send(Err(why));
                return;
            }
        };
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async move {
            match start(options).await {
                Err(why) => {
                    let _ = started.send(Err(why));
                }
                Ok(running) => {
                    let _ = started.send(Ok(()));
                    running.run(received, &exiting).await;
                }
            }
        });
        // A compaction in progress is abandoned: the file is unchanged.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("ovsdb".into()).spawn(run);
    let thread = thread.map_err(|e| transport::reason(&e))?;
    match has_started.recv() {
        Ok(Ok(())) => Ok(Handle { orders, exited, thread: Mutex::new(Some(thread)) }),
        Ok(Err(why)) => Err(why),
        Err(_) => Err("the database server's thread has failed".into()),
    }
}

/// Tells of the thread's end when dropped.
struct Exiting(watch::Sender<bool>);

impl Drop for Exiting {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl Handle {
    /// A connection to the server within this process: turn it into a [`Stream`] with [`Stream::of_pair`].
    /// `name` is for logs.
    ///
    /// # Errors
    /// Out of descriptors, or the server has ended.
    pub fn connect(&self, name: &str) -> io::Result<UnixStream> {
        let (mine, its) = Stream::pair()?;
        let order = Order::Connect(its, name.to_owned());
        self.orders.send(order).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        Ok(mine)
    }

    /// Runs a command as `ovs-appctl` would: `ovsdb-server/add-remote` and so on.
    ///
    /// # Errors
    /// The command's, or that the server has ended.
    pub async fn command(&self, request: Request) -> Result<String, String> {
        let ended = || "the database server has ended".to_string();
        let (answer, answered) = oneshot::channel();
        self.orders.send(Order::Command(request, answer)).map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }

    /// Makes the server connect to remotes and to the active server, if [`Options::connects_later`] made it
    /// wait for this call.
    pub fn connect_out(&self) {
        // If the server has ended, there is nothing to connect.
        let _ = self.orders.send(Order::ConnectOut);
    }

    /// Returns when the server was told to end, by `exit` on its control socket, or has failed.
    pub async fn exited(&self) {
        let mut exited = self.exited.clone();
        // An error says that the thread is gone, which is the same.
        let _ = exited.wait_for(|exited| *exited).await;
    }

    /// Like [`Self::exited`], for a thread without a runtime.
    pub fn wait_until_exited(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        // Without a runtime there can be no notification; the server's end is noticed when it is stopped.
        if let Ok(runtime) = runtime {
            runtime.block_on(self.exited());
        }
    }

    /// Ends the server: clients are disconnected, sockets removed, files closed.
    pub fn stop(&self) {
        let _ = self.orders.send(Order::Stop);
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        if let Some(thread) = thread {
            // A panic has already been reported.
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Raises this process's limit on descriptors to the hard limit, and to 65,536 if it may raise that.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    for wanted in [65_536.max(most), most] {
        let raised = Rlimit { current: Some(wanted), maximum: Some(wanted.max(most)) };
        // Only root may ask for more than the hard limit.
        if limit.current.is_some_and(|current| current < wanted)
            && setrlimit(Resource::Nofile, raised).is_ok()
        {
            return;
        }
    }
}

/// A server whose databases are open and that listens.
struct Running {
    service: Rc<Service>,
    /// Removes the control socket.
    _control: Option<Socket>,
}

async fn start(mut options: Options) -> Result<Running, String> {
    let memory = options.memory.take();
    if let Some(file) = &memory {
        memory::recall(file, &mut options)?;
    }
    let mut server = Server::new(now(), ids());
    if let Some(database) = options.in_memory.take() {
        server.add_in_memory(database, Model::Standalone);
    }
    let state = State::new(server, Arc::new(Tls::new(TlsFiles::default())), options.connects_later);
    state.whole_values.set(options.whole_values);
    for given in &options.databases {
        databases::open(&state, given, &options.directory.join(given), options.first_row)?;
    }
    let service = Service::new(state.clone(), options.tls);
    // Before the first client: no client may find an active server that is about to become a backup.
    if let Some(tables) = &options.sync_exclude_tables {
        service.replication.set_exclude(tables)?;
    }
    if let Some(source) = &options.sync_from {
        service.replication.set_source(source)?;
        if !options.active {
            service.replication.start()?;
        }
    }
    for remote in &options.remotes {
        service.remotes.add(remote, Overrides::default()).await?;
    }
    if let Some(file) = &options.config_file {
        service.apply(file).await?;
        *service.config_file.borrow_mut() = Some(file.clone());
    }
    service.remotes.check_tls()?;
    service.flush_once();
    service.remember_in(memory);
    let control = match &options.control {
        None => None,
        Some(path) => {
            remove_stale_control_sockets(path);
            let (socket, listener) = transport::Listener::at(path).map_err(|e| {
                let why = transport::reason(&e);
                format!("{}: could not initialize control socket ({why})", path.display())
            })?;
            // A server in a thread of the switch has no control socket, and does not report the process's
            // memory.
            let of_memory = service.clone();
            tokio::task::spawn_local(watch_memory(move || control::memory_usage(&of_memory)));
            let service = service.clone();
            let answer = async move |request: &unixctl::Request, _| control::run(&service, request).await;
            let exit = state.exit.clone();
            tokio::task::spawn_local(unixctl::serve_until_exit(listener, exit, answer));
            Some(socket)
        }
    };
    tokio::task::spawn_local(service.clone().flush());
    Ok(Running { service, _control: control })
}

impl Running {
    async fn run(self, mut orders: mpsc::UnboundedReceiver<Order>, exiting: &Exiting) {
        let exit = self.service.state.exit.clone();
        let mut told_to_exit = pin!(async {
            exit.ended().await;
            // The holder of the handle decides; without one, the server ends.
            exiting.0.send_replace(true);
            std::future::pending::<Infallible>().await
        });
        loop {
            let order = tokio::select! {
                order = orders.recv() => order,
                never = &mut told_to_exit => match never {},
            };
            match order {
                None | Some(Order::Stop) => return,
                Some(Order::Connect(socket, name)) => {
                    let state = self.service.state.clone();
                    tokio::task::spawn_local(async move {
                        match Stream::of_pair(socket) {
                            Ok(stream) => {
                                let connection = Connection::internal(&name);
                                session::converse(&state, stream, &connection).await;
                            }
                            Err(error) => tracing::error!(target: "ovsdb_server", "{name}: {error}"),
                        }
                    });
                }
                Some(Order::ConnectOut) => self.service.state.connect_out(),
                Some(Order::Command(request, answer)) => {
                    let service = self.service.clone();
                    tokio::task::spawn_local(async move {
                        // The requester may no longer be waiting.
                        let _ = answer.send(control::run(&service, &request).await);
                    });
                }
            }
        }
    }
}
