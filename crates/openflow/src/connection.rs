//! One OpenFlow connection, on either side: framing, hello, liveness, errors for what cannot be read.
//!
//! The owner moves the bytes and tells the time: what arrives goes into [`Connection::handle_bytes`], what is
//! to be sent comes from [`Connection::transmit`], [`Connection::poll_timeout`] says when
//! [`Connection::handle_timeout`] is due, and [`Connection::next_event`] gives what happened, message by
//! message.
//!
//! Invariants:
//! - Memory is bounded: input beyond [`INPUT_MAX`] is not taken, and while more than [`OUTPUT_MAX`] waits to
//!   be sent no further message is handled (replies to one may exceed it; packets that the switch sends by
//!   itself are dropped above [`UNASKED_MAX`]; what must not be lost ends the connection above [`OWED_MAX`]).
//! - A message that cannot be read is answered with its error and skipped; the connection lives. It ends
//!   where the bytes can no longer be split into messages, where no version is common, and where the peer is
//!   silent.
//! - Echo requests are answered, and probes sent, here; requests of several parts are put together.
//!
//! Source: OpenFlow 1.3 sections 6.3 and 7.5.

mod close;

pub use self::close::{CloseReason, OWED_MAX};
use crate::codec::{Codec, HEADER_LEN, Header, Unencodable};
use crate::error::{ErrorCode, ErrorKind, OfError};
use crate::message::Message;
use crate::parts::{Joined, Parts};
pub use crate::request::RequestHead;
use crate::request::whole_error;
use crate::version::{Version, VersionSet};
use std::time::{Duration, Instant};

/// Bytes of input that are kept: some of the longest messages.
pub const INPUT_MAX: usize = 4 * 0x1_0000;
/// Bytes of output above which no further request is handled. Peers that read nothing may be many.
pub const OUTPUT_MAX: usize = 256 << 10;
/// Room that is kept for the next input and output once all has been handled and sent. Peers that say nothing
/// may be many.
const ROOM_KEPT: usize = 64 << 10;
/// Bytes of output above which messages that the peer did not ask for are dropped, if they may be.
pub const UNASKED_MAX: usize = 1 << 20;
/// How long the peer may take for its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// The type of echo requests, in every version.
const ECHO_REQUEST: u8 = 2;
/// Transaction id of probes. Open vSwitch's.
const PROBE_XID: u32 = 0;

/// Whether a message is a barrier request: of type 18 in OpenFlow 1.0, 20 since.
fn is_barrier(header: Header) -> bool {
    header.kind == if Version::from_wire(header.version) == Some(Version::V10) { 18 } else { 20 }
}

/// Which end this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The switch: takes requests, answers what it cannot read with errors.
    Switch,
    /// The controller, or `ofctl`: takes everything, answers nothing by itself but echo requests.
    Controller,
    /// Who listens to what others say (`snoop`): takes every message, hellos too, in the message's own
    /// version, and answers nothing.
    Listener,
}

/// How a connection is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionConfig {
    /// Which end this is.
    pub side: Side,
    /// Versions that may be spoken. What is not in [`VersionSet::SUPPORTED`] is left out; where nothing is
    /// left, the hello offers it all the same, and no version is common.
    pub versions: VersionSet,
    /// Silence after which an echo request is sent; after as much again the connection ends. `None`: never.
    pub probe_interval: Option<Duration>,
}

/// What happened.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// Both have said hello: this version is spoken.
    Up(Version),
    /// A message.
    Message {
        /// Its transaction id.
        xid: u32,
        /// What it says.
        message: Message,
        /// Its beginning, for errors.
        head: RequestHead,
    },
    /// A message that could not be read. On a switch the error has been sent.
    Unreadable {
        /// Its transaction id.
        xid: u32,
        /// What is wrong with it.
        error: ErrorKind,
        /// Its beginning.
        head: RequestHead,
    },
    /// The connection is to be closed, once what waits to be sent has been. Nothing comes after this.
    Closed(CloseReason),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    AwaitHello { deadline: Instant },
    Up(Codec),
    Closed,
}

