//! The task of a link: connects or listens, and moves bytes between sockets and the bridge's connections.

use super::link::{Kind, Link};
use crate::ofconn::{LinkOf, Purpose, Served};
use crate::service::Shared;
use crate::stream::{ActiveTarget, Listener, PassiveTarget, Stream, StreamError, reason};
use ovsdb::reconnect::Action;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch::BridgeIdx;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore};

/// Connections to one listening socket at once; further ones wait.
const CONNECTIONS_MAX: usize = 200;
/// Wait before listening is tried again.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);
/// How often to look whether rules are still being restored.
const RESTORE_WAIT: Duration = Duration::from_millis(200);
/// Bytes read at once, and written at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// How long to wait for workers by yielding before sleeping in between.
const YIELDING: Duration = Duration::from_micros(500);

/// See the module's text.
pub(super) struct Task {
    shared: Shared,
    bridge: BridgeIdx,
    target: String,
    id: u64,
}

/// What to do next.
enum Next {
    Gone,
    Wait(Option<Instant>, Rc<Notify>),
    Connect,
}

impl Task {
    pub fn new(shared: Shared, bridge: BridgeIdx, target: String, id: u64) -> Task {
        Task { shared, bridge, target, id }
    }

    /// Runs until the link is gone.
    pub async fn run(self, kind: Kind) {
        match kind {
            Kind::Active(target) => self.keep_connected(&target).await,
            Kind::Passive(target) => self.listen(&target).await,
            Kind::Bad(_) => {}
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Link) -> T) -> Option<T> {
        let mut vswitch = self.shared.borrow_mut();
        let link = vswitch.bridges.get_mut(&self.bridge)?.control.links.get_mut(&self.target)?;
        (link.id() == self.id).then(|| f(link))
    }

    async fn keep_connected(&self, target: &ActiveTarget) {
        loop {
            if self.shared.borrow().settings.flow_restore_wait {
                // Rules are being restored, which a controller would only disturb.
                tokio::time::sleep(RESTORE_WAIT).await;
                continue;
            }
            let next = self.with(|link| match link.reconnect.run(Instant::now()) {
                Some(Action::Connect) => Next::Connect,
                // It probes nobody, and it is told of every end.
                Some(Action::Probe | Action::Disconnect) | None => {
                    Next::Wait(link.reconnect.deadline(), link.notify.clone())
                }
            });
            match next.unwrap_or(Next::Gone) {
                Next::Gone => return,
                Next::Wait(due, notify) => {
                    let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3_600));
                    tokio::select! {
                        () = notify.notified() => {}
                        () = tokio::time::sleep_until(due.into()) => {}
                    }
                }
                Next::Connect => {
                    let why = self.connect(target).await;
                    self.with(|link| link.down(Instant::now(), &why));
                    self.shared.borrow_mut().update_misses(self.bridge);
                }
            }
        }
    }

    /// One connection, from the attempt to its end. Why it ended.
    async fn connect(&self, target: &ActiveTarget) -> String {
        let tls = self.shared.borrow().tls.clone();
        self.with(|link| tracing::debug!(target: "rconn", "{}: connecting...", link.name()));
        match Stream::connect(target, tls.as_deref()).await {
            Ok(stream) => {
                if let Stream::Tcp(tcp) = &stream
                    && let Ok(std::net::SocketAddr::V4(address)) = tcp.peer_addr()
                {
                    self.with(|link| link.resolved = Some(address));
                }
                self.set_dscp(&stream);
                self.serve(stream).await
            }
            Err(error) => said(&error),
        }
    }

    fn set_dscp(&self, stream: &Stream) {
        let Some(dscp) = self.with(|link| link.row().dscp) else { return };
        let tcp = match stream {
            Stream::Tcp(tcp) => tcp,
            Stream::Tls(tls) => tls.get_ref().0,
            Stream::Unix(_) => return,
        };
        // What the network makes of it is its own affair; a kernel that refuses it harms nothing.
        let _ = rustix::net::sockopt::set_ip_tos(tcp, dscp << 2);
    }

    async fn listen(self, target: &PassiveTarget) {
        let this = Rc::new(self);
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let tls = this.shared.borrow().tls.clone();
            let listener = match Listener::bind(target, tls.as_ref()).await {
                Ok(listener) => listener,
                Err(error) => {
                    let why = said(&error);
                    let told = this.with(|link| {
                        if link.reconnect.last_error() != Some(&why) {
                            tracing::error!(target: "connmgr", "{}: cannot listen: {why}", link.name());
                        }
                        link.reconnect.failed(Instant::now(), &why);
                        link.reconnect.disable(Instant::now());
                    });
                    if told.is_none() {
                        return;
                    }
                    tokio::time::sleep(LISTEN_AGAIN).await;
                    continue;
                }
            };
            let mut tasks = tokio::task::JoinSet::new();
            loop {
                let place = places.clone().acquire_owned().await.expect("never closed");
                match listener.accept().await {
                    Ok(incoming) => {
                        let this = this.clone();
                        tasks.spawn_local(async move {
                            let name = incoming.name.clone();
                            let why = match incoming.establish().await {
                                Ok(stream) => this.serve(stream).await,
                                Err(error) => said(&error),
                            };
                            tracing::debug!(target: "rconn", "{name}: connection closed ({why})");
                            drop(place);
                        });
                        while tasks.try_join_next().is_some() {}
                    }
                    Err(error) => {
                        tracing::warn!(target: "vconn", "accept failed: {}", reason(&error));
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        }
    }

    /// Serves one connection to its end. Why it ended.
    async fn serve(&self, stream: Stream) -> String {
        let purpose = match self.with(|link| link.is_primary()) {
            Some(true) => Purpose::Primary,
            Some(false) => Purpose::Service,
            None => return "not wanted any more".into(),
        };
        let link = LinkOf { target: self.target.clone(), id: self.id };
        let id = self.shared.borrow_mut().connected_by(self.bridge, purpose, Some(link), Instant::now());
        let Some(id) = id else { return "the bridge is gone".into() };
        let guard = Guard { shared: self.shared.clone(), bridge: self.bridge, id };
        let mut mover = Mover { guard: &guard, stream, input: Vec::new(), unflushed: false };
        let ended = mover.run().await;
        let why = self.shared.borrow_mut().conn(self.bridge, id).and_then(|c| c.close_reason.clone());
        match (why, ended) {
            (Some(why), _) => why,
            (None, Ok(())) => "End of file".into(),
            (None, Err(error)) => reason(&error),
        }
    }
}

/// A sentence, as `status:last_error` has it.
fn said(error: &StreamError) -> String {
    error.to_string()
}

/// Takes the connection out of its bridge, also when its task is cancelled.
struct Guard {
    shared: Shared,
    bridge: BridgeIdx,
    id: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Tasks are dropped between turns, when nobody borrows; at the end of the daemon nobody looks any more.
        if let Ok(mut vswitch) = self.shared.try_borrow_mut() {
            vswitch.disconnected(self.bridge, self.id);
        }
    }
}

