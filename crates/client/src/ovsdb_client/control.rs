//! The control socket of a command in the background: `ovs-appctl -t ovsdb-client` ends it, changes the
//! conditions of a monitor, and takes and releases locks over its connection.
//!
//! The socket is served by a separate task. A request waits in a channel until the command checks for it,
//! between two messages from the server, so that only the command talks to the server.

use host::rundir::RunDir;
use host::{log, program};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use transport::unixctl::{self, Command, Request};
use unix_socket::Socket;

/// How long the end of the program waits for the reply to `exit` to be written.
const REPLY_WAIT: Duration = Duration::from_secs(5);

/// A request, and where its answer goes.
pub(super) struct Asked {
    request: Request,
    answer: oneshot::Sender<Result<String, String>>,
}

/// What the client must do after a request.
pub(super) enum Next {
    GoOn,
    End,
}

/// The state that the commands of the socket work on.
pub(super) struct Control {
    /// `None`: in the foreground, without a socket.
    asked: Option<mpsc::Receiver<Asked>>,
    /// Its file goes with it.
    _socket: Option<Socket>,
    commands: &'static [Command<Control>],
    /// A message to the server from the running command.
    outgoing: Option<(&'static str, Value)>,
    blocked: bool,
    exiting: bool,
}

const fn row(
    name: &'static str,
    usage: &'static str,
    args: usize,
    run: fn(&mut Control, &[String]) -> Result<String, String>,
) -> Command<Control> {
    Command { name, usage, args_min: args, args_max: args, run }
}

const EXIT: Command<Control> = row("exit", "", 0, |control, _| {
    control.exiting = true;
    Ok(String::new())
});

/// The commands of a monitor.
pub(super) const MONITOR: &[Command<Control>] = &[
    EXIT,
    row("ovsdb-client/block", "", 0, |control, _| control.set_blocked(true)),
    row("ovsdb-client/cond_change", "TABLE COND", 2, |control, args| {
        let condition: Value =
            serde_json::from_str(&args[1]).map_err(|error| format!("\"{}\": {error}", args[1]))?;
        let mut tables = Map::new();
        tables.insert(args[0].clone(), json!([{ "where": condition }]));
        control.send("monitor_cond_change", json!([Value::Null, Value::Null, tables]))
    }),
    row("ovsdb-client/unblock", "", 0, |control, _| control.set_blocked(false)),
];

/// The commands of `lock`, `steal` and the like.
pub(super) const LOCKS: &[Command<Control>] = &[
    EXIT,
    row("lock", "LOCK", 1, |control, args| control.send("lock", json!([args[0]]))),
    row("steal", "LOCK", 1, |control, args| control.send("steal", json!([args[0]]))),
    row("unlock", "LOCK", 1, |control, args| control.send("unlock", json!([args[0]]))),
];

impl Control {
    /// Without a socket.
    pub(super) fn none() -> Control {
        Control { asked: None, _socket: None, commands: &[], outgoing: None, blocked: false, exiting: false }
    }

    /// Serves the socket from now on, if `detached`. To be called within a `LocalSet`.
    pub(super) fn start(detached: bool, commands: &'static [Command<Control>]) -> Result<Control, String> {
        let mut control = Control { commands, ..Control::none() };
        if !detached {
            return Ok(control);
        }
        let path = RunDir::from_env().file(&format!("{}.{}.ctl", program::name(), std::process::id()));
        let (socket, listener) = transport::Listener::at(&path).map_err(|error| {
            format!("{}: could not initialize control socket ({})", path.display(), log::os_text(&error))
        })?;
        let (requests, asked) = mpsc::channel(1);
        let answer = async move |request: &Request| {
            let (answer, answered) = oneshot::channel();
            let _ = requests.send(Asked { request: request.clone(), answer }).await;
            answered.await.unwrap_or_else(|_| Err("the connection to the server has ended".into()))
        };
        tokio::task::spawn_local(unixctl::serve(listener, answer));
        (control.asked, control._socket) = (Some(asked), Some(socket));
        Ok(control)
    }

    /// Whether the server's messages must wait.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// The next request; in the foreground it never completes. Cancelling the wait loses no request.
    pub(super) async fn asked(&mut self) -> Asked {
        match &mut self.asked {
            Some(asked) => asked.recv().await.expect("the task that serves the socket lives on"),
            None => std::future::pending().await,
        }
    }

    /// Runs a request: returns its result, and the request to send to the server before answering.
    pub(super) fn run(&mut self, asked: &Asked) -> (Result<String, String>, Option<(&'static str, Value)>) {
        let tables: &[&[Command<Control>]] = &[self.commands, &unixctl::standard::commands()];
        let result = unixctl::run(tables, &[], self, &asked.request);
        (result, self.outgoing.take())
    }

    /// Answers a request.
    pub(super) async fn answer(&self, asked: Asked, result: Result<String, String>) -> Next {
        let replied = unixctl::replied();
        // The requester may be gone.
        let is_awaited = asked.answer.send(result).is_ok();
        if !self.exiting {
            return Next::GoOn;
        }
        // The other task writes the reply.
        let written = async {
            while is_awaited && unixctl::replied() == replied {
                tokio::task::yield_now().await;
            }
        };
        let _ = tokio::time::timeout(REPLY_WAIT, written).await;
        Next::End
    }

    fn send(&mut self, method: &'static str, params: Value) -> Result<String, String> {
        self.outgoing = Some((method, params));
        Ok(String::new())
    }

    fn set_blocked(&mut self, blocked: bool) -> Result<String, String> {
        if self.blocked == blocked {
            return Err(if blocked { "already blocking" } else { "already unblocked" }.into());
        }
        self.blocked = blocked;
        Ok(String::new())
    }
}
