//! Listening, and taking connections without letting a slow handshake hold up the next one.

use super::kinds::{HANDSHAKE_TIMEOUT, Stream, StreamError};
use super::target::{Host, PassiveTarget};
use super::tls::Tls;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use unix_socket::Socket;

/// Connections that the system keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// Unix clients have no address; they are numbered.
static UNIX_CLIENTS: AtomicU64 = AtomicU64::new(0);

/// A listening socket. That of `punix:` is removed from the file system with it.
#[derive(Debug)]
pub struct Listener {
    kind: Kind,
    target: PassiveTarget,
}

#[derive(Debug)]
enum Kind {
    /// The socket goes first.
    Unix(#[expect(dead_code, reason = "removes the socket when dropped")] Option<Socket>, UnixListener),
    Tcp(TcpListener),
    Tls(TcpListener, Arc<Tls>),
}

/// A connection that was accepted, its TLS handshake still to be done.
#[derive(Debug)]
pub struct Incoming {
    /// The connection's name in logs: `unix#3`, `tcp:10.0.0.1:4321`.
    pub name: String,
    socket: Accepted,
}

#[derive(Debug)]
enum Accepted {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(TcpStream, Arc<Tls>),
}

impl Listener {
    /// Listens. `tls` is needed for `pssl:` alone; its files are read now, so that what is wrong with them
    /// shows now.
    ///
    /// # Errors
    /// Among others `AddrInUse`: someone answers at the socket.
    pub async fn bind(target: &PassiveTarget, tls: Option<&Arc<Tls>>) -> Result<Listener, StreamError> {
        let kind = match target {
            PassiveTarget::Unix(path) => {
                let (socket, listener) = Socket::listen(path)?;
                Kind::Unix(Some(socket), UnixListener::from_std(listener)?)
            }
            PassiveTarget::Tcp(host, port) => Kind::Tcp(listen(host, *port).await?),
            PassiveTarget::Ssl(host, port) => {
                let tls = tls.ok_or_else(|| StreamError::Tls(Tls::missing().into()))?;
                tls.check_server()?;
                Kind::Tls(listen(host, *port).await?, tls.clone())
            }
        };
        let listener = Listener { kind, target: target.clone() };
        listener.tell_chosen_port();
        Ok(listener)
    }

    /// Listens at `path`. The file lasts as long as the [`Socket`], which need not be as long as the
    /// listener.
    pub fn at(path: &Path) -> io::Result<(Socket, Listener)> {
        let (socket, listener) = Socket::listen(path)?;
        let kind = Kind::Unix(None, UnixListener::from_std(listener)?);
        Ok((socket, Listener { kind, target: PassiveTarget::Unix(path.to_owned()) }))
    }

    /// Logs the port where the system chose it: scripts that start a server on port 0 read it there.
    fn tell_chosen_port(&self) {
        let (PassiveTarget::Tcp(host, 0) | PassiveTarget::Ssl(host, 0)) = &self.target else { return };
        if let Some(port) = self.bound_port() {
            tracing::info!(target: "socket_util", "0:{host}: listening on port {port}");
        }
    }

    /// The target on which it listens.
    pub fn target(&self) -> &PassiveTarget {
        &self.target
    }

    /// The TCP port that is listened on, which with port 0 the system chose.
    pub fn bound_port(&self) -> Option<u16> {
        match &self.kind {
            Kind::Unix(..) => None,
            Kind::Tcp(listener) | Kind::Tls(listener, _) => listener.local_addr().ok().map(|a| a.port()),
        }
    }

    /// Accepts the next connection. Cancelling it loses none.
    ///
    /// # Errors
    /// Those of `accept`, such as running out of descriptors. Wait before trying again.
    pub async fn accept(&self) -> io::Result<Incoming> {
        Ok(match &self.kind {
            Kind::Unix(_, listener) => {
                let (stream, _) = listener.accept().await?;
                let number = UNIX_CLIENTS.fetch_add(1, Ordering::Relaxed);
                Incoming { name: format!("unix#{number}"), socket: Accepted::Unix(stream) }
            }
            Kind::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Incoming { name: name("tcp", address), socket: Accepted::Tcp(stream) }
            }
            Kind::Tls(listener, tls) => {
                let (stream, address) = listener.accept().await?;
                Incoming { name: name("ssl", address), socket: Accepted::Tls(stream, tls.clone()) }
            }
        })
    }
}

impl Incoming {
    /// Its descriptor's number.
    pub(crate) fn descriptor(&self) -> RawFd {
        match &self.socket {
            Accepted::Unix(stream) => stream.as_raw_fd(),
            Accepted::Tcp(stream) | Accepted::Tls(stream, _) => stream.as_raw_fd(),
        }
    }

    /// Whether it comes over the network. Anyone who may connect to a Unix socket owns what it gives access
    /// to.
    pub(crate) fn is_remote(&self) -> bool {
        !matches!(self.socket, Accepted::Unix(_))
    }

    /// The stream, once a TLS handshake is done, which takes up to [`HANDSHAKE_TIMEOUT`]: call it in a
    /// separate task.
    ///
    /// # Errors
    /// The peer does not speak TLS, or its certificate is not trusted.
    pub async fn establish(self) -> Result<Stream, StreamError> {
        match self.socket {
            Accepted::Unix(stream) => Ok(Stream::Unix(stream)),
            Accepted::Tcp(stream) => {
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Accepted::Tls(stream, tls) => {
                stream.set_nodelay(true)?;
                match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                    Ok(accepted) => accepted,
                    Err(_) => {
                        Err(StreamError::Handshake("the peer does not finish the TLS handshake".into()))
                    }
                }
            }
        }
    }
}

/// An address as connections are named by: `tcp:10.0.0.1:4321`, `ssl:[::1]:4321`.
fn name(kind: &str, address: SocketAddr) -> String {
    format!("{kind}:{address}")
}

async fn listen(host: &Host, port: u16) -> Result<TcpListener, StreamError> {
    let mut last = StreamError::Resolve(host.to_string());
    for address in resolve(host, port).await? {
        let bound = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // A port whose last connections are in TIME_WAIT can be listened on again.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        };
        match bound() {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// The socket addresses of a host.
pub async fn resolve(host: &Host, port: u16) -> Result<Vec<SocketAddr>, StreamError> {
    match host {
        Host::Address(IpAddr::V6(address), Some(scope)) => {
            let index = match scope.parse() {
                Ok(index) => index,
                Err(_) => interface_index(scope)?,
            };
            Ok(vec![SocketAddrV6::new(*address, port, 0, index).into()])
        }
        Host::Address(address, _) => Ok(vec![SocketAddr::new(*address, port)]),
        Host::Name(name) => look_up(name.clone(), port).await.ok_or(StreamError::Resolve(name.clone())),
    }
}

/// The addresses of a name, if they are found in time. The system's resolver takes as long as its settings
/// allow: nobody waits for its thread, neither the end of the runtime nor that of the process.
async fn look_up(name: String, port: u16) -> Option<Vec<SocketAddr>> {
    let (found, addresses) = tokio::sync::oneshot::channel();
    let look_up = move || found.send((name, port).to_socket_addrs().ok().map(Iterator::collect));
    std::thread::Builder::new().name("resolver".into()).spawn(look_up).ok()?;
    tokio::time::timeout(HANDSHAKE_TIMEOUT, addresses).await.ok()?.ok()?
}

fn interface_index(name: &str) -> io::Result<u32> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex"))?;
    text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}
