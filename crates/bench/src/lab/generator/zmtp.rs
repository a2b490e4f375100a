//! The part of ZeroMQ's wire protocol that a client of TRex needs: a REQ socket over TCP without security.
//!
//! Source: ZMTP 3.0 (rfc.zeromq.org/spec/23).

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const GREETING_LEN: usize = 64;
/// Flags of a frame: another one follows; its length has eight bytes; it is a command.
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;
/// No answer is longer than this.
const FRAME_MAX: u64 = 16 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a REP or ROUTER socket.
pub struct Requester {
    stream: TcpStream,
}

impl Requester {
    /// Connects to HOST:PORT.
    pub fn connect(address: &str) -> Result<Requester, String> {
        let found = address.to_socket_addrs().map_err(|e| format!("{address}: {e}"))?.next();
        let found = found.ok_or_else(|| format!("{address}: no such host"))?;
        let stream = TcpStream::connect_timeout(&found, TIMEOUT).map_err(|e| format!("{address}: {e}"))?;
        let mut requester = Requester { stream };
        requester.greet().map_err(|e| format!("{address} does not speak ZeroMQ: {e}"))?;
        Ok(requester)
    }

    fn greet(&mut self) -> Result<(), String> {
        let text = |e: std::io::Error| e.to_string();
        self.stream.set_read_timeout(Some(TIMEOUT)).map_err(text)?;
        self.stream.set_nodelay(true).map_err(text)?;
        let mut greeting = [0u8; GREETING_LEN];
        (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
        greeting[12..16].copy_from_slice(b"NULL");
        self.stream.write_all(&greeting).map_err(text)?;
        let mut theirs = [0u8; GREETING_LEN];
        self.stream.read_exact(&mut theirs).map_err(text)?;
        if (theirs[0], theirs[9]) != (0xff, 0x7f) || theirs[10] < 3 || &theirs[12..17] != b"NULL\0" {
            return Err("its greeting is not that of version 3 without security".into());
        }
        let mut ready = b"\x05READY\x0bSocket-Type\0\0\0\x03REQ".to_vec();
        ready.splice(0..0, [COMMAND, ready.len() as u8]);
        self.stream.write_all(&ready).map_err(text)?;
        let (flags, body) = self.frame()?;
        if flags & COMMAND == 0 || !body.starts_with(b"\x05READY") {
            return Err("it is not ready".into());
        }
        Ok(())
    }

    fn frame(&mut self) -> Result<(u8, Vec<u8>), String> {
        let text = |e: std::io::Error| e.to_string();
        let mut head = [0u8; 2];
        self.stream.read_exact(&mut head).map_err(text)?;
        let mut len = u64::from(head[1]);
        if head[0] & LONG != 0 {
            let mut rest = [0u8; 7];
            self.stream.read_exact(&mut rest).map_err(text)?;
            len = rest.iter().fold(len, |len, byte| len << 8 | u64::from(*byte));
        }
        if len > FRAME_MAX {
            return Err(format!("a frame of {len} bytes"));
        }
        let mut body = vec![0; len as usize];
        self.stream.read_exact(&mut body).map_err(text)?;
        Ok((head[0], body))
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, request: &[u8]) -> Result<Vec<u8>, String> {
        // An empty frame precedes the request, as from a REQ socket.
        let mut bytes = vec![MORE, 0, LONG];
        bytes.extend((request.len() as u64).to_be_bytes());
        bytes.extend(request);
        self.stream.write_all(&bytes).map_err(|e| e.to_string())?;
        loop {
            let (flags, body) = self.frame()?;
            if flags & (MORE | COMMAND) == 0 {
                return Ok(body);
            }
        }
    }
}
