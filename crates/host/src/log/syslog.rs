//! The system log as a destination: the machine's own over a Unix socket, or a collector over UDP.
//!
//! A datagram that cannot be sent is lost: a log has nowhere to say so, and must not hold up the daemon.
//!
//! Source: RFC 3164 for the machine's own log, RFC 5424 for a collector.

use crate::program;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The default method of sending messages to syslog.
const VARIABLE: &str = "OVS_SYSLOG_METHOD";
/// The socket of the machine's own log.
const LOCAL: &str = "/dev/log";

/// Facilities by name, at their numbers (RFC 5424 section 6.2.1).
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "clock", "authpriv", "ftp",
    "ntp", "audit", "alert", "clock2", "local0", "local1", "local2", "local3", "local4", "local5", "local6",
    "local7",
];

/// The number of a facility.
pub fn facility(name: &str) -> Option<u8> {
    FACILITIES.iter().position(|f| f.eq_ignore_ascii_case(name)).map(|n| n as u8)
}

/// How messages reach the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Method {
    /// `libc`, or `unix:FILE`: a datagram socket, or a stream socket if that is what is there.
    Unix(PathBuf),
    /// `udp:IP:PORT`.
    Udp(String),
    /// `null`.
    Null,
}

impl Default for Method {
    fn default() -> Method {
        Method::Unix(LOCAL.into())
    }
}

impl Method {
    /// Parses the argument of `--syslog-method`. The error is Open vSwitch's.
    pub fn parse(text: &str) -> Result<Method, String> {
        let method = match text.split_once(':') {
            None if text == "libc" => Some(Method::default()),
            None if text == "null" => Some(Method::Null),
            Some(("unix", path)) if !path.is_empty() => Some(Method::Unix(path.into())),
            Some(("udp", target))
                if target.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) =>
            {
                Some(Method::Udp(target.into()))
            }
            _ => None,
        };
        method.ok_or_else(|| format!("unsupported syslog method '{text}'"))
    }

    /// From `OVS_SYSLOG_METHOD`, by default `libc`. As in Open vSwitch, an unknown method ends the program:
    /// its messages would get lost.
    pub fn from_env() -> Method {
        let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else {
            return Method::default();
        };
        Method::parse(&text.to_string_lossy()).unwrap_or_else(|error| {
            let _ = writeln!(io::stderr(), "{}: {error}", program::name());
            std::process::exit(1)
        })
    }

    /// Opens the socket, if it can be had.
    pub fn open(&self) -> Option<Sender> {
        match self {
            Method::Unix(path) => {
                let socket = UnixDatagram::unbound().ok()?;
                socket.set_nonblocking(true).ok()?;
                match socket.connect(path) {
                    Ok(()) => Some(Sender::Unix(socket)),
                    // It is a stream socket.
                    Err(e) if unix_socket::is_of_another_type(&e) => {
                        unix_socket::connect_now(path).ok().map(Sender::Stream)
                    }
                    Err(_) => None,
                }
            }
            Method::Udp(target) => udp(target).ok().map(Sender::Udp),
            Method::Null => None,
        }
    }
}

/// A connected UDP socket.
pub fn udp(target: &str) -> io::Result<UdpSocket> {
    let any = if target.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(target)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// An open one.
pub enum Sender {
    Unix(UnixDatagram),
    Stream(UnixStream),
    Udp(UdpSocket),
}

impl Sender {
    fn send(&self, message: &str) -> io::Result<usize> {
        match self {
            Sender::Unix(socket) => socket.send(message.as_bytes()),
            // As from libc, each ends with a zero. A part of one would be mistaken for the whole.
            Sender::Stream(socket) => match (&*socket).write(format!("{message}\0").as_bytes())? {
                sent if sent > message.len() => Ok(sent),
                _ => Err(io::ErrorKind::WriteZero.into()),
            },
            Sender::Udp(socket) => socket.send(message.as_bytes()),
        }
    }
}

/// A connection to the log, which is made again where the log's socket was replaced: its server was started
/// again.
#[derive(Default)]
pub struct Connection {
    sender: Option<Sender>,
    /// When the log could not be reached last.
    failed: Option<Instant>,
}

/// How long a log that cannot be reached is let be.
const RETRY: Duration = Duration::from_secs(1);

impl Connection {
    /// Sends a message, by a new connection where the old one is of no use any more.
    pub fn send(&mut self, method: &Method, message: &str) {
        if let Some(sender) = &self.sender {
            match sender.send(message) {
                Ok(_) => return,
                // It accepts no more at the moment.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.sender = None,
            }
        } else if self.failed.is_some_and(|failed| failed.elapsed() < RETRY) {
            return;
        }
        self.sender = method.open();
        let sent = self.sender.as_ref().is_some_and(|sender| sender.send(message).is_ok());
        self.failed = (!sent).then(Instant::now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_told_from_each_other_and_reach_their_sockets() {
        assert_eq!(Method::parse("libc"), Ok(Method::Unix("/dev/log".into())));
        assert_eq!(Method::parse("null"), Ok(Method::Null));
        assert!(
            ["", "unix:", "udp:", "udp:1.2.3.4", "udp:1.2.3.4:x", "tcp:1.2.3.4:5"]
                .iter()
                .all(|m| Method::parse(m).is_err())
        );
        assert_eq!((facility("daemon"), facility("LOCAL0"), facility("nope")), (Some(3), Some(16), None));

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = UnixDatagram::bind(&path).unwrap();
        let mut connection = Connection::default();
        let method = Method::Unix(path.clone());
        connection.send(&method, "<30>one");
        let mut buffer = [0; 64];
        let n = log.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], b"<30>one");

        drop(log);
        std::fs::remove_file(&path).unwrap();
        connection.send(&method, "lost: nobody is there");
        connection.failed = None;
        let log = UnixDatagram::bind(&path).unwrap();
        connection.send(&method, "<30>again");
        let n = log.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], b"<30>again");
        // As its server's restart does it between two messages.
        drop(log);
        std::fs::remove_file(&path).unwrap();
        let log = UnixDatagram::bind(&path).unwrap();
        connection.send(&method, "<30>replaced");
        let n = log.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], b"<30>replaced");

        drop(log);
        std::fs::remove_file(&path).unwrap();
        let log = std::os::unix::net::UnixListener::bind(&path).unwrap();
        connection.send(&method, "<30>over a stream");
        connection.send(&method, "<30>and again");
        let (mut stream, _) = log.accept().unwrap();
        let n = io::Read::read(&mut stream, &mut buffer).unwrap();
        assert_eq!(&buffer[..n], b"<30>over a stream\0<30>and again\0");

        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = collector.local_addr().unwrap().to_string();
        Method::parse(&format!("udp:{target}")).unwrap().open().unwrap().send("two").unwrap();
        let n = collector.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], b"two");
    }
}
