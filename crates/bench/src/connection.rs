//! A connection for OpenFlow 1.3 to a switch that is measured.

use crate::daemon::Daemon;
use openflow::message::{FlowMod, Message};
use openflow::{Codec, Header, Version, VersionSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// No message of a switch takes longer than this.
const TIME: Duration = Duration::from_secs(300);

/// See the module documentation.
pub struct Connection(UnixStream);

impl Connection {
    /// Connects, and says hello.
    pub fn open(daemon: &Daemon) -> Result<Connection, String> {
        let mut connection = Connection(daemon.openflow()?);
        connection.0.set_read_timeout(Some(TIME)).map_err(failed)?;
        connection.0.write_all(&Codec::hello(VersionSet::only(Version::V13), 0)).map_err(failed)?;
        match connection.receive()? {
            Message::Hello(_) => Ok(connection),
            other => Err(format!("the switch does not begin with a hello but with {}", other.name())),
        }
    }

    /// Sends encoded messages, the last of which requests a barrier, and waits for its reply: the switch has
    /// then executed them. An error if it refuses one of them.
    pub fn until_barrier(&mut self, messages: &[u8]) -> Result<(), String> {
        let mut writer = self.0.try_clone().map_err(failed)?;
        std::thread::scope(|scope| {
            // A switch that does not read while its answers are not read would wait for ever otherwise.
            let sent = scope.spawn(move || writer.write_all(messages));
            let answer = self.answer();
            if answer.is_err() {
                // So that the writer ends too.
                drop(self.0.shutdown(std::net::Shutdown::Both));
            }
            let sent = sent.join().expect("writing does not panic").map_err(failed);
            answer.and(sent)
        })
    }

    fn answer(&mut self) -> Result<(), String> {
        match self.next()? {
            Message::BarrierReply => Ok(()),
            other => Err(format!("instead of the barrier's reply came {other:?}")),
        }
    }

    /// Sends a few encoded messages, of which the switch answers one, and waits for this answer. Nothing
    /// comes between the call and the sending, whose time may be taken.
    pub fn ask(&mut self, messages: &[u8]) -> Result<Message, String> {
        self.0.write_all(messages).map_err(failed)?;
        self.next()
    }

    /// The next message of the switch that is not only to keep the connection alive.
    fn next(&mut self) -> Result<Message, String> {
        loop {
            match self.receive()? {
                Message::EchoRequest(data) => {
                    let mut reply = Vec::new();
                    encode(0, &Message::EchoReply(data), &mut reply)?;
                    self.0.write_all(&reply).map_err(failed)?;
                }
                other => return Ok(other),
            }
        }
    }

    /// The next message of the switch.
    fn receive(&mut self) -> Result<Message, String> {
        let silent = |e: std::io::Error| format!("the switch does not answer: {e}");
        let mut bytes = vec![0; 8];
        self.0.read_exact(&mut bytes).map_err(silent)?;
        let header = Header::parse(&bytes).ok_or("a header is too short")?;
        bytes.resize(usize::from(header.length).max(8), 0);
        self.0.read_exact(&mut bytes[8..]).map_err(silent)?;
        Ok(Codec::new(Version::V13).decode(&bytes).map_err(|e| format!("{e}"))?.1)
    }
}

fn failed(error: std::io::Error) -> String {
    format!("the OpenFlow connection: {error}")
}

/// Appends a message.
pub fn encode(xid: u32, message: &Message, bytes: &mut Vec<u8>) -> Result<(), String> {
    Codec::new(Version::V13).encode_into(xid, message, bytes).map_err(|e| format!("{e:?}")).map(drop)
}

/// These flow-mods and the barrier behind them, as bytes.
pub fn with_barrier(mods: impl Iterator<Item = FlowMod>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for (n, flow_mod) in mods.enumerate() {
        encode(n as u32, &Message::FlowMod(flow_mod.boxed()), &mut bytes)?;
    }
    encode(0, &Message::BarrierRequest, &mut bytes)?;
    Ok(bytes)
}
