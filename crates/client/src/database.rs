//! A client's connection to a database server, and what `vsctl` and `ovsdb-client` share: the options of
//! table formatting.

use std::sync::Arc;

use crate::ctl::table::Style;
use host::getopt::{Opt, flag, value};
use host::log::os_text;
use transport::jsonrpc::Connection;
use transport::{Listener, OVSDB_PORT, Stream, StreamError, Target, Tls};

/// Options of table formatting.
pub const TABLES: &[Opt] = &[
    value("format").short('f').arg("FORMAT").help("print tables as table, list, html, csv or json"),
    value("data").short('d').arg("FORMAT").help("print cells as string, bare or json"),
    flag("no-headings").help("leave out the headings"),
    flag("pretty").help("print JSON over several lines"),
    flag("bare").help("the same as --format=list --data=bare --no-headings"),
    value("max-column-width").arg("N").help("cut columns in format table at N bytes"),
];

/// How a database server is reached.
pub const METHODS: (&str, &[(&str, &str)]) = (
    "Connection methods",
    &[
        ("unix:FILE, tcp:HOST[:PORT], ssl:HOST[:PORT]", "connect to the server (default port: 6640)"),
        ("punix:FILE, ptcp:[PORT][:IP], pssl:[PORT][:IP]", "wait until the server connects"),
    ],
);

/// Handles an option of [`TABLES`]; false if it is another option.
pub fn take_style(style: &mut Style, name: &str, value: Option<&str>) -> Result<bool, String> {
    let text = value.unwrap_or_default();
    match name {
        "format" => style.set_format(text)?,
        "data" => style.set_cell(text)?,
        "no-headings" => style.headings = false,
        "pretty" => style.pretty = true,
        "bare" => style.set_bare(),
        "max-column-width" => style.max_column_width = text.parse().unwrap_or(0),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Runs `work` to its end. The error may be that too few descriptors are left for that.
pub fn block_on<T, E: From<String>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let runtime = transport::runtime().map_err(|error| format!("cannot start: {}", os_text(&error)))?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

/// A connection by the first of `methods`, which are separated by commas, that answers; a passive one waits
/// for the server. The error is that of the last, in the words of the operating system.
pub async fn connect(methods: &str, tls: Option<&Arc<Tls>>) -> Result<Connection, String> {
    let mut error = "Address family not supported by protocol".to_owned();
    for method in methods.split(',') {
        // For a method that they cannot parse, stock clients print the system's error for an unknown family.
        let Ok(target) = Target::parse(method, OVSDB_PORT) else { continue };
        match open(&target, tls).await {
            Ok(stream) => return Ok(Connection::new(method, stream)),
            Err(StreamError::Tls(why)) => {
                tracing::error!(target: "stream_ssl", "{method}: {why}");
                error = "Protocol not available".into();
            }
            Err(StreamError::Handshake(why)) => {
                tracing::warn!(target: "stream_ssl", "{method}: {why}");
                error = "Protocol error".into();
            }
            Err(why) => error = why.to_string(),
        }
    }
    Err(error)
}

async fn open(target: &Target, tls: Option<&Arc<Tls>>) -> Result<Stream, StreamError> {
    match target {
        Target::Active(target) => Stream::connect(target, tls.map(|tls| &**tls)).await,
        Target::Passive(target) => {
            let listener = Listener::bind(target, tls).await?;
            listener.accept().await?.establish().await
        }
    }
}
