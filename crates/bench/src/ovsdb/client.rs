//! A client of a database that does as little as can be: it finds where messages end, and looks for a word in them.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A connection.
pub struct Client {
    stream: UnixStream,
    buffer: Vec<u8>,
    /// Looked at so far.
    scanned: usize,
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl Client {
    /// Connects.
    pub fn connect(path: &Path) -> Result<Client, String> {
        let stream = UnixStream::connect(path).map_err(|e| format!("{}: {e}", path.display()))?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(|e| e.to_string())?;
        Ok(Client { stream, buffer: Vec::new(), scanned: 0, depth: 0, in_string: false, escaped: false })
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

    /// Waits for a message, and takes what else has come; how many.
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
        self.buffer.drain(..end);
        self.scanned = 0;
    }

    fn read(&mut self) -> Result<(), String> {
        let have = self.buffer.len();
        self.buffer.resize(have + 64 * 1024, 0);
        let n = self.stream.read(&mut self.buffer[have..]).map_err(|e| format!("receiving: {e}"))?;
        self.buffer.truncate(have + n);
        if n == 0 { Err("the server closed the connection".to_owned()) } else { Ok(()) }
    }

    /// Where the first message in the buffer ends, if it does.
    fn next_end(&mut self) -> Option<usize> {
        for (index, &byte) in self.buffer.iter().enumerate().skip(self.scanned) {
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
        self.scanned = self.buffer.len();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_their_braces_do_however_they_come() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut client = Client {
            stream: ours,
            buffer: Vec::new(),
            scanned: 0,
            depth: 0,
            in_string: false,
            escaped: false,
        };
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
