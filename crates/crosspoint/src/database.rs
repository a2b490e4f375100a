//! A client's connection to a database server, and what `vsctl` and `ovsdb-client` share: the options of
//! table formatting, and the exit after a timeout.

use std::process::ExitCode;
use std::sync::Arc;

use ovsdb::ctl::table::Style;
use ovsdb::jsonrpc::{Framer, Limits, Message};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use vswitchd::getopt::{Opt, flag, value};
use vswitchd::stream::{Listener, OVSDB_PORT, Stream, StreamError, Target, Tls};

/// Options of table formatting.
pub const TABLES: &[Opt] = &[
    value("format").short('f').arg("FORMAT").help("print tables as table, list, html, csv or json"),
    value("data").short('d').arg("FORMAT").help("print cells as string, bare or json"),
    flag("no-headings").help("leave out the headings"),
    flag("pretty").help("print JSON over several lines"),
    flag("bare").help("the same as --format=list --data=bare --no-headings"),
    value("max-column-width").arg("N").help("cut columns in format table at N bytes"),
];

/// Options about keys and certificates that only some programs have.
pub const MORE_TLS: &[Opt] = &[
    value("bootstrap-ca-cert")
        .arg("FILE")
        .help("as --ca-cert; if FILE is missing, trust the first peer and save its authority there"),
    value("peer-ca-cert").arg("FILE").help("certificate of the authority to send to the peer"),
];

/// How a database server is reached.
pub const METHODS: (&str, &[(&str, &str)]) = (
    "Connection methods",
    &[
        ("unix:FILE, tcp:HOST[:PORT], ssl:HOST[:PORT]", "connect to the server (default port: 6640)"),
        ("punix:FILE, ptcp:[PORT][:IP], pssl:[PORT][:IP]", "wait until the server connects"),
    ],
);

/// Takes an option of [`TABLES`]; false where it is another's.
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

/// A number of seconds as `-t` takes it. The error is Open vSwitch's.
pub fn timeout(value: &str) -> Result<u64, String> {
    match value.parse::<u64>() {
        Ok(seconds) if seconds > 0 && seconds <= u64::from(u32::MAX) => Ok(seconds),
        _ => Err(format!("value {value} on -t or --timeout is invalid")),
    }
}

/// Ends this process as an alarm clock does, which is what scripts look for after `--timeout`.
pub fn die_of_timeout() -> ExitCode {
    tracing::warn!(target: "fatal_signal", "terminating with signal 14 (Alarm clock)");
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::ALARM);
    ExitCode::from(142)
}

/// Runs `work` to its end, or for `seconds`. `None`: the time was up.
pub fn block_on<T>(seconds: Option<u64>, work: impl Future<Output = T>) -> Option<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match seconds {
            Some(seconds) => tokio::time::timeout(std::time::Duration::from_secs(seconds), work).await.ok(),
            None => Some(work.await),
        }
    })
}

/// A connection to a server.
pub struct Connection {
    /// How it was reached, as the log names it.
    method: String,
    stream: Stream,
    framer: Framer,
}

impl Connection {
    /// Connects by the first of `methods`, which are separated by commas, that answers; a passive one waits
    /// for the server. The error is that of the last, in the words of the operating system.
    pub async fn open(methods: &str, tls: Option<&Arc<Tls>>) -> Result<Connection, String> {
        let mut error = "Address family not supported by protocol".to_owned();
        for method in methods.split(',') {
            // Stock clients say of a method that they cannot read what the system says of an unknown family.
            let Ok(target) = Target::parse(method, OVSDB_PORT) else { continue };
            match open(&target, tls).await {
                Ok(stream) => {
                    let framer = Framer::new(Limits::default());
                    return Ok(Connection { method: method.to_owned(), stream, framer });
                }
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

    /// Sends a message.
    pub async fn send(&mut self, message: &Message) -> Result<(), String> {
        tracing::debug!(target: "jsonrpc", "{}: send {}", self.method, Shown(message));
        let sent = async {
            self.stream.write_all(&message.to_bytes()).await?;
            self.stream.flush().await
        };
        sent.await.map_err(|error| vswitchd::stream::reason(&error))
    }

    /// Waits for the next message.
    pub async fn receive(&mut self) -> Result<Message, String> {
        loop {
            if let Some(text) = self.framer.next_object().map_err(|error| error.to_string())? {
                let message = Message::parse(text).map_err(|error| error.to_string())?;
                tracing::debug!(target: "jsonrpc", "{}: received {}", self.method, Shown(&message));
                return Ok(message);
            }
            match self.stream.read_buf(self.framer.space()).await {
                Ok(0) => return Err("End of file".into()),
                Ok(_) => {}
                Err(error) => return Err(vswitchd::stream::reason(&error)),
            }
        }
    }
}

/// The log has every message that is sent and received, if it is to have any.
pub fn log_all_messages() {
    vswitchd::log::limit_rate(Some("jsonrpc"), false).expect("the log's module");
}

/// A message as the log shows it.
struct Shown<'a>(&'a Message);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Message::Request { method, params, id } => {
                write!(f, "request, method=\"{method}\", params={params}, id={id}")
            }
            Message::Notification { method, params } => {
                write!(f, "notification, method=\"{method}\", params={params}")
            }
            Message::Reply { result, id } => write!(f, "reply, result={result}, id={id}"),
            Message::Error { error, id } => write!(f, "error, error={error}, id={id}"),
        }
    }
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
