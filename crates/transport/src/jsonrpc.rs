//! JSON-RPC 1.0 on a stream of bytes: JSON objects one after the other, nothing but white space between.
//!
//! [`Framer`] finds where an object ends, looking at each byte once however the stream is cut, and refuses
//! what is longer or more deeply nested than its limits before anything is built. [`Connection`] sends and
//! receives the messages of a database; the control socket has [its own](crate::unixctl).
//!
//! Source: RFC 7047 section 4; JSON-RPC 1.0; RFC 8259.

use crate::outbox::Outbox;
use crate::{Stream, clock, reason};
use ovsdb::jsonrpc::Message;
use std::fmt;
use std::time::Instant;
use tokio::io::{AsyncReadExt, ReadHalf, WriteHalf};

/// Bounds on what a peer may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Longest message in bytes.
    pub bytes_max: usize,
    /// Deepest nesting of objects and arrays; at most 120, since the parser itself stops at 128.
    pub depth_max: u32,
}

impl Limits {
    /// For a client: the contents of a database come in one message, and its server is trusted.
    pub const OF_CONTENTS: Limits = Limits { bytes_max: 64 << 30, depth_max: 100 };
}

impl Default for Limits {
    /// 256 MiB, room for a restored database of a million small rows, and 100 levels, where OVSDB needs ten.
    fn default() -> Limits {
        Limits { bytes_max: 256 << 20, depth_max: 100 }
    }
}

/// Why a stream cannot continue. The connection must be closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadFrame {
    /// Longer than the limit, in bytes.
    TooLong(usize),
    /// More deeply nested than the limit.
    TooDeep(u32),
    /// No JSON object starts here.
    NotAnObject(u8),
    /// It is not valid UTF-8.
    NotText(String),
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadFrame::TooLong(max) => write!(f, "error parsing stream: a message longer than {max} bytes"),
            BadFrame::TooDeep(max) => {
                write!(f, "error parsing stream: a message nested deeper than {max} levels")
            }
            BadFrame::NotAnObject(b'[' | b'"') => {
                f.write_str("received bad JSON-RPC message: message is not a JSON object")
            }
            BadFrame::NotAnObject(byte) => {
                write!(f, "error parsing stream: '{}' where a JSON object should begin", byte.escape_ascii())
            }
            BadFrame::NotText(why) => write!(f, "error parsing stream: {why}"),
        }
    }
}

impl std::error::Error for BadFrame {}

/// White space as JSON has it (RFC 8259 section 2): no form feed.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Takes bytes, yields the text of objects.
#[derive(Debug)]
pub struct Framer {
    limits: Limits,
    buffer: Vec<u8>,
    /// Where the current object starts in `buffer`.
    start: usize,
    /// Up to where in `buffer` the scanner has looked.
    scanned: usize,
    depth: u32,
    in_string: bool,
    escaped: bool,
}

/// A buffer that grew beyond this is given back once most of it is taken.
const BUFFER_KEPT: usize = 64 << 10;

impl Framer {
    /// An empty one.
    pub fn new(limits: Limits) -> Framer {
        assert!(limits.depth_max <= 120, "the parser stops at 128 levels, with an error that says less");
        Framer {
            limits,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            depth: 0,
            in_string: false,
            escaped: false,
        }
    }

