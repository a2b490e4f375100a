//! A cable between two dummies: a Unix socket on which each frame follows its length in two bytes, in the
//! format of Open vSwitch's dummies. One end listens (`options:pstream=punix:FILE`), and gets the frames of
//! everyone who connects; the other connects (`options:stream=unix:FILE`), and retries until it succeeds.
//!
//! Threads: one for each connection, and one that listens or connects. Every [`LOOK`] they check whether the
//! port still exists. Workers write without waiting: what a peer does not read goes to a bounded backlog, and
//! is dropped once that is full. A peer gets every frame from the moment it connects: a worker that sends
//! first accepts waiting peers, so that no thread need have run.

use crate::{PortError, PortSpec};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use unix_socket::{Socket, connect_now};

/// Receives incoming frames.
type Receiver = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Between two looks whether there is something to do.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes that a peer may leave unread beyond what its socket holds.
const BACKLOG_BYTES_MAX: usize = 1 << 20;
/// Peers of one port.
const PEERS_MAX: usize = 64;

enum Role {
    Listens,
    Connects,
}

/// The near end.
pub(super) struct End {
    path: PathBuf,
    role: Role,
    /// For a listening end, set once it listens. The socket is removed first.
    listening: OnceLock<(Socket, UnixListener)>,
    peers: Mutex<Peers>,
    is_unplugged: AtomicBool,
}

#[derive(Default)]
struct Peers {
    all: Vec<Peer>,
    next_id: u64,
    /// Admitted, but no thread reads from them yet.
    unread: Vec<(u64, UnixStream)>,
}

struct Peer {
    id: u64,
    stream: UnixStream,
    backlog: VecDeque<u8>,
}

impl Peers {
    /// Sends to a peer from now on.
    fn admit(&mut self, stream: UnixStream) -> std::io::Result<()> {
        stream.set_nonblocking(true)?;
        self.next_id += 1;
        self.unread.push((self.next_id, stream.try_clone()?));
        self.all.push(Peer { id: self.next_id, stream, backlog: VecDeque::new() });
        Ok(())
    }

    /// Accepts peers that are waiting to connect. True where others may still wait.
    fn admit_waiting(&mut self, listener: &UnixListener) -> bool {
        while self.all.len() < PEERS_MAX {
            match listener.accept() {
                Ok((stream, _)) => drop(self.admit(stream)),
                Err(e) => return e.kind() != ErrorKind::WouldBlock,
            }
        }
        true
    }
}