/// One connection. See the module's text.
#[derive(Debug)]
pub struct Connection {
    config: ConnectionConfig,
    state: State,
    pending: Option<Event>,
    input: Vec<u8>,
    /// Bytes of `input` that have been handled.
    handled: usize,
    /// Where the last message handled lies in `input`, for the error in answer to it.
    current: std::ops::Range<usize>,
    output: Vec<u8>,
    /// Bytes of `output` that have been sent.
    sent: usize,
    /// Bytes sent that are no longer in `output`.
    sent_before: u64,
    last_rx: Instant,
    /// When and under which transaction id the probe was sent that has not been answered.
    probe: Option<(Instant, u32)>,
    next_xid: u32,
    tap: Option<Vec<u8>>,
    /// Messages for a log, if one is kept.
    journal: Option<Vec<Logged>>,
    /// The versions that the peer offered.
    theirs: VersionSet,
    /// A barrier request was handed out and is not answered yet.
    awaits_barrier: bool,
    /// Requests of which parts are missing.
    parts: Parts,
    /// Echo requests are handed out too.
    shows_echoes: bool,
    /// The peer's role, which its requests must allow before they are read.
    pub is_secondary: bool,
}

impl Connection {
    /// A fresh connection; its hello waits to be sent.
    pub fn new(config: ConnectionConfig, now: Instant) -> Connection {
        let versions = config.versions.intersect(VersionSet::SUPPORTED);
        let offered = if versions == VersionSet(0) { config.versions } else { versions };
        let mut connection = Connection {
            config: ConnectionConfig { versions, ..config },
            state: State::AwaitHello { deadline: now + HELLO_TIMEOUT },
            pending: None,
            input: Vec::new(),
            handled: 0,
            current: 0..0,
            output: Vec::new(),
            sent: 0,
            sent_before: 0,
            last_rx: now,
            probe: None,
            next_xid: 1,
            tap: None,
            journal: None,
            theirs: VersionSet(0),
            awaits_barrier: false,
            parts: Parts::default(),
            shows_echoes: false,
            is_secondary: false,
        };
        let xid = connection.new_xid();
        connection.output = Codec::hello(offered, xid);
        connection
    }

    /// The version spoken, once it is agreed on.
    pub fn version(&self) -> Option<Version> {
        self.codec().map(|codec| codec.version)
    }

    /// The codec as agreed on so far.
    pub fn codec(&self) -> Option<Codec> {
        if let State::Up(codec) = self.state { Some(codec) } else { None }
    }

    /// A transaction id of its own.
    pub fn new_xid(&mut self) -> u32 {
        let xid = self.next_xid;
        self.next_xid = self.next_xid.wrapping_add(1).max(1);
        xid
    }

