//! The line of an OpenFlow connection: its stream, and the [`Connection`] that says what the bytes mean.
//!
//! The control thread moves the bytes, in the connection's own task. Where it is held up, the keepalive
//! thread takes its place: it answers echo requests, sends probes, and ends the connection of a peer that
//! does not answer one. All else waits in the connection for the control thread.
//!
//! Threads: both take the lock for moments, never over a wait or the handling of a message.

use crate::keepalive::Pulse;
use openflow::Connection;
use openflow::connection::OWED_MAX;
use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use transport::{Account, Stream, clock};

/// Bytes read at once.
pub(crate) const READ_BYTES: usize = 64 * 1024;
/// A peer with more to read than this is behind, as long as it took something in this time.
const BEHIND_BYTES: usize = OWED_MAX / 8;
const BEHIND_MAX: Duration = Duration::from_secs(10);
/// How often to look whether the control thread is late, and how often to take its place while it is.
const LOOK: Duration = Duration::from_millis(200);
const HELP: Duration = Duration::from_millis(20);

/// See the module's text.
pub(crate) struct Line {
    state: Mutex<State>,
    /// Wakes the task that moves the bytes.
    pub notify: Notify,
}

struct State {
    connection: Connection,
    /// `None` until there is one, and in tests without.
    stream: Option<Stream>,
    /// Read, and not yet taken by the connection.
    input: Vec<u8>,
    /// Written, and perhaps still held by TLS.
    unflushed: bool,
    /// The socket had no room for all that waits.
    is_full: bool,
    /// When the peer last took something.
    sent_at: Instant,
}

/// The connection, while nobody else has it.
pub(crate) struct Guard<'a>(MutexGuard<'a, State>);

impl Deref for Guard<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0.connection
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.0.connection
    }
}

impl Line {
    /// Without a stream yet.
    pub fn new(connection: Connection) -> Line {
        let state = State {
            connection,
            stream: None,
            input: Vec::new(),
            unflushed: false,
            is_full: false,
            sent_at: clock::now(),
        };
        Line { state: Mutex::new(state), notify: Notify::new() }
    }

    /// Its bytes go over this.
    pub fn set_stream(&self, stream: Stream) {
        self.state().stream = Some(stream);
    }

    /// The differentiated services code point of what is sent from now on.
    pub fn set_dscp(&self, dscp: u8) {
        if let Some(stream) = &self.state().stream {
            stream.set_dscp(dscp);
        }
    }

    /// Nothing is written or read any more: the peer sees the end, whoever still knows the line.
    pub fn close(&self) {
        self.state().stream = None;
    }

    /// The connection. To be held for one call.
    pub fn connection(&self) -> Guard<'_> {
        Guard(self.state())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all that was read has been taken by the connection.
    pub fn is_drained(&self) -> bool {
        self.state().input.is_empty()
    }

    /// Gives the connection what was read.
    pub fn give(&self) {
        self.state().give(clock::now());
    }

    /// Whether much waits that the peer takes slowly. One that takes nothing is dead rather than behind.
    pub fn is_behind(&self, now: Instant) -> bool {
        let state = self.state();
        let is_alive = now.saturating_duration_since(state.sent_at) < BEHIND_MAX;
        is_alive && !state.connection.is_closed() && state.connection.transmit().len() > BEHIND_BYTES
    }

