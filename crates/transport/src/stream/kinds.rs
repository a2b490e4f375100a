//! A stream of any kind, and why there is none.

use host::log::os_text as reason;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// How long a connection may take to be made, and as long again for its TLS handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(TcpStream),
    /// TLS over TCP, with the common name in the peer's certificate if that was verified.
    Tls(Box<tokio_rustls::TlsStream<TcpStream>>, Option<String>),
}

/// Why there is no connection.
#[derive(Debug)]
pub enum StreamError {
    /// The operating system says so.
    Os(io::Error),
    /// The host's name does not resolve.
    Resolve(String),
    /// TLS is asked for and not set up, or its files cannot be used. A sentence.
    Tls(String),
    /// The TLS handshake failed. A sentence.
    Handshake(String),
    /// The peer's certificate of its authority was saved, as `--bootstrap-ca-cert` asks; from now on it is
    /// verified.
    Bootstrapped(std::path::PathBuf),
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> StreamError {
        StreamError::Os(error)
    }
}

impl std::fmt::Display for StreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StreamError::Os(error) => f.write_str(&reason(error)),
            StreamError::Resolve(name) => write!(f, "{name}: the name does not resolve"),
            StreamError::Tls(why) | StreamError::Handshake(why) => f.write_str(why),
            StreamError::Bootstrapped(path) => {
                write!(f, "{}: saved the peer's CA certificate; connect again", path.display())
            }
        }
    }
}

impl std::error::Error for StreamError {}

impl Stream {
    /// The common name in the peer's certificate, which an authority that we trust has signed.
    pub fn peer_name(&self) -> Option<&str> {
        match self {
            Stream::Tls(_, peer_name) => peer_name.as_deref(),
            Stream::Unix(_) | Stream::Tcp(_) => None,
        }
    }

    /// Sets the differentiated services code point of what is sent: 0 to 63.
    pub fn set_dscp(&self, dscp: u8) {
        let tcp = match self {
            Stream::Tcp(tcp) => tcp,
            Stream::Tls(tls, _) => tls.get_ref().0,
            Stream::Unix(_) => return,
        };
        let class = dscp << 2;
        // The network may treat it as it likes, and a kernel that refuses it does no harm.
        let _ = match tcp.peer_addr() {
            Ok(SocketAddr::V6(_)) => rustix::net::sockopt::set_ipv6_tclass(tcp, class.into()),
            _ => rustix::net::sockopt::set_ip_tos(tcp, class),
        };
    }

    /// Two ends connected to each other in this process. Each belongs to the runtime that first polls it.
    pub fn pair() -> io::Result<(std::os::unix::net::UnixStream, std::os::unix::net::UnixStream)> {
        let (one, other) = std::os::unix::net::UnixStream::pair()?;
        one.set_nonblocking(true)?;
        other.set_nonblocking(true)?;
        Ok((one, other))
    }

    /// An end of [`Stream::pair`], in the current runtime.
    pub fn of_pair(end: std::os::unix::net::UnixStream) -> io::Result<Stream> {
        Ok(Stream::Unix(UnixStream::from_std(end)?))
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream, _) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream, _) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream, _) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream, _) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
