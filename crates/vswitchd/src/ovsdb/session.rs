//! One client's connection: its bytes in, its messages to the server, its output out.
//!
//! One poll does all available work, in turns: it sends pending output and then, if the client reads its
//! output, reads and handles the client's messages. Nothing is kept across a wait except a buffer that is
//! empty between messages, so 10,000 idle clients cost little.

use super::connection::Connection;
use super::incomplete::SMALL_BYTES;
use super::state::{State, now};
use ovsdb::jsonrpc::{BadMessage, Message};
use ovsdb::server::SessionId;
use serde_json::json;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Sleep;
use transport::jsonrpc::{BadFrame, Framer, Limits};
use transport::reconnect::{Action, Reconnect};
use transport::{Closing, Idle, Idlers, Stream, Waits, reason};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// How long it is served before others have their turn.
const TURN: Duration = Duration::from_millis(2);

thread_local! {
    /// The read buffer that all connections share; each copies what it cannot parse yet.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client closed it.
    Closed,
    /// The server did: the databases changed, or the client takes too much memory.
    ByServer,
    /// So did it, and the client does not take what it was sent.
    Cut,
    /// It was idle, and others needed its descriptor.
    GaveWay,
    /// It did not answer a probe.
    Silent,
    /// Its input could not be parsed.
    Unreadable(BadFrame),
    /// Its input could be parsed, but is not allowed.
    Bad(BadMessage),
    /// It sends too much of one request while others do the same.
    OverBudget,
    /// The system says so.
    Os(std::io::Error),
}

impl End {
    /// In the form for `last_error`. `None`: no error.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            End::Closed => Some("End of file".into()),
            End::ByServer | End::Cut | End::GaveWay => None,
            End::Silent => Some("Connection timed out".into()),
            End::Unreadable(_) | End::Bad(_) => Some("Protocol error".into()),
            End::OverBudget => Some("Cannot allocate memory".into()),
            End::Os(error) => Some(reason(error)),
        }
    }
}

/// Serves a client until either side ends the connection. Reports everything to its reconnect state.
pub(super) async fn converse(state: &Rc<State>, stream: Stream, connection: &Connection) -> End {
    let reconnect = &*connection.reconnect;
    let id = {
        let (options, mut server) = (connection.options(), state.server.borrow_mut());
        let id = server.connect(options.read_only);
        server.set_session_role(id, &options.role);
        server.set_session_client(id, stream.peer_name().map(str::to_owned));
        id
    };
    state.count(|c| c.connections += 1);
    connection.connected(id);
    let mut session = Session {
        state: state.clone(),
        id,
        stream,
        framer: Framer::new(Limits::default()),
        half_handled: false,
        is_behind: false,
        needs_flush: false,
        idlers: connection.idlers.clone(),
        idles: None,
        dismissed: Rc::default(),
        overdrawn: Rc::default(),
        sent_bytes: 0,
        closing: None,
    };
    let (dismissed, overdrawn) = (session.dismissed.clone(), session.overdrawn.clone());
    let end = loop {
        let deadline = reconnect.borrow().deadline();
        let probe = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = overdrawn.notified() => break End::OverBudget,
            end = poll_fn(|cx| session.poll(cx, reconnect)) => break end,
            () = probe => {
                let action = reconnect.borrow_mut().run(Instant::now());
                match action {
                    Some(Action::Probe) => {
                        let probe = Message::request("echo", &json!([]), "echo");
                        state.server.borrow_mut().output(id).write(|out| probe.write(out));
                    }
                    Some(Action::Disconnect) => break End::Silent,
                    Some(Action::Connect) | None => {}
                }
            }
            () = dismissed.notified() => {
                // It may have become active again since.
                if session.idles.is_some() {
                    break End::GaveWay;
                }
            }
            () = connection.changed() => {}
        }
    };
    match &end {
        End::Bad(why @ BadMessage::Unexpected(_)) => {
            state.count(|c| c.bad_streams += 1);
            tracing::warn!(target: "ovsdb_jsonrpc_server", "{}: {why}", connection.name);
        }
        End::Bad(why) => dropped(state, connection, why),
        End::Unreadable(why) => dropped(state, connection, why),
        End::OverBudget => {
            state.count(|c| c.over_budget += 1);
            tracing::warn!(target: "jsonrpc", "{}: closed: requests take too much memory", connection.name);
        }
        End::Silent => {
            state.count(|c| c.silent += 1);
            let interval = reconnect.borrow().options().probe_interval;
            transport::tell_silence(&connection.name, interval.unwrap_or_default());
        }
        End::GaveWay => {
            tracing::debug!(target: "jsonrpc", "{}: idle, closed to make room for others", connection.name);
        }
        End::Cut => {
            state.count(|c| c.cut += 1);
            let bytes = state.server.borrow_mut().output(id).len();
            tracing::debug!(target: "jsonrpc", "{}: cut with {bytes} bytes not sent", connection.name);
        }
        End::Closed | End::ByServer | End::Os(_) => {
            tracing::debug!(target: "jsonrpc", "{}: connection closed", connection.name);
        }
    }
    drop(session);
    connection.disconnected(id);
    end
}