    /// Takes what was received. Call [`Self::next_object`] until it yields no more before the next bytes
    /// come, so that what is kept stays bounded.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.compact();
        self.buffer.extend_from_slice(bytes);
    }

    /// A place to read into directly: append to it, nothing else.
    pub fn space(&mut self) -> &mut Vec<u8> {
        self.compact();
        &mut self.buffer
    }

    /// The text of the next complete object. `None`: more bytes are needed. After an error the stream is of
    /// no more use.
    pub fn next_object(&mut self) -> Result<Option<&str>, BadFrame> {
        let Some(bytes) = self.next_bytes()? else { return Ok(None) };
        std::str::from_utf8(bytes).map(Some).map_err(|e| BadFrame::NotText(e.to_string()))
    }

    /// As [`Self::next_object`], for a receiver that can answer what is not UTF-8.
    pub fn next_bytes(&mut self) -> Result<Option<&[u8]>, BadFrame> {
        if self.depth == 0 && !self.begin()? {
            self.compact();
            return Ok(None);
        }
        while self.scanned < self.buffer.len() {
            if self.in_string {
                self.skip_string();
                continue;
            }
            let byte = self.buffer[self.scanned];
            self.scanned += 1;
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth > self.limits.depth_max {
                        return Err(BadFrame::TooDeep(self.limits.depth_max));
                    }
                }
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return self.take().map(Some);
                    }
                }
                _ => {}
            }
        }
        self.check_length()?;
        self.compact();
        Ok(None)
    }

    /// Bytes kept of an object that is not complete.
    pub fn buffered(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Bytes of memory held.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Skips white space. Whether an object has begun.
    fn begin(&mut self) -> Result<bool, BadFrame> {
        let blank = self.buffer[self.scanned..].iter().take_while(|b| is_blank(**b)).count();
        self.scanned += blank;
        self.start = self.scanned;
        match self.buffer.get(self.scanned) {
            None => Ok(false),
            Some(b'{') => {
                self.depth = 1;
                self.scanned += 1;
                Ok(true)
            }
            Some(&other) => Err(BadFrame::NotAnObject(other)),
        }
    }

    fn skip_string(&mut self) {
        let rest = &self.buffer[self.scanned..];
        if self.escaped {
            self.escaped = false;
            self.scanned += 1;
            return;
        }
        match rest.iter().position(|&b| b == b'"' || b == b'\\') {
            None => self.scanned = self.buffer.len(),
            Some(at) => {
                self.scanned += at + 1;
                if rest[at] == b'"' { self.in_string = false } else { self.escaped = true }
            }
        }
    }

    fn take(&mut self) -> Result<&[u8], BadFrame> {
        self.check_length()?;
        let object = &self.buffer[self.start..self.scanned];
        self.start = self.scanned;
        Ok(object)
    }

    fn check_length(&self) -> Result<(), BadFrame> {
        match self.scanned - self.start > self.limits.bytes_max {
            true => Err(BadFrame::TooLong(self.limits.bytes_max)),
            false => Ok(()),
        }
    }

    /// Drops what was taken. A peer that sends no more must not keep the memory of what it has sent.
    pub fn compact(&mut self) {
        self.buffer.drain(..self.start);
        if self.buffer.capacity() > BUFFER_KEPT.max(4 * self.buffer.len()) {
            self.buffer.shrink_to(2 * self.buffer.len());
        }
        self.scanned -= self.start;
        self.start = 0;
    }
}

/// A connection of a client or a replica to a database server.
#[derive(Debug)]
pub struct Connection {
    /// How it was reached, as the log names it.
    name: String,
    reader: ReadHalf<Stream>,
    writer: WriteHalf<Stream>,
    outbox: Outbox,
    framer: Framer,
    heard: Instant,
}

impl Connection {
    /// Over a stream that has been made.
    pub fn new(name: impl Into<String>, stream: Stream) -> Connection {
        let (reader, writer) = tokio::io::split(stream);
        let (framer, outbox) = (Framer::new(Limits::OF_CONTENTS), Outbox::default());
        Connection { name: name.into(), reader, writer, outbox, framer, heard: clock::now() }
    }

    /// Has a message sent while the next one is waited for: a server that has much to say meanwhile may read
    /// nothing before that was taken.
    pub fn queue(&mut self, message: &Message) {
        tracing::debug!(target: "jsonrpc", "{}: send {}", self.name, Shown(message));
        message.write(self.outbox.bytes());
    }

    /// Sends a message. The error is the system's, in words.
    pub async fn send(&mut self, message: &Message) -> Result<(), String> {
        self.queue(message);
        while self.outbox.has_more() {
            self.outbox.send(&mut self.writer).await.map_err(|error| reason(&error))?;
        }
        Ok(())
    }

    /// Waits for the next message, and sends what is queued. Cancelling it loses nothing.
    pub async fn receive(&mut self) -> Result<Message, String> {
        loop {
            if let Some(text) = self.framer.next_object().map_err(|error| error.to_string())? {
                let message = Message::parse(text).map_err(|error| error.to_string())?;
                tracing::debug!(target: "jsonrpc", "{}: received {}", self.name, Shown(&message));
                return Ok(message);
            }
            let Connection { reader, writer, outbox, framer, .. } = self;
            tokio::select! {
                read = reader.read_buf(framer.space()) => match read {
                    Ok(0) => return Err("End of file".into()),
                    Ok(_) => self.heard = clock::now(),
                    Err(error) => return Err(reason(&error)),
                },
                sent = outbox.send(writer), if outbox.has_more() => sent.map_err(|error| reason(&error))?,
            }
        }
    }

    /// When bytes last came.
    pub fn heard(&self) -> Instant {
        self.heard
    }
}