/// Moves the bytes of one connection.
struct Mover<'a> {
    guard: &'a Guard,
    stream: Stream,
    /// Read, and not yet taken by the connection.
    input: Vec<u8>,
    /// Written, and perhaps still held by TLS.
    unflushed: bool,
}

/// What woke it.
enum Woken {
    Wrote(usize),
    Flushed,
    Read(usize),
    Otherwise,
}

impl Mover<'_> {
    async fn run(&mut self) -> io::Result<()> {
        let Some(notify) = self.with(|conn| conn.notify.clone()) else { return Ok(()) };
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut waiting_since: Option<Instant> = None;
        loop {
            self.give();
            let guard = self.guard;
            let served = guard.shared.borrow_mut().serve(guard.bridge, guard.id, Instant::now());
            match served {
                Served::More => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Served::Waiting => {
                    let since = *waiting_since.get_or_insert_with(Instant::now);
                    if since.elapsed() < YIELDING {
                        tokio::task::yield_now().await;
                    } else {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    continue;
                }
                Served::Quiet | Served::Closed => waiting_since = None,
            }
            let seen = self.with(|c| {
                let waiting = c.connection.transmit();
                (waiting[..waiting.len().min(CHUNK_BYTES)].to_vec(), c.wants_input(), c.poll_timeout())
            });
            let Some((output, wants_input, due)) = seen else { return Ok(()) };
            if served == Served::Closed && output.is_empty() {
                let _ = self.stream.flush().await;
                return Ok(());
            }
            match self.wait(&notify, &output, wants_input && self.input.is_empty(), due, &mut buffer).await? {
                Woken::Wrote(n) => {
                    self.unflushed = true;
                    self.with(|c| c.connection.transmitted(n));
                }
                Woken::Flushed => self.unflushed = false,
                Woken::Read(0) => return Ok(()),
                Woken::Read(n) => self.input.extend_from_slice(&buffer[..n]),
                Woken::Otherwise => {}
            }
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut crate::ofconn::OfConn) -> T) -> Option<T> {
        self.guard.shared.borrow_mut().conn(self.guard.bridge, self.guard.id).map(f)
    }

    /// Gives the connection what was read.
    fn give(&mut self) {
        if self.input.is_empty() {
            return;
        }
        let input = std::mem::take(&mut self.input);
        let now = Instant::now();
        let taken = self.with(|c| c.connection.handle_bytes(now, &input)).unwrap_or(input.len());
        self.input = input;
        self.input.drain(..taken);
    }

    /// Waits until something can be done, and does one such thing.
    async fn wait(
        &mut self,
        notify: &Notify,
        output: &[u8],
        wants_input: bool,
        due: Option<Instant>,
        buffer: &mut [u8],
    ) -> io::Result<Woken> {
        let (mut reader, mut writer) = tokio::io::split(&mut self.stream);
        let unflushed = self.unflushed;
        let out = async {
            if output.is_empty() {
                writer.flush().await.map(|()| Woken::Flushed)
            } else {
                match writer.write(output).await {
                    Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                    Ok(n) => Ok(Woken::Wrote(n)),
                    Err(error) => Err(error),
                }
            }
        };
        let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3_600));
        tokio::select! {
            wrote = out, if !output.is_empty() || unflushed => wrote,
            read = reader.read(buffer), if wants_input => read.map(Woken::Read),
            () = notify.notified() => Ok(Woken::Otherwise),
            () = tokio::time::sleep_until(due.into()) => {
                if let Some(conn) = self.guard.shared.borrow_mut().conn(self.guard.bridge, self.guard.id) {
                    conn.handle_timeout(Instant::now());
                }
                Ok(Woken::Otherwise)
            }
        }
    }
}