    /// Takes bytes that arrived; returns how many. Fewer than given means: handle events first, then give the
    /// rest.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) -> usize {
        if self.handled > 0 && (self.handled == self.input.len() || self.handled >= INPUT_MAX / 2) {
            self.input.drain(..self.handled);
            if self.input.is_empty() {
                self.input.shrink_to(ROOM_KEPT);
            }
            self.handled = 0;
            self.current = 0..0;
        }
        let room = INPUT_MAX.saturating_sub(self.input.len() - self.handled);
        let taken = bytes.len().min(room);
        self.input.extend_from_slice(&bytes[..taken]);
        if taken > 0 {
            self.last_rx = now;
        }
        taken
    }

    /// Whether [`Self::handle_bytes`] would take anything: if not, do not read from the peer.
    pub fn wants_input(&self) -> bool {
        self.state != State::Closed && self.input.len() - self.handled < INPUT_MAX
    }

    /// Whether so much waits to be sent that no message is handled.
    pub fn is_congested(&self) -> bool {
        self.output.len() - self.sent > OUTPUT_MAX
    }

    /// Whether so much waits to be sent that what the peer does not ask for is lost.
    pub fn is_full(&self) -> bool {
        self.output.len() - self.sent > UNASKED_MAX
    }

    /// Bytes of memory that it holds for what has come and what is to be sent.
    pub fn held_bytes(&self) -> usize {
        self.input.capacity() + self.output.capacity() + self.parts.held_bytes()
    }

    /// Whether memory is scarce, so that requests may not wait for their further parts.
    pub fn set_scarce(&mut self, is_scarce: bool) {
        self.parts.is_scarce = is_scarce;
    }

    /// What happened next, or `None` until more bytes arrive (or are sent, where much waits).
    pub fn next_event(&mut self, now: Instant) -> Option<Event> {
        loop {
            if let Some(event) = self.pending.take() {
                return Some(event);
            }
            if self.state == State::Closed || self.is_congested() {
                return None;
            }
            let rest = &self.input[self.handled..];
            let header = Header::parse(rest)?;
            let length = usize::from(header.length);
            if length < HEADER_LEN {
                let head = RequestHead::new(rest);
                self.send_error(header.xid, head.error(ErrorKind::OFPBRC_BAD_LEN));
                return Some(self.close(CloseReason::BadLength(header.length)));
            }
            if rest.len() < length {
                return None;
            }
            let range = self.handled..self.handled + length;
            self.handled = range.end;
            self.current = range.clone();
            note(&mut self.tap, &mut self.journal, false, &self.input[range.clone()]);
            if let Some(event) = self.handle_message(now, header, range) {
                return Some(event);
            }
        }
    }

    /// The bytes of the message that [`Self::next_event`] returned last, until [`Self::handle_bytes`] is
    /// called again.
    pub fn last_message(&self) -> &[u8] {
        &self.input[self.current.clone()]
    }

    /// Answers the echo requests among the messages that wait to be handled, ahead of their turn: the owner
    /// is held up, and the peer shall not take that for death. Those behind a barrier wait for it, as they
    /// must.
    pub fn answer_echoes(&mut self) {
        let State::Up(codec) = self.state else { return };
        // What stays moves up once, however many echo requests lie between: a peer may send thousands.
        let (mut at, mut kept) = (self.handled, self.handled);
        while self.config.side != Side::Listener && !self.awaits_barrier && !self.is_congested() {
            let rest = &self.input[at..];
            let Some(header) = Header::parse(rest) else { break };
            let length = usize::from(header.length);
            if length < HEADER_LEN || rest.len() < length || is_barrier(header) {
                break;
            }
            let range = at..at + length;
            at = range.end;
            // One that cannot be read has its error when its turn comes.
            if header.kind == ECHO_REQUEST
                && let Ok((xid, Message::EchoRequest(data))) = codec.decode(&rest[..length])
            {
                note(&mut self.tap, &mut self.journal, false, &self.input[range]);
                self.send(xid, &Message::EchoReply(data)).expect("every version has echo replies");
                continue;
            }
            if kept < range.start {
                self.input.copy_within(range, kept);
            }
            kept += length;
        }
        self.input.drain(kept..at);
    }

    fn handle_message(
        &mut self,
        now: Instant,
        header: Header,
        range: std::ops::Range<usize>,
    ) -> Option<Event> {
        let State::Up(mut codec) = self.state else {
            return Some(self.handle_hello(now, header, range));
        };
        if self.config.side == Side::Listener
            && let Some(version) = Version::from_wire(header.version)
            && VersionSet::SUPPORTED.contains(version)
        {
            // Which connections agreed on tables in flow-mods of 1.0 is not known; where they did not, the
            // table reads as 0.
            codec = Codec { version, flow_mod_table_id: true };
        }
        let bytes = &self.input[range];
        let is_switch = self.config.side == Side::Switch;
        let result = match codec.decode(bytes) {
            Ok((_, m)) if is_switch && !m.is_for_switch() => Err(ErrorKind::OFPBRC_BAD_TYPE),
            Ok((_, message)) => Ok(message),
            Err(error) if is_switch => Err(codec.refusal(bytes, error, self.is_secondary)),
            Err(error) => Err(error),
        };
        let xid = header.xid;
        let message = match result {
            Ok(message) => message,
            Err(error) => {
                let head = RequestHead::new(bytes);
                // An error in answer to an error could go on for ever.
                if self.config.side == Side::Switch && header.kind != 1 {
                    let whole = whole_error(error, bytes);
                    self.send_error(xid, whole);
                }
                return Some(Event::Unreadable { xid, error, head });
            }
        };
        if self.config.side == Side::Listener {
            return Some(Event::Message { xid, message, head: RequestHead::new(bytes) });
        }
        let message = match message {
            Message::StatsRequest(part)
                if self.config.side == Side::Switch && codec.version >= Version::V13 =>
            {
                match self.parts.join(now, xid, bytes, part) {
                    Joined::Waits => return None,
                    Joined::Whole(request) => Message::StatsRequest(request),
                    Joined::Refused(error) => {
                        let (head, whole) = (RequestHead::new(bytes), whole_error(error, bytes));
                        self.send_error(xid, whole);
                        return Some(Event::Unreadable { xid, error, head });
                    }
                }
            }
            other => other,
        };
        match message {
            Message::EchoRequest(data) => {
                let head = RequestHead::new(bytes);
                let answer = Message::EchoReply(data.clone());
                self.send(xid, &answer).expect("every version has echo replies");
                let message = Message::EchoRequest(data);
                return self.shows_echoes.then_some(Event::Message { xid, message, head });
            }
            Message::EchoReply(_) if self.probe.is_some_and(|(_, probe)| probe == xid) => {
                self.probe = None;
                return None;
            }
            Message::BarrierRequest => self.awaits_barrier = true,
            _ => {}
        }
        if let Message::FlowModTableId(set) = message {
            self.state = State::Up(Codec { flow_mod_table_id: set, ..codec });
        }
        Some(Event::Message { xid, message, head: RequestHead::new(bytes) })
    }

    fn handle_hello(&mut self, now: Instant, header: Header, range: std::ops::Range<usize>) -> Event {
        let bytes = &self.input[range];
        // Errors have the same form in all versions, near enough to say what the peer means.
        let version = Version::from_wire(header.version).unwrap_or(Version::V10);
        let theirs = match Codec::new(version).decode(bytes) {
            Ok((_, Message::Hello(theirs))) => theirs,
            Ok((_, Message::Error(error))) => return self.close(CloseReason::RefusedByPeer(error)),
            _ => return self.close(CloseReason::NoHello(header.kind)),
        };
        self.theirs = theirs;
        let Some(version) = self.config.versions.intersect(theirs).greatest() else {
            let text = format!(
                "We support {}, you support {}, no common versions.",
                self.config.versions.describe(),
                theirs.describe()
            );
            let error =
                OfError { code: ErrorCode::Known(ErrorKind::OFPHFC_INCOMPATIBLE), data: text.into_bytes() };
            // In the peer's own version, so that it can read why.
            self.state = State::Up(Codec::new(version));
            self.send_error(0, error);
            return self.close(CloseReason::NoCommonVersion(theirs));
        };
        self.state = State::Up(Codec::new(version));
        self.last_rx = now;
        Event::Up(version)
    }

    fn close(&mut self, reason: CloseReason) -> Event {
        self.state = State::Closed;
        self.parts = Parts::default();
        self.input = Vec::new();
        self.handled = 0;
        self.current = 0..0;
        Event::Closed(reason)
    }

    fn send_error(&mut self, xid: u32, error: OfError) {
        let mut codec = self
            .codec()
            .unwrap_or_else(|| Codec::new(self.config.versions.greatest().unwrap_or(Version::V10)));
        // Who sends a message of another version reads that one, if any.
        if error.code == ErrorCode::Known(ErrorKind::OFPBRC_BAD_VERSION)
            && let Some(version) = error.data.first().and_then(|version| Version::from_wire(*version))
        {
            codec = Codec::new(version);
        }
        let start = self.output.len();
        codec
            .encode_into(xid, &Message::Error(error), &mut self.output)
            .expect("errors are cut to fit, and in every version");
        self.tap_output(start);
    }

    fn tap_output(&mut self, start: usize) {
        note(&mut self.tap, &mut self.journal, true, &self.output[start..]);
    }

    /// Sends a message. Before the hellos nothing can be sent: the version is not known.
    pub fn send(&mut self, xid: u32, message: &Message) -> Result<(), SendError> {
        let codec = self.codec().ok_or(SendError::NotUp)?;
        let start = self.output.len();
        codec.encode_into(xid, message, &mut self.output).map_err(SendError::Unencodable)?;
        if *message == Message::BarrierReply {
            self.awaits_barrier = false;
        }
        // What is said after this is encoded so.
        if let Message::FlowModTableId(set) = *message {
            self.state = State::Up(Codec { flow_mod_table_id: set, ..codec });
        }
        self.tap_output(start);
        Ok(())
    }

    /// Sends what the peer did not ask for and may miss, unless too much waits to be sent already: then
    /// `false`, and it is lost.
    pub fn send_unasked(&mut self, message: &Message) -> Result<bool, SendError> {
        if self.is_full() {
            return Ok(false);
        }
        self.send(0, message).map(|()| true)
    }

    /// Sends what the peer did not ask for and must be told. If too much waits even so, the connection ends.
    pub fn send_owed(&mut self, message: &Message) -> Result<(), SendError> {
        if self.is_closed() {
            return Ok(());
        }
        if self.output.len() - self.sent > OWED_MAX {
            self.pending = Some(self.close(CloseReason::Behind));
            return Ok(());
        }
        self.send(0, message)
    }

    /// Sends bytes that [`Codec`] or [`crate::ReplyWriter`] made: whole messages.
    pub fn send_bytes(&mut self, messages: &[u8]) {
        let start = self.output.len();
        self.output.extend_from_slice(messages);
        self.tap_output(start);
    }

    /// Answers a request with an error, which carries all of the request if that is the last event's, else
    /// its beginning.
    pub fn reply_error(&mut self, xid: u32, head: &RequestHead, kind: ErrorKind) {
        let current = &self.input[self.current.clone()];
        let error =
            if current.starts_with(head.as_bytes()) { whole_error(kind, current) } else { head.error(kind) };
        self.send_error(xid, error);
    }

    /// What is to be sent. Call [`Self::transmitted`] with how much of it was.
    pub fn transmit(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// So many bytes of [`Self::transmit`] have been sent.
    pub fn transmitted(&mut self, n: usize) {
        self.sent += n.min(self.output.len() - self.sent);
        if self.sent == self.output.len() {
            self.sent_before += self.sent as u64;
            self.output.clear();
            self.sent = 0;
            self.output.shrink_to(ROOM_KEPT);
        } else if self.sent > OUTPUT_MAX && self.sent > self.output.len() / 2 {
            // Each byte is moved about once, however many wait.
            self.sent_before += self.sent as u64;
            self.output.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Bytes sent since the beginning.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_before + self.sent as u64
    }

    /// Bytes that are sent or wait to be.
    pub fn queued_bytes(&self) -> u64 {
        self.sent_before + self.output.len() as u64
    }

    /// The peer has taken something after so much waited that nothing more could be sent: it lives, though
    /// what it says may wait to be read, and our probe to be sent.
    pub fn progressed(&mut self, now: Instant) {
        self.last_rx = self.last_rx.max(now);
    }

    /// When the peer was last heard.
    pub fn last_rx(&self) -> Instant {
        self.last_rx
    }

    /// Whether it has ended, which [`Event::Closed`] told or will tell.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether a probe has been sent and nothing has come since.
    pub fn is_probing(&self) -> bool {
        self.probe.is_some_and(|(at, _)| self.last_rx <= at)
    }

    /// The interval of probes.
    pub fn probe_interval(&self) -> Option<Duration> {
        self.config.probe_interval
    }

    /// Changes the interval of probes.
    pub fn set_probe_interval(&mut self, interval: Option<Duration>) {
        self.config.probe_interval = interval;
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.liveness_timeout().into_iter().chain(self.parts.deadline()).min()
    }

    fn liveness_timeout(&self) -> Option<Instant> {
        match (self.state, self.probe) {
            (State::AwaitHello { deadline }, _) => Some(deadline),
            (State::Up(_), Some((at, _))) => Some(at.max(self.last_rx) + self.config.probe_interval?),
            (State::Up(_), None) => Some(self.last_rx + self.config.probe_interval?),
            (State::Closed, _) => None,
        }
    }

    /// Probes a silent peer, and gives up on one that stays silent. Gives up on requests of which parts do
    /// not come.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((xid, head)) = self.parts.expire(now) {
            self.send_error(xid, head.error(ErrorKind::OFPBRC_MULTIPART_REQUEST_TIMEOUT));
        }
        if matches!(self.state, State::Up(_)) && !self.wants_input() && !self.is_congested() {
            // It is us who do not listen: its requests wait for one that takes long.
            self.last_rx = self.last_rx.max(now);
        }
        if self.liveness_timeout().is_none_or(|due| now < due) {
            return;
        }
        let silent = match (self.state, self.probe) {
            (State::AwaitHello { .. }, _) => true,
            // Anything that came since the probe shows that the peer is there.
            (_, Some((at, _))) => self.last_rx <= at,
            _ => false,
        };
        if silent {
            let event = self.close(CloseReason::Silent);
            self.pending = Some(event);
            return;
        }
        self.probe = Some((now, PROBE_XID));
        self.send(PROBE_XID, &Message::EchoRequest(Vec::new()))
            .expect("up, and every version has echo requests");
    }

    /// Hands echo requests out from now on, for who shows all that comes. They are answered all the same.
    pub fn show_echoes(&mut self) {
        self.shows_echoes = true;
    }

    /// Keeps a copy of every message in either direction from now on, for `snoop`; of the hello too if it
    /// waits to be sent.
    pub fn start_tap(&mut self) {
        let is_fresh = matches!(self.state, State::AwaitHello { .. }) && self.sent == 0;
        let hello = if is_fresh { &self.output[..] } else { &[] };
        self.tap.get_or_insert_with(|| hello.to_vec());
    }

    /// Ends that.
    pub fn stop_tap(&mut self) {
        self.tap = None;
    }

    /// Whether messages are kept for a log from now on; the hello too if it waits to be sent.
    pub fn set_journal(&mut self, is_kept: bool) {
        if !is_kept {
            self.journal = None;
        } else if self.journal.is_none() {
            let is_fresh = matches!(self.state, State::AwaitHello { .. }) && self.sent == 0;
            self.journal = Some(Vec::new());
            if is_fresh {
                note(&mut None, &mut self.journal, true, &self.output);
            }
        }
    }

    /// The messages since the last call, in their order. What exceeds [`JOURNAL_MAX`] of them is missing.
    pub fn take_journal(&mut self) -> Vec<Logged> {
        self.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The versions that this side speaks and those that the peer offered.
    pub fn offers(&self) -> (VersionSet, VersionSet) {
        (self.config.versions, self.theirs)
    }

    /// The copies since the last call, whole messages. What exceeds [`UNASKED_MAX`] between calls is missing.
    pub fn take_tap(&mut self) -> Vec<u8> {
        self.tap.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// Messages that are kept for a log between two looks at it.
pub const JOURNAL_MAX: usize = 1_024;

/// A message for a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Logged {
    /// Whether this side sent it.
    pub is_sent: bool,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// Keeps copies of whole messages for who snoops and for the log.
fn note(tap: &mut Option<Vec<u8>>, journal: &mut Option<Vec<Logged>>, is_sent: bool, messages: &[u8]) {
    if let Some(tap) = tap
        && tap.len() < UNASKED_MAX
    {
        tap.extend_from_slice(messages);
    }
    let Some(journal) = journal else { return };
    let mut rest = messages;
    while let Some(header) = Header::parse(rest)
        && journal.len() < JOURNAL_MAX
    {
        let Some((message, after)) = rest.split_at_checked(usize::from(header.length).max(1)) else { return };
        journal.push(Logged { is_sent, bytes: message.to_vec() });
        rest = after;
    }
}

/// Why a message was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// No hello yet, or closed.
    NotUp,
    /// The version has no such message, or it is too long.
    Unencodable(Unencodable),
}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SendError::NotUp => f.write_str("the connection is not up"),
            SendError::Unencodable(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for SendError {}

#[cfg(test)]
mod tests;
