//! A cable between two dummies: a Unix socket on which each frame follows its length in two bytes, as Open
//! vSwitch's dummies write them. One end listens (`options:pstream=punix:FILE`), and gets the frames of all
//! who connect; the other connects (`options:stream=unix:FILE`), again and again until there is somebody.
//!
//! Threads: one for each connection and one that listens or connects. They look every [`LOOK`] whether the
//! port is still there. Workers write without waiting: what a peer does not read lies in a bounded backlog,
//! and then is dropped.

use crate::{PortError, PortSpec};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// What takes frames that come.
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
    peers: Mutex<Vec<Peer>>,
    is_unplugged: AtomicBool,
}

struct Peer {
    id: u64,
    stream: UnixStream,
    backlog: VecDeque<u8>,
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
    /// That which the options name, if they name any.
    pub fn of(spec: &PortSpec) -> Result<Option<Arc<End>>, PortError> {
        let (option, prefix, role) = match (spec.option("pstream"), spec.option("stream")) {
            (None, None) => return Ok(None),
            (Some(_), _) => ("pstream", "punix:", Role::Listens),
            (None, Some(_)) => ("stream", "unix:", Role::Connects),
        };
        let target = spec.option(option).unwrap_or_default();
        let name =
            target.strip_prefix(prefix).ok_or_else(|| spec.bad(option, format!("expected {prefix}FILE")))?;
        let path = spec.files.path(name).map_err(|why| spec.bad(option, why))?;
        Ok(Some(Arc::new(End { path, role, peers: Mutex::default(), is_unplugged: AtomicBool::new(false) })))
    }

    /// See [`packet::DummyControl::is_connected`].
    pub fn is_connected(&self) -> Option<bool> {
        match self.role {
            Role::Listens => None,
            Role::Connects => Some(!self.peers.lock().expect("no panic while held").is_empty()),
        }
    }

    /// False where a peer has no room for the frame.
    pub fn send(&self, frame: &[u8]) -> bool {
        let mut has_room = true;
        let Ok(len) = u16::try_from(frame.len()) else { return false };
        self.peers.lock().expect("no panic while held").retain_mut(|peer| {
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

    /// Exchanges frames with a peer until one of the two goes.
    fn serve(&self, id: u64, stream: UnixStream, receive: &dyn Fn(&[u8])) -> std::io::Result<()> {
        stream.set_nonblocking(true)?;
        let mut reader = stream.try_clone()?;
        self.peers.lock().expect("no panic while held").push(Peer { id, stream, backlog: VecDeque::new() });
        let mut buffer = vec![0; 1 << 17];
        let mut filled = 0;
        while self.is_plugged() {
            match reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock) => {
                    let mut peers = self.peers.lock().expect("no panic while held");
                    if !peers.iter_mut().filter(|p| p.id == id).all(Peer::flush) {
                        break;
                    }
                    drop(peers);
                    wait_readable(&reader);
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
        self.peers.lock().expect("no panic while held").retain(|p| p.id != id);
        Ok(())
    }
}

/// Waits until there is something to read, but no longer than [`LOOK`].
fn wait_readable(stream: &UnixStream) {
    use std::os::fd::AsRawFd;
    let mut poll = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one initialised pollfd that outlives the call.
    unsafe { libc::poll(&mut poll, 1, LOOK.as_millis() as i32) };
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
        let listener = match end.role {
            Role::Listens => Some(listen(&end.path)?),
            Role::Connects => None,
        };
        let near = end.clone();
        let run = move || match listener {
            Some(listener) => accept(&near, &listener, &receive),
            None => connect(&near, &receive),
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
        if matches!(self.end.role, Role::Listens) {
            let _ = std::fs::remove_file(&self.end.path);
        }
    }
}

/// A socket that an earlier process left is replaced, and nothing else is.
fn listen(path: &PathBuf) -> Result<UnixListener, PortError> {
    use std::os::unix::fs::FileTypeExt;
    if UnixStream::connect(path).is_err()
        && std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
    {
        let _ = std::fs::remove_file(path);
    }
    let bound =
        UnixListener::bind(path).and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    bound.map_err(|e| PortError::Os {
        call: format!("listen on {}", path.display()),
        errno: e.raw_os_error().unwrap_or(libc::EINVAL),
    })
}

fn accept(end: &Arc<End>, listener: &UnixListener, receive: &Receiver) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut next_id = 0;
    while end.is_plugged() {
        threads.retain(|thread| !thread.is_finished());
        match listener.accept() {
            Ok((stream, _)) if threads.len() < PEERS_MAX => {
                next_id += 1;
                let (end, receive, id) = (end.clone(), receive.clone(), next_id);
                threads.push(std::thread::spawn(move || drop(end.serve(id, stream, &*receive))));
            }
            _ => std::thread::sleep(LOOK),
        }
    }
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

fn connect(end: &End, receive: &Receiver) {
    while end.is_plugged() {
        if let Ok(stream) = UnixStream::connect(&end.path) {
            let _ = end.serve(0, stream, &**receive);
        }
        if end.is_plugged() {
            std::thread::sleep(LOOK);
        }
    }
}