/// A message as the log shows it.
struct Shown<'a>(&'a Message);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Message::Request { method, params, id } => {
                write!(f, "request, method=\"{method}\", params={params}, id={id}")
            }
            Message::Notification { method, params } => {
                write!(f, "notification, method=\"{method}\", params={params}")
            }
            Message::Reply { result, id } => write!(f, "reply, result={result}, id={id}"),
            Message::Error { error, id } => write!(f, "error, error={error}, id={id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(framer: &mut Framer, bytes: &[u8]) -> Result<Vec<String>, BadFrame> {
        framer.feed(bytes);
        let mut objects = Vec::new();
        while let Some(object) = framer.next_object()? {
            objects.push(object.to_owned());
        }
        Ok(objects)
    }

    #[test]
    fn objects_are_found_however_the_bytes_are_cut() {
        let text = b" {\"a\":[1,{\"b\":\"}]{\\\"\\\\\"}]}\n{}\t{\"c\":\"\\\\\"} {\"half\":";
        let mut framer = Framer::new(Limits::default());
        let whole = objects(&mut framer, text).unwrap();
        assert_eq!(whole.len(), 3);
        assert_eq!(framer.buffered(), "{\"half\":".len());
        for size in [1, 2, 3, 7] {
            let mut framer = Framer::new(Limits::default());
            let pieces: Vec<_> =
                text.chunks(size).flat_map(|piece| objects(&mut framer, piece).unwrap()).collect();
            assert_eq!(pieces, whole, "cut into pieces of {size}");
        }
    }

    #[test]
    fn what_is_too_long_or_too_deep_is_refused_at_the_bound() {
        let limits = Limits { bytes_max: 1 << 20, depth_max: 10 };
        let mut framer = Framer::new(limits);
        objects(&mut framer, b"{\"a\":\"").unwrap();
        let result = (0..100).try_for_each(|_| objects(&mut framer, &[b'x'; 65_536]).map(|_| ()));
        assert_eq!(result, Err(BadFrame::TooLong(1 << 20)));
        assert!(framer.capacity() <= 4 << 20);

        let deep = "[".repeat(9) + &"]".repeat(9);
        assert!(objects(&mut Framer::new(limits), format!("{{\"a\":{deep}}}").as_bytes()).is_ok());
        let result = objects(&mut Framer::new(limits), format!("{{\"a\":[{deep}]}}").as_bytes());
        assert_eq!(result, Err(BadFrame::TooDeep(10)));
    }

    #[test]
    fn blanks_without_end_take_no_memory() {
        let mut framer = Framer::new(Limits::default());
        (0..100).for_each(|_| assert!(objects(&mut framer, &[b' '; 65_536]).unwrap().is_empty()));
        assert!(framer.capacity() <= 2 * 65_536);
    }

    #[test]
    fn two_that_both_say_more_than_a_socket_holds_before_they_read_both_are_heard() {
        async fn talk(stream: std::os::unix::net::UnixStream) -> Result<Message, String> {
            stream.set_nonblocking(true).unwrap();
            let stream = tokio::net::UnixStream::from_std(stream).unwrap();
            let mut connection = Connection::new("x", Stream::Unix(stream));
            connection.queue(&Message::notification("long", &["x".repeat(4 << 20)]));
            let heard = connection.receive().await;
            // What is left of the long one goes first. The other may not wait for the end.
            let _ = connection.send(&Message::notification("end", &())).await;
            heard
        }
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let both = async { tokio::join!(talk(one), talk(other)) };
        let (first, second) = crate::runtime().unwrap().block_on(both);
        for heard in [first, second] {
            assert!(matches!(heard, Ok(Message::Notification { method, .. }) if method == "long"));
        }
    }

    #[test]
    fn a_large_buffer_is_given_back() {
        let mut framer = Framer::new(Limits::default());
        let big = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
        for rest in ["", " ", "{\"half\":"] {
            assert_eq!(objects(&mut framer, (big.clone() + rest).as_bytes()).unwrap().len(), 1);
            // Nothing more has to come.
            assert!(framer.capacity() <= BUFFER_KEPT, "{rest:?}: {}", framer.capacity());
            assert_eq!(framer.buffered(), rest.trim().len());
            framer = Framer::new(Limits::default());
        }
    }

    #[test]
    fn what_is_no_object_ends_the_stream() {
        for bad in [&b"hello"[..], b"]", b"[]", b"\"\"", b"1"] {
            let result = objects(&mut Framer::new(Limits::default()), bad);
            assert!(matches!(result, Err(BadFrame::NotAnObject(_))), "{bad:?}: {result:?}");
        }
        let result = objects(&mut Framer::new(Limits::default()), b"{\"\xff\"}");
        assert!(matches!(result, Err(BadFrame::NotText(_))));
    }
}