    /// Sends what waits, and sees TLS send it too.
    pub fn poll_transmit(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let State { connection, stream, unflushed, is_full, sent_at, .. } = &mut *self.state();
        let Some(stream) = stream else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        while !connection.transmit().is_empty() {
            match Pin::new(&mut *stream).poll_write(cx, connection.transmit())? {
                Poll::Pending => {
                    *is_full = true;
                    return Poll::Pending;
                }
                Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(n) => connection.transmitted(n),
            }
            *sent_at = clock::now();
            if *is_full {
                // There is room again, so the peer has read something.
                connection.progressed(*sent_at);
            }
            *unflushed = true;
        }
        *is_full = false;
        if *unflushed {
            ready!(Pin::new(stream).poll_flush(cx))?;
            *unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what is there. How many bytes; none at the end.
    pub fn poll_receive(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let State { stream, input, .. } = &mut *self.state();
        let Some(stream) = stream else { return Poll::Ready(Ok(0)) };
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
        input.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Takes bytes that have come already, without the runtime's help. Whether there were any.
    pub fn look(&self, buffer: &mut [u8]) -> io::Result<bool> {
        let State { stream, input, .. } = &mut *self.state();
        match stream.as_mut().map(|stream| stream.read_now(buffer)) {
            Some(Ok(n)) => {
                input.extend_from_slice(&buffer[..n]);
                Ok(n > 0)
            }
            Some(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(false),
        }
    }

    /// Says what the connection holds, and lets it know whether that is scarce.
    pub fn settle(&self, account: &Account, is_blocked: bool) {
        let State { connection, input, .. } = &mut *self.state();
        account.set(input.capacity() + connection.held_bytes(), connection.sent_bytes(), is_blocked);
        connection.set_scarce(account.is_scarce());
    }

    /// Answers echo requests while the connection's other requests wait for one that takes long.
    pub fn answer_echoes(&self) {
        self.state().stand_in(clock::now());
    }

    /// What the keepalive thread does: nothing, unless the control thread is late. When it is due again;
    /// `None`: the connection is gone.
    pub fn keep_alive(line: &std::sync::Weak<Line>, pulse: &Pulse, now: Instant) -> Option<Instant> {
        let line = line.upgrade()?;
        if !pulse.is_late(now) {
            return Some(pulse.next(now, LOOK));
        }
        match line.state.try_lock() {
            Ok(mut state) => {
                if state.stand_in(clock::now()) {
                    line.notify.notify_one();
                }
            }
            // The control thread is at it.
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Poisoned(_)) => return None,
        }
        Some(pulse.next(now, HELP))
    }
}

impl State {
    fn give(&mut self, now: Instant) {
        if !self.input.is_empty() {
            let taken = self.connection.handle_bytes(now, &self.input);
            self.input.drain(..taken);
        }
    }

    /// Reads, answers, probes and writes without the control thread. Whether there is something for it.
    fn stand_in(&mut self, now: Instant) -> bool {
        if self.connection.is_closed() {
            return false;
        }
        let mut buffer = [0; 4096];
        let mut has_news = false;
        self.give(now);
        while self.input.is_empty() && self.connection.wants_input() {
            // An end or an error waits in the socket for the control thread.
            match self.stream.as_mut().map(|stream| stream.read_now(&mut buffer)) {
                Some(Ok(n)) if n > 0 => self.input.extend_from_slice(&buffer[..n]),
                _ => break,
            }
            has_news = true;
            self.give(now);
        }
        self.connection.answer_echoes();
        if self.connection.poll_timeout().is_some_and(|due| due <= now) {
            self.connection.handle_timeout(now);
            has_news = true;
        }
        self.write_now(now);
        if self.connection.is_closed()
            && let Some(stream) = &self.stream
        {
            // The peer has not answered a probe. It is told now, the control thread when it comes.
            stream.shutdown_now();
        }
        has_news
    }

    fn write_now(&mut self, now: Instant) {
        let Some(stream) = &mut self.stream else { return };
        while !self.connection.transmit().is_empty() {
            match stream.write_now(self.connection.transmit()) {
                Ok(n) if n > 0 => self.connection.transmitted(n),
                // What else is wrong the control thread finds out.
                _ => {
                    self.is_full = true;
                    return;
                }
            }
            // What TLS still holds is for the task to flush.
            self.unflushed = true;
            self.sent_at = now;
            if self.is_full {
                self.connection.progressed(now);
            }
        }
        self.is_full = false;
    }
}

/// Has the keepalive thread look after a line.
pub(crate) fn keep(line: &Arc<Line>, keepalive: &crate::keepalive::Keepalive) {
    let (line, pulse) = (Arc::downgrade(line), keepalive.pulse());
    keepalive.attach(move |now| Line::keep_alive(&line, &pulse, now));
}
