//! Connecting.

use super::kinds::{HANDSHAKE_TIMEOUT, Stream, StreamError};
use super::listener::resolve;
use super::target::{ActiveTarget, Host};
use super::tls::Tls;
use std::io;
use tokio::net::{TcpStream, UnixStream};
use unix_socket::connect_now;

impl Stream {
    /// Connects. `tls` is needed for `ssl:` alone.
    ///
    /// # Errors
    /// Any [`StreamError`]. [`StreamError::Bootstrapped`]: the authority's certificate has been saved; the
    /// next connection, not this one, can trust it.
    pub async fn connect(target: &ActiveTarget, tls: Option<&Tls>) -> Result<Stream, StreamError> {
        match target {
            ActiveTarget::Unix(path) => Ok(Stream::Unix(UnixStream::from_std(connect_now(path)?)?)),
            ActiveTarget::Tcp(host, port) => Ok(Stream::Tcp(connect_tcp(host, *port).await?)),
            ActiveTarget::Ssl(host, port) => {
                let tls = tls.ok_or_else(|| StreamError::Tls(Tls::missing().into()))?;
                let connected = tls.connect(connect_tcp(host, *port).await?, host).await;
                if let Err(StreamError::Bootstrapped(path)) = &connected {
                    tracing::info!(
                        target: "stream_ssl",
                        "successfully bootstrapped CA cert to {}", path.display()
                    );
                }
                connected
            }
        }
    }
}

async fn connect_tcp(host: &Host, port: u16) -> Result<TcpStream, StreamError> {
    let addresses = resolve(host, port).await?;
    let mut last = StreamError::Resolve(host.to_string());
    for address in addresses {
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Requests are small and waited for.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error.into(),
            Err(_) => last = io::Error::from_raw_os_error(rustix::io::Errno::TIMEDOUT.raw_os_error()).into(),
        }
    }
    Err(last)
}
