//! The tasks that move bytes between a bridge's sockets and its connections.
//!
//! One task per connection. It takes bytes only while its connection wants them, so that a client who sends
//! faster than it is served is held up by the socket, and a client who does not read its replies holds up itself.
//!
//! A client that waits for each answer before it asks again (`ovs-ofctl add-flows` does so a million times) spends its
//! time in being woken up. So after answering a barrier the task looks at the socket for some microseconds more before it
//! goes to sleep.

use crate::clock;
use crate::ofconn::{Purpose, Served};
use crate::state::Vswitch;
use rustix::net::RecvFlags;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch::BridgeIdx;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};

/// Connections to one socket at once; further ones wait.
const CONNECTIONS_MAX: usize = 200;
/// How long to look for the next request after a barrier was answered.
const BRISK: Duration = Duration::from_micros(40);
/// How long to wait for workers by yielding before sleeping in between.
const YIELDING: Duration = Duration::from_micros(500);
/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;

/// The state that all tasks share.
pub type Shared = Rc<RefCell<Vswitch>>;

/// Serves a socket of a bridge for ever.
pub async fn serve(listener: UnixListener, shared: Shared, bridge: BridgeIdx, purpose: Purpose) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = places.clone().acquire_owned().await.expect("never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = shared.clone();
                tokio::task::spawn_local(async move {
                    let id = shared.borrow_mut().connected(bridge, purpose, clock::now());
                    if let Some(id) = id {
                        let mut task = Task { shared: shared.clone(), stream, bridge, id, input: Vec::new() };
                        if let Err(error) = task.run().await {
                            tracing::debug!(target: "vconn", "a connection broke: {error}");
                        }
                        shared.borrow_mut().disconnected(bridge, id);
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(target: "vconn", "accept failed: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

struct Task {
    shared: Shared,
    stream: UnixStream,
    bridge: BridgeIdx,
    id: u64,
    /// Read, and not yet taken by the connection.
    input: Vec<u8>,
}

impl Task {
    async fn run(&mut self) -> io::Result<()> {
        let Some(notify) = self.with(|conn| conn.notify.clone()) else { return Ok(()) };
        let mut buffer = vec![0; READ_BYTES];
        let mut waiting_since: Option<Instant> = None;
        loop {
            self.give();
            let served = self.shared.borrow_mut().serve(self.bridge, self.id, clock::now());
            let blocked = self.transmit()?;
            match served {
                Served::Closed if !blocked => return Ok(()),
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
            let (wants_input, brisk) = self.with(|c| (c.wants_input(), c.brisk)).unwrap_or_default();
            let wants_input = wants_input && self.input.is_empty();
            if wants_input && brisk && self.look(&mut buffer)? {
                continue;
            }
            match self.wait(&notify, wants_input, blocked).await? {
                Woken::Readable => {
                    if !self.read(&mut buffer)? {
                        return Ok(());
                    }
                }
                Woken::Otherwise => {}
            }
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut crate::ofconn::OfConn) -> T) -> Option<T> {
        self.shared.borrow_mut().conn(self.bridge, self.id).map(f)
    }

    /// Gives the connection what was read.
    fn give(&mut self) {
        if self.input.is_empty() {
            return;
        }
        let input = std::mem::take(&mut self.input);
        let now = clock::now();
        let taken = self.with(|c| c.connection.handle_bytes(now, &input)).unwrap_or(input.len());
        self.input = input;
        self.input.drain(..taken);
    }

    /// Sends what waits. Whether some has to wait on.
    fn transmit(&self) -> io::Result<bool> {
        let mut shared = self.shared.borrow_mut();
        let Some(conn) = shared.conn(self.bridge, self.id) else { return Ok(false) };
        while !conn.connection.transmit().is_empty() {
            match self.stream.try_write(conn.connection.transmit()) {
                Ok(n) => conn.connection.transmitted(n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(e) => return Err(e),
            }
        }
        Ok(false)
    }

    /// Reads what is there. False at the end of the stream.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        match self.stream.try_read(buffer) {
            Ok(0) => Ok(false),
            Ok(n) => {
                self.input.extend_from_slice(&buffer[..n]);
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(e) => Err(e),
        }
    }

    /// Looks for bytes for a moment without sleeping. Whether there are any.
    fn look(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let start = Instant::now();
        while start.elapsed() < BRISK {
            match rustix::net::recv(&self.stream, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Ok(false),
                Ok((n, _)) => {
                    self.input.extend_from_slice(&buffer[..n]);
                    return Ok(true);
                }
                Err(rustix::io::Errno::AGAIN) => std::hint::spin_loop(),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(false)
    }

    async fn wait(&self, notify: &Notify, wants_input: bool, blocked: bool) -> io::Result<Woken> {
        let due = self.with(|c| c.connection.poll_timeout()).flatten();
        let due = due.unwrap_or_else(|| clock::now() + Duration::from_secs(3600));
        tokio::select! {
            ready = self.stream.readable(), if wants_input => ready.map(|()| Woken::Readable),
            ready = self.stream.writable(), if blocked => ready.map(|()| Woken::Otherwise),
            () = notify.notified() => Ok(Woken::Otherwise),
            () = clock::sleep_until(due) => {
                self.with(|c| c.handle_timeout(clock::now()));
                Ok(Woken::Otherwise)
            }
        }
    }
}

enum Woken {
    Readable,
    Otherwise,
}
