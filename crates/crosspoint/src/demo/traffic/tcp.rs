//! One TCP stream by the kernel's own sockets, for machines without `iperf3`.

use super::report::report;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Bytes per write.
const CHUNK: usize = 128 * 1024;
/// How long the client tries to connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Options of `tcp-server`.
#[derive(clap::Args)]
pub struct ServerArgs {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
}

/// Options of `tcp-client`.
#[derive(clap::Args)]
pub struct ClientArgs {
    /// Where to connect to.
    #[arg(long)]
    connect: SocketAddr,
    /// How long to send, in seconds.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
}

/// Received data.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct TcpReport {
    /// Bytes.
    pub bytes: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Receives one stream to its end, and tells its sender how much that was.
pub fn serve(args: &ServerArgs) -> Result<(), String> {
    let listener = TcpListener::bind(args.listen).map_err(|e| format!("{}: {e}", args.listen))?;
    let (mut stream, _) = listener.accept().map_err(|e| e.to_string())?;
    let (mut buffer, mut bytes) = (vec![0; CHUNK], 0u64);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => bytes += len as u64,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e.to_string()),
        }
    }
    stream.write_all(&bytes.to_be_bytes()).map_err(|e| e.to_string())
}

/// Sends a stream, and prints what the other end says has arrived.
pub fn send(args: &ClientArgs) -> Result<(), String> {
    report(&stream(args).map_err(|e| format!("{}: {e}", args.connect))?)
}

fn stream(args: &ClientArgs) -> std::io::Result<TcpReport> {
    let mut stream = connect(args.connect)?;
    let buffer = vec![0x5a; CHUNK];
    let start = Instant::now();
    let time = Duration::from_secs_f64(args.seconds);
    while start.elapsed() < time {
        stream.write_all(&buffer)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    Ok(TcpReport { bytes: u64::from_be_bytes(bytes), seconds: start.elapsed().as_secs_f64() })
}

/// Connects, and retries until there is a listener.
fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let start = Instant::now();
    loop {
        match TcpStream::connect_timeout(&to, CONNECT_WITHIN) {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused && start.elapsed() < CONNECT_WITHIN => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_sent_is_reported_as_arrived() {
        let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let server = std::thread::spawn(move || serve(&ServerArgs { listen }));
        let report = stream(&ClientArgs { connect: listen, seconds: 0.05 }).unwrap();
        server.join().unwrap().unwrap();
        assert!(report.bytes >= CHUNK as u64 && report.bytes.is_multiple_of(CHUNK as u64));
        assert!(report.seconds >= 0.05);
    }

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }
}
