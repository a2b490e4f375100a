//! Reading and writing without the runtime: for a thread that serves a stream while the stream's own thread
//! is held up, and for callers that check for bytes without sleeping.
//!
//! Nothing waits here. The runtime is not involved: it may find a socket emptier or fuller than it expected,
//! which it tolerates.

use super::Stream;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use tokio_rustls::TlsStream;
use tokio_rustls::rustls::{ConnectionCommon, SideData};

/// A socket that is never waited for.
struct Socket<'a>(BorrowedFd<'a>);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.0, buffer, RecvFlags::DONTWAIT)?.1)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    /// Reads what is available; 0 at the end, `WouldBlock` if there is nothing.
    pub fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => Socket(stream.as_fd()).read(buffer),
            Stream::Tcp(stream) => Socket(stream.as_fd()).read(buffer),
            Stream::Tls(stream, _) => match &mut **stream {
                TlsStream::Client(stream) => {
                    let (tcp, session) = stream.get_mut();
                    read_tls(Socket(tcp.as_fd()), session, buffer)
                }
                TlsStream::Server(stream) => {
                    let (tcp, session) = stream.get_mut();
                    read_tls(Socket(tcp.as_fd()), session, buffer)
                }
            },
        }
    }

    /// Writes as much as there is room for; `WouldBlock` if there is none. TLS may keep some of it until the
    /// next flush.
    pub fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => Socket(stream.as_fd()).write(bytes),
            Stream::Tcp(stream) => Socket(stream.as_fd()).write(bytes),
            Stream::Tls(stream, _) => match &mut **stream {
                TlsStream::Client(stream) => {
                    let (tcp, session) = stream.get_mut();
                    write_tls(Socket(tcp.as_fd()), session, bytes)
                }
                TlsStream::Server(stream) => {
                    let (tcp, session) = stream.get_mut();
                    write_tls(Socket(tcp.as_fd()), session, bytes)
                }
            },
        }
    }

    /// The peer, and the task whose stream it is, find it ended.
    pub fn shutdown_now(&self) {
        let fd = match self {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Tls(stream, _) => stream.get_ref().0.as_fd(),
        };
        // It fails if the peer has already gone.
        let _ = shutdown(fd, Shutdown::Both);
    }
}

fn read_tls<D: SideData>(
    mut socket: Socket<'_>,
    session: &mut ConnectionCommon<D>,
    buffer: &mut [u8],
) -> io::Result<usize> {
    loop {
        match session.reader().read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
        if session.read_tls(&mut socket)? == 0 {
            return Ok(0);
        }
        session.process_new_packets().map_err(io::Error::other)?;
    }
}

fn write_tls<D: SideData>(
    mut socket: Socket<'_>,
    session: &mut ConnectionCommon<D>,
    bytes: &[u8],
) -> io::Result<usize> {
    let mut send = |session: &mut ConnectionCommon<D>| {
        while session.wants_write() {
            match session.write_tls(&mut socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(true)
    };
    // First what TLS already holds: otherwise unread output would accumulate in it.
    if !send(session)? {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let taken = session.writer().write(bytes)?;
    send(session)?;
    Ok(taken)
}