/// Says that what the client sent cannot be read.
fn dropped(state: &State, connection: &Connection, why: &dyn std::fmt::Display) {
    state.count(|c| c.bad_streams += 1);
    tracing::warn!(target: "jsonrpc", "{}: {why}", connection.name);
    tracing::warn!(target: "reconnect", "{}: connection dropped (Protocol error)", connection.name);
}

struct Session {
    state: Rc<State>,
    id: SessionId,
    stream: Stream,
    framer: Framer,
    /// The framer may have whole messages, which are not handled yet.
    half_handled: bool,
    /// It had not taken all of its output when something was last sent.
    is_behind: bool,
    /// Bytes were written into a TLS stream, which has not sent all of them.
    needs_flush: bool,
    /// The clients that give way to others, if this is one of them.
    idlers: Option<Rc<Idlers>>,
    /// How it is idle, and its place among them.
    idles: Option<(Idle, Waits)>,
    /// It must give way.
    dismissed: Rc<Notify>,
    /// It keeps most of all incomplete requests, which are too much.
    overdrawn: Rc<Notify>,
    /// Bytes that the stream has taken.
    sent_bytes: u64,
    /// It must end once all is sent, or at a deadline.
    closing: Option<(Closing, Pin<Box<Sleep>>)>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.state.server.borrow_mut().disconnect(self.id);
        self.state.forget(self.id);
        // Locks went to others.
        self.state.has_work();
    }
}

