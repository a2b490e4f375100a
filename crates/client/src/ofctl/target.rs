//! Where a switch is reached: a stream to what the command line names.

use super::failure::{Failure, fail};
use host::log::os_text;
use host::rundir::RunDir;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use transport::{ActiveTarget, OPENFLOW_PORT, Stream, StreamError, Tls, TlsFiles, resolve};

/// A stream, to read from and to write to, and its name.
pub type Opened = (Box<dyn Read + Send>, Box<dyn Write>, String);

/// A stream to a target: `unix:PATH`, `tcp:HOST[:PORT]`, `ssl:HOST[:PORT]`, the name of a bridge (also behind
/// its type, as in `netdev@br0`), or the path of a socket. `suffix` is that of the bridge's socket.
pub fn open(target: &str, suffix: &str, tls: &TlsFiles) -> Result<Opened, Failure> {
    let unix = |path: PathBuf| -> Result<Opened, Failure> {
        match unix_socket::connect(&path).and_then(|s| Ok((s.try_clone()?, s))) {
            Ok((reader, writer)) => {
                Ok((Box::new(reader), Box::new(writer), format!("unix:{}", path.display())))
            }
            Err(error) => fail!("connecting to {target} ({})", os_text(&error)),
        }
    };
    if target.contains(':') {
        return match ActiveTarget::parse(target, OPENFLOW_PORT) {
            Ok(ActiveTarget::Unix(path)) => unix(path),
            Ok(ActiveTarget::Tcp(host, port)) => {
                let connect = |addresses: Vec<_>| {
                    TcpStream::connect(&addresses[..]).and_then(|s| Ok((s.try_clone()?, s)))
                };
                let found = transport::runtime()?.block_on(resolve(&host, port));
                match found.and_then(|addresses| Ok(connect(addresses)?)) {
                    Ok((reader, writer)) => Ok((Box::new(reader), Box::new(writer), target.into())),
                    Err(error) => fail!("{target}: failed to connect to socket ({error})"),
                }
            }
            Ok(address @ ActiveTarget::Ssl(..)) => match open_tls(address, tls) {
                Ok(stream) => Ok((Box::new(stream.try_clone()?), Box::new(stream), target.into())),
                Err(StreamError::Tls(why)) => {
                    tracing::error!(target: "stream_ssl", "{target}: {why}");
                    fail!("{target}: failed to connect to socket (Protocol not available)")
                }
                Err(error) => fail!("{target}: failed to connect to socket ({error})"),
            },
            Err(why) => fail!("{why}"),
        };
    }
    // `netdev@br0` is the bridge br0 with the type of its datapath.
    for name in [target, target.split_once('@').map_or("", |(_, name)| name)] {
        let socket = RunDir::from_env().file(&format!("{name}.{suffix}"));
        if !name.is_empty() && socket.exists() {
            return unix(socket);
        }
    }
    let path = PathBuf::from(target);
    if path.exists() && std::fs::metadata(&path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        return unix(std::path::absolute(path)?);
    }
    fail!("{target} is not a bridge or a socket")
}

/// A connection over TLS, as one end of a socket pair: a thread carries the bytes, so that reading and
/// writing are the same here as on any other connection.
fn open_tls(address: ActiveTarget, files: &TlsFiles) -> Result<UnixStream, StreamError> {
    let tls = Tls::new(files.clone());
    let (near, far) = UnixStream::pair()?;
    far.set_nonblocking(true)?;
    let (sender, connected) = channel();
    let carry = async move {
        let opened = async {
            let far = tokio::net::UnixStream::from_std(far)?;
            Ok((far, Stream::connect(&address, Some(&tls)).await?))
        };
        match opened.await {
            Ok((mut far, mut stream)) => {
                // The requester may be gone by now.
                let _ = sender.send(Ok(()));
                let _ = tokio::io::copy_bidirectional(&mut far, &mut stream).await;
            }
            Err(error) => drop(sender.send(Err(error))),
        }
    };
    let runtime = transport::runtime()?;
    std::thread::spawn(move || runtime.block_on(carry));
    match connected.recv() {
        Ok(result) => result.map(|()| near),
        Err(_) => Err(StreamError::Tls("the connection ended while it was made".into())),
    }
}