impl Peer {
    /// False where the peer is gone.
    fn flush(&mut self) -> bool {
        while !self.backlog.is_empty() {
            match self.stream.write(self.backlog.as_slices().0) {
                Ok(0) => return false,
                Ok(n) => drop(self.backlog.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

impl End {
    /// The end that the options name, if they name one.
    pub fn of(spec: &PortSpec) -> Result<Option<Arc<End>>, PortError> {
        let (option, prefix, role) = match (spec.option("pstream"), spec.option("stream")) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                return Err(spec.bad("stream", "pstream is the port's cable already".into()));
            }
            (Some(_), None) => ("pstream", "punix:", Role::Listens),
            (None, Some(_)) => ("stream", "unix:", Role::Connects),
        };
        let target = spec.option(option).unwrap_or_default();
        let name =
            target.strip_prefix(prefix).ok_or_else(|| spec.bad(option, format!("expected {prefix}FILE")))?;
        let path = spec.files.path(name).map_err(|why| spec.bad(option, why))?;
        Ok(Some(Arc::new(End {
            path,
            role,
            listening: OnceLock::new(),
            peers: Mutex::default(),
            is_unplugged: AtomicBool::new(false),
        })))
    }

    /// See [`packet::DummyControl::is_connected`].
    pub fn is_connected(&self) -> Option<bool> {
        match self.role {
            Role::Listens => None,
            Role::Connects => Some(!self.peers().all.is_empty()),
        }
    }

    /// False where a peer has no room for the frame.
    pub fn send(&self, frame: &[u8]) -> bool {
        let mut has_room = true;
        let Ok(len) = u16::try_from(frame.len()) else { return false };
        let mut peers = self.peers();
        if let Some((_, listener)) = self.listening.get() {
            peers.admit_waiting(listener);
        }
        peers.all.retain_mut(|peer| {
            if peer.backlog.len() + 2 + frame.len() > BACKLOG_BYTES_MAX {
                has_room = false;
            } else {
                peer.backlog.extend(len.to_be_bytes());
                peer.backlog.extend(frame);
            }
            peer.flush()
        });
        has_room
    }

    fn is_plugged(&self) -> bool {
        !self.is_unplugged.load(Ordering::Acquire)
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().expect("no panic while held")
    }

    /// Takes frames from a peer, and sends it what it left unread, until one of the two goes.
    fn serve(&self, id: u64, mut reader: UnixStream, receive: &dyn Fn(&[u8])) {
        let mut buffer = vec![0; 1 << 17];
        let mut filled = 0;
        while self.is_plugged() {
            match reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock) => {
                    if !self.peers().all.iter_mut().filter(|p| p.id == id).all(Peer::flush) {
                        break;
                    }
                    wait_readable(reader.as_fd(), LOOK);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            let mut at = 0;
            while let Some((len, rest)) = buffer[at..filled].split_first_chunk::<2>() {
                let len = usize::from(u16::from_be_bytes(*len));
                let Some(frame) = rest.get(..len) else { break };
                receive(frame);
                at += 2 + len;
            }
            buffer.copy_within(at..filled, 0);
            filled -= at;
        }
        self.peers().all.retain(|p| p.id != id);
    }
}

/// Waits until there is something to read or a peer to accept, but no longer than `limit`.
fn wait_readable(socket: BorrowedFd<'_>, limit: Duration) {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one initialised pollfd that outlives the call.
    unsafe { libc::poll(&mut poll, 1, limit.as_millis() as i32) };
}

/// A cable that is plugged in, until it is dropped.
pub(super) struct Cable {
    end: Arc<End>,
    thread: Option<JoinHandle<()>>,
}

impl Cable {
    /// Hands frames that come to `receive`.
    pub fn plug(end: Arc<End>, receive: impl Fn(&[u8]) + Send + Sync + 'static) -> Result<Cable, PortError> {
        let receive: Receiver = Arc::new(receive);
        match end.role {
            Role::Listens => {
                let listening = Socket::listen(&end.path).map_err(|e| PortError::file(&end.path, &e))?;
                end.listening.set(listening).expect("an end is plugged in once");
            }
            // If the other end already listens, no frame must wait for a thread.
            Role::Connects => try_to_connect(&end),
        }
        let near = end.clone();
        let run = move || match near.listening.get() {
            Some((_, listener)) => accept(&near, listener, &receive),
            None => keep_connected(&near, &receive),
        };
        let thread = std::thread::Builder::new().name("dummy-cable".into()).spawn(run);
        let thread = thread.map_err(|e| PortError::Os {
            call: "start a thread for a dummy's cable".into(),
            errno: e.raw_os_error().unwrap_or_default(),
        })?;
        Ok(Cable { end, thread: Some(thread) })
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.end.is_unplugged.store(true, Ordering::Release);
        self.thread.take().map(JoinHandle::join);
    }
}

fn accept(end: &Arc<End>, listener: &UnixListener, receive: &Receiver) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while end.is_plugged() {
        threads.retain(|thread| !thread.is_finished());
        let mut peers = end.peers();
        let others_wait = peers.admit_waiting(listener);
        for (id, stream) in std::mem::take(&mut peers.unread) {
            let (near, receive) = (end.clone(), receive.clone());
            match std::thread::Builder::new().spawn(move || near.serve(id, stream, &*receive)) {
                Ok(thread) => threads.push(thread),
                // The machine has no more threads: the peer may try again.
                Err(_) => peers.all.retain(|p| p.id != id),
            }
        }
        drop(peers);
        if others_wait {
            // Those that cannot be admitted would keep the listener readable.
            std::thread::sleep(LOOK);
        } else {
            wait_readable(listener.as_fd(), LOOK);
        }
    }
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

fn keep_connected(end: &End, receive: &Receiver) {
    // Soon at first: mostly, the other end is a port of the same command.
    let mut pause = Duration::from_millis(1);
    while end.is_plugged() {
        let unread = end.peers().unread.pop();
        if let Some((id, stream)) = unread {
            end.serve(id, stream, &**receive);
        }
        if end.is_plugged() {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOOK);
            try_to_connect(end);
        }
    }
}

fn try_to_connect(end: &End) {
    if let Ok(stream) = connect_now(&end.path) {
        let _ = end.peers().admit(stream);
    }
}