impl Session {
    fn poll(&mut self, cx: &mut Context<'_>, reconnect: &RefCell<Reconnect>) -> Poll<End> {
        let until = Instant::now() + TURN;
        while Instant::now() < until {
            let was_behind = self.is_behind;
            let sent = match self.send(cx) {
                Ok(sent) => sent,
                Err(error) => return Poll::Ready(End::Os(error)),
            };
            if self.state.server.borrow().is_closing(self.id) {
                if self.state.server.borrow().is_sent(self.id) && !self.needs_flush {
                    return Poll::Ready(End::ByServer);
                }
                let (now, sent) = (Instant::now(), self.sent_bytes);
                let (closing, sleep) = self
                    .closing
                    .get_or_insert_with(|| (Closing::new(now, sent), Box::pin(tokio::time::sleep(TURN))));
                let deadline = closing.deadline(now, sent);
                sleep.as_mut().reset(deadline.into());
                if deadline <= now || sleep.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(End::Cut);
                }
            }
            let read = match self.receive(cx, reconnect, until) {
                Ok(read) => read,
                Err(end) => return Poll::Ready(end),
            };
            if sent && was_behind || self.state.server.borrow().is_kept_waiting(self.id) {
                // It has taken what it was sent before, or waits for us: that nothing of it is read is no
                // silence.
                reconnect.borrow_mut().heard(Instant::now());
            }
            if sent || read {
                self.idles = None;
            } else {
                self.note_idle();
                self.state.sleeps(self.id, cx.waker());
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Nothing can be done for it now.
    fn note_idle(&mut self) {
        let Some(idlers) = &self.idlers else { return };
        let idle = match self.state.server.borrow().is_idle(self.id) {
            _ if self.is_behind => Idle::Reads,
            true => Idle::AsksNothing,
            false => Idle::Watches,
        };
        if self.idles.as_ref().is_none_or(|(before, _)| *before != idle) {
            self.idles = Some((idle, idlers.wait_on(idle, self.dismissed.clone())));
        }
    }

    /// Sends what can be sent. Whether anything was.
    fn send(&mut self, cx: &mut Context<'_>) -> std::io::Result<bool> {
        let mut server = self.state.server.borrow_mut();
        let mut progress = false;
        while let Some(front) = server.output(self.id).front() {
            match Pin::new(&mut self.stream).poll_write(cx, front) {
                Poll::Ready(Ok(0)) => return Err(std::io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => {
                    server.output(self.id).advance(n);
                    self.sent_bytes += n as u64;
                    self.needs_flush = matches!(self.stream, Stream::Tls(..));
                    progress = true;
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        self.is_behind = !server.output(self.id).is_empty();
        if self.needs_flush
            && let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(cx)
        {
            flushed?;
            self.needs_flush = false;
        }
        if progress {
            server.drained(self.id);
            if server.has_stale() {
                // What this turn had no time for must not wait for somebody else's work.
                drop(server);
                self.state.has_work();
            }
        }
        Ok(progress)
    }

    /// Reads and handles what there is, if the client takes its output. Whether anything came.
    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        reconnect: &RefCell<Reconnect>,
        until: Instant,
    ) -> Result<bool, End> {
        if !self.state.server.borrow().may_read(self.id) {
            return Ok(false);
        }
        if self.half_handled {
            self.handle(until)?;
            return Ok(true);
        }
        let stream = &mut self.stream;
        let framer = &mut self.framer;
        let read = SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            match Pin::new(stream).poll_read(cx, &mut buffer) {
                Poll::Pending => None,
                Poll::Ready(Err(error)) => Some(Err(error)),
                Poll::Ready(Ok(())) => {
                    framer.feed(buffer.filled());
                    Some(Ok(buffer.filled().len()))
                }
            }
        });
        match read {
            None => Ok(false),
            Some(Err(error)) => Err(End::Os(error)),
            Some(Ok(0)) => Err(End::Closed),
            Some(Ok(_)) => {
                reconnect.borrow_mut().heard(Instant::now());
                self.handle(until)?;
                Ok(true)
            }
        }
    }

    /// Handles complete messages until there are no more, the output is full, or it is another client's turn.
    fn handle(&mut self, until: Instant) -> Result<(), End> {
        let now = now();
        let mut server = self.state.server.borrow_mut();
        self.half_handled = false;
        loop {
            if !server.may_read(self.id) {
                self.half_handled = true;
                break;
            }
            match self.framer.next_bytes() {
                Err(bad) => return Err(End::Unreadable(bad)),
                Ok(None) => break,
                Ok(Some(bytes)) => {
                    server.handle_bytes(now, self.id, bytes).map_err(End::Bad)?;
                    if Instant::now() >= until {
                        self.half_handled = true;
                        break;
                    }
                }
            }
        }
        drop(server);
        self.state.has_work();
        self.account();
        Ok(())
    }

    /// Counts what is kept of an incomplete request: all that the buffer takes if that is more than every
    /// connection may keep for its next one.
    fn account(&mut self) {
        self.framer.compact();
        let capacity = self.framer.capacity();
        let bytes = if capacity > SMALL_BYTES { capacity } else { self.framer.buffered() };
        self.state.keeps_incomplete(self.id, bytes, &self.overdrawn);
    }
}
