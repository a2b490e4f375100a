//! A minimal client of a database: it finds where messages end, and searches them for a word.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Room for what is read at once.
const READ_BYTES: usize = 64 << 10;

/// How long a client waits for an answer.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// A connection.
pub struct Client {
    stream: UnixStream,
    /// Read data is at its beginning. It is never cleared: with thousands of replies per second that would be
    /// most of a client's work, on processors that it shares with the server.
    buffer: Vec<u8>,
    /// Bytes that were read and not taken.
    filled: usize,
    /// Bytes already scanned.
    scanned: usize,
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl Client {
    /// Connects.
    pub fn connect(path: &Path) -> Result<Client, String> {
        let stream = UnixStream::connect(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Client::of(stream))
    }

    fn of(stream: UnixStream) -> Client {
        let buffer = vec![0; READ_BYTES];
        Client { stream, buffer, filled: 0, scanned: 0, depth: 0, in_string: false, escaped: false }
    }

    /// Sends messages.
    pub fn send(&mut self, messages: &str) -> Result<(), String> {
        self.stream.write_all(messages.as_bytes()).map_err(|e| format!("sending: {e}"))
    }

    /// Sends a request, and returns its reply's result.
    pub fn call(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.send(&json!({"id": "call", "method": method, "params": params}).to_string())?;
        let mut result = Value::Null;
        self.receive(|reply| {
            let mut reply: Value = serde_json::from_slice(reply).map_err(|e| e.to_string())?;
            if !reply["error"].is_null() {
                return Err(reply.to_string());
            }
            result = reply["result"].take();
            Ok(())
        })?;
        Ok(result)
    }

    /// Waits for one message.
    pub fn receive(&mut self, mut check: impl FnMut(&[u8]) -> Result<(), String>) -> Result<(), String> {
        loop {
            if let Some(end) = self.next_end() {
                check(&self.buffer[..end])?;
                self.take(end);
                return Ok(());
            }
            self.read()?;
        }
    }

    /// Waits for a message, and takes any others that have arrived; returns how many.
    pub fn receive_some(
        &mut self,
        mut check: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<usize, String> {
        let mut count = 0;
        loop {
            while let Some(end) = self.next_end() {
                check(&self.buffer[..end])?;
                self.take(end);
                count += 1;
            }
            if count > 0 {
                return Ok(count);
            }
            self.read()?;
        }
    }

    fn take(&mut self, end: usize) {
        self.buffer.copy_within(end..self.filled, 0);
        self.filled -= end;
        self.scanned = 0;
    }

    fn read(&mut self) -> Result<(), String> {
        if self.buffer.len() - self.filled < READ_BYTES / 2 {
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
        // Like real clients of databases. A client that sleeps in a read is woken not only by its answer, but
        // also when the server reads its request, since it could send more then: that costs both sides.
        let mut waits = [PollFd::new(&self.stream, PollFlags::IN)];
        let ready = retry_on_intr(|| poll(&mut waits, Some(&PATIENCE)));
        if ready.map_err(|e| format!("waiting: {e}"))? == 0 {
            return Err(format!("the server is silent for {} s", PATIENCE.tv_sec));
        }
        let n = self.stream.read(&mut self.buffer[self.filled..]).map_err(|e| format!("receiving: {e}"))?;
        self.filled += n;
        if n == 0 { Err("the server closed the connection".to_owned()) } else { Ok(()) }
    }

    /// Where the first message in the buffer ends, if it is complete.
    fn next_end(&mut self) -> Option<usize> {
        for (index, &byte) in self.buffer[..self.filled].iter().enumerate().skip(self.scanned) {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' if !self.in_string => self.depth += 1,
                b'}' if !self.in_string => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(index + 1);
                    }
                }
                _ => {}
            }
        }
        self.scanned = self.filled;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_their_braces_do_however_they_come() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut client = Client::of(ours);
        let messages = [r#"{"a":"}\"{"}"#, r#"{"b":{"c":[{}]}}"#, "{}"];
        let all = messages.concat();
        let sender = std::thread::spawn(move || {
            for byte in all.as_bytes() {
                theirs.write_all(&[*byte]).unwrap();
            }
        });
        for message in messages {
            let mut seen = Vec::new();
            client
                .receive(|bytes| {
                    seen = bytes.to_vec();
                    Ok(())
                })
                .unwrap();
            assert_eq!(seen, message.as_bytes());
        }
        sender.join().unwrap();
    }
}
