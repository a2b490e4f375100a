//! The control socket that `ovs-appctl` speaks to: commands with arguments in, text or an error out.
//!
//! The commands are rows of a table ([`Command`]) over whatever state they work on; `list-commands`, the
//! check of the number of arguments and their error texts derive from the rows. The protocol is JSON-RPC 1.0
//! over a Unix stream socket.
//!
//! Threads: the control thread. A client that does not read its reply holds up itself alone.

mod client;
mod exit;
mod request;
pub mod standard;

pub use client::{Client, ClientError};
pub use exit::Exit;
pub use request::{BadRequest, REQUEST_BYTES_MAX, Request, RequestReader};

use crate::{Account, Budget, Idle, Idlers, Incoming, Listener, Place, Places, Stream, accept};
use base::suggest;
use serde_json::Value;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Clients at once. For a further one the client that has been idle longest gives way; where none is idle,
/// the first one that is.
pub const CLIENTS_MAX: usize = 100;
/// Descriptors for the operator when others have used up all.
const SPARES: usize = 4;
/// Bytes of all replies that are being made or wait to be read: four of a million rules each. Beyond that the
/// client with the longest is closed, and first of all one that reads nothing.
const REPLIES_BYTES_MAX: usize = 512 << 20;
/// How much of a reply is made at a time.
const PIECE_BYTES: usize = 1 << 16;

/// Replies that were written, by whatever socket of this process.
static REPLIED: AtomicU64 = AtomicU64::new(0);

/// How many requests were replied to so far. Who ends the process by a request waits until this has grown.
pub fn replied() -> u64 {
    REPLIED.load(Ordering::Acquire)
}

/// Replies that were cut off: their clients did not read them, and others needed the place or the memory.
static CUT: AtomicU64 = AtomicU64::new(0);

/// How many replies were cut off so far.
pub fn cut() -> u64 {
    CUT.load(Ordering::Relaxed)
}

/// Counts the memory of a reply that is being made; the default counts nothing. Beyond the budget, whatever
/// makes the reply is dropped where it waits.
#[derive(Clone, Default)]
pub struct Growing(Option<Rc<Account>>);

impl Growing {
    /// It takes so many bytes now.
    pub fn reaches(&self, bytes: usize) {
        if let Some(account) = &self.0 {
            account.set(bytes, 0, false);
        }
    }
}

/// One command.
pub struct Command<C: ?Sized> {
    /// Name, such as `dpctl/show`.
    pub name: &'static str,
    /// Its arguments as `list-commands` shows them.
    pub usage: &'static str,
    /// Least number of arguments.
    pub args_min: usize,
    /// Greatest number of arguments.
    pub args_max: usize,
    /// Does it. The error is what the client shows, its line end left out.
    pub run: fn(&mut C, &[String]) -> Result<String, String>,
}

/// Runs a request against tables of commands, of which `list-commands` leaves out the hidden ones.
pub fn run<C: ?Sized>(
    tables: &[&[Command<C>]],
    hidden: &[&str],
    context: &mut C,
    request: &Request,
) -> Result<String, String> {
    let name = &request.method;
    let Some(params) = &request.params else {
        return Err(format!("\"{name}\" command has non-string argument"));
    };
    if name == "list-commands" && params.is_empty() {
        let mut rows: Vec<_> = usages(tables, hidden).collect();
        rows.sort();
        return Ok(host::usage::list_commands(rows));
    }
    if name == "list-commands" {
        return Err(format!("\"{name}\" command takes at most 0 arguments"));
    }
    let Some(command) = tables.iter().copied().flatten().find(|c| c.name == name) else {
        return Err(format!(
            "\"{name}\" is not a valid command (use \"list-commands\" to see a list of valid commands){}",
            suggest::line(name, usages(tables, hidden).map(|(name, _)| name))
        ));
    };
    if params.len() < command.args_min {
        return Err(format!("\"{name}\" command requires at least {} arguments", command.args_min));
    }
    if params.len() > command.args_max {
        return Err(format!("\"{name}\" command takes at most {} arguments", command.args_max));
    }
    (command.run)(context, params)
}

/// The names of commands and their arguments.
fn usages<C: ?Sized>(
    tables: &[&[Command<C>]],
    hidden: &[&str],
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let shown = tables.iter().copied().flatten().filter(move |c| !hidden.contains(&c.name));
    shown.map(|c| (c.name, c.usage)).chain([("list-commands", "")])
}

/// The reply to a request as bytes, a piece at a time: the text of a dump is long.
fn reply<'a>(id: &Value, result: &'a Result<String, String>) -> impl Iterator<Item = String> + use<'a> {
    let (member, text, rest) = match result {
        Ok(text) => ("result", text, ",\"error\":null}"),
        Err(text) => ("error", text, "}"),
    };
    let line_end = if text.is_empty() || text.ends_with('\n') { "" } else { "\\n" };
    let mut rest = Some(rest);
    let mut text = text.as_str();
    let mut begin = format!("{{\"id\":{id},\"{member}\":\"");
    std::iter::from_fn(move || {
        rest?;
        let (piece, behind) = text.split_at(text.floor_char_boundary(PIECE_BYTES));
        text = behind;
        let quoted = Value::from(piece).to_string();
        let mut bytes = std::mem::take(&mut begin) + &quoted[1..quoted.len() - 1];
        if text.is_empty() {
            bytes.extend([line_end, "\"", rest.take().unwrap_or_default()]);
        }
        Some(bytes)
    })
}

/// Serves clients for ever. `answer` runs a request, and may take its time: other clients are served
/// meanwhile.
pub async fn serve(listener: Listener, answer: impl AsyncFn(&Request) -> Result<String, String> + 'static) {
    serve_until_exit(listener, Rc::default(), async move |request: &Request, _| answer(request).await).await;
}

/// Like [`serve`]; tells `exit` of the replies to the command `exit`, for a program that ends by it. A long
/// reply tells how it grows.
pub async fn serve_until_exit(
    listener: Listener,
    exit: Rc<Exit>,
    answer: impl AsyncFn(&Request, Growing) -> Result<String, String> + 'static,
) {
    serve_within(Budget::new(REPLIES_BYTES_MAX), listener, exit, answer).await;
}

async fn serve_within(
    replies: Rc<Budget>,
    listener: Listener,
    exit: Rc<Exit>,
    answer: impl AsyncFn(&Request, Growing) -> Result<String, String> + 'static,
) {
    let answer = Rc::new(answer);
    let failed = |why: &str| tracing::warn!(target: "unixctl", "accept failed: {why}");
    let serve = |incoming: Incoming, place: Place| {
        let (answer, exit, account) = (answer.clone(), exit.clone(), Rc::new(replies.open()));
        tokio::task::spawn_local(async move {
            if let Ok(stream) = place.establish(incoming).await {
                converse(stream, &*answer, &exit, &place.idlers(), &account).await;
            }
            drop(place);
        });
    };
    accept(&listener, &Places::new(CLIENTS_MAX).with_spares(SPARES), failed, serve).await;
}

/// Sends a reply whose text has so many bytes. A client that takes nothing for a while is as idle as one that
/// asks nothing, and gives way as well where replies take too much.
async fn send(
    stream: &mut Stream,
    pieces: impl Iterator<Item = String>,
    text_bytes: usize,
    idle: &Rc<Idlers>,
    account: &Account,
) -> io::Result<()> {
    let mut taken = 0;
    for piece in pieces {
        let mut bytes = piece.as_bytes();
        while !bytes.is_empty() {
            account.set(text_bytes, taken, true);
            let wait = idle.wait(Idle::Reads);
            let written = tokio::select! {
                biased;
                written = stream.write(bytes) => written?,
                () = account.closed() => return Err(io::ErrorKind::OutOfMemory.into()),
                () = wait.dismissed() => return Err(io::ErrorKind::TimedOut.into()),
            };
            taken += written as u64;
            bytes = &bytes[written..];
        }
        tokio::task::yield_now().await;
    }
    account.set(0, taken, false);
    Ok(())
}

async fn converse(
    stream: Stream,
    answer: &impl AsyncFn(&Request, Growing) -> Result<String, String>,
    exit: &Exit,
    idle: &Rc<Idlers>,
    account: &Rc<Account>,
) {
    let mut stream = stream;
    let mut reader = RequestReader::default();
    let mut bytes = [0; 4096];
    loop {
        match reader.next_request() {
            Ok(Some(request)) => {
                tracing::debug!(target: "unixctl", "received request {}", request.method);
                let result = tokio::select! {
                    biased;
                    result = answer(&request, Growing(Some(account.clone()))) => result,
                    () = account.closed() => {
                        CUT.fetch_add(1, Ordering::Relaxed);
                        tracing::debug!(target: "unixctl", "closing a connection: its reply is too long");
                        return;
                    }
                };
                let text_bytes = result.as_ref().unwrap_or_else(|error| error).len();
                let pieces = reply(&request.id, &result);
                let is_exit = request.method == "exit";
                // Long arguments are not kept while the reply waits to be read.
                drop(request);
                let sent = send(&mut stream, pieces, text_bytes, idle, account).await;
                REPLIED.fetch_add(1, Ordering::Release);
                exit.replied(is_exit, &result);
                if let Err(error) = sent {
                    // A client that has gone is none that was cut.
                    let is_cut = matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::TimedOut);
                    CUT.fetch_add(u64::from(is_cut), Ordering::Relaxed);
                    tracing::debug!(target: "unixctl", "closing a connection with a reply not read: {error}");
                    return;
                }
            }
            Ok(None) => {
                let wait = idle.wait(Idle::AsksNothing);
                tokio::select! {
                    biased;
                    read = stream.read(&mut bytes) => match read {
                        Ok(0) | Err(_) => return,
                        Ok(n) => reader.feed(&bytes[..n]),
                    },
                    () = wait.dismissed() => {
                        tracing::debug!(target: "unixctl", "closing an idle connection, to make room for another");
                        return;
                    }
                }
            }
            Err(why) => {
                tracing::warn!(target: "jsonrpc", "unix: {why}");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PassiveTarget;
    use serde_json::json;
    use std::cell::Cell;
    use std::time::Duration;

    const COMMANDS: &[Command<u32>] = &[
        Command { name: "add", usage: "N [M]", args_min: 1, args_max: 2, run: add },
        Command { name: "a-name/longer-than-the-column", usage: "", args_min: 0, args_max: 0, run: add },
    ];

    fn add(sum: &mut u32, args: &[String]) -> Result<String, String> {
        for arg in args {
            *sum += arg.parse::<u32>().map_err(|_| format!("{arg}: not a number"))?;
        }
        Ok(sum.to_string())
    }

    fn call(name: &str, params: &[&str]) -> Result<String, String> {
        let params = Some(params.iter().map(|p| p.to_string()).collect());
        run(&[COMMANDS], &[], &mut 5, &Request { id: Value::Null, method: name.into(), params })
    }

    #[test]
    fn commands_run_and_wrong_calls_are_answered_in_the_stock_words() {
        assert_eq!(call("add", &["2", "3"]).unwrap(), "10");
        assert_eq!(call("add", &["x"]).unwrap_err(), "x: not a number");
        assert_eq!(call("add", &[]).unwrap_err(), "\"add\" command requires at least 1 arguments");
        assert_eq!(call("add", &["1"; 3]).unwrap_err(), "\"add\" command takes at most 2 arguments");
        assert!(
            call("nonesuch", &[]).unwrap_err().starts_with("\"nonesuch\" is not a valid command (use \"")
        );
        assert_eq!(
            call("list-commands", &["x"]).unwrap_err(),
            "\"list-commands\" command takes at most 0 arguments"
        );
        assert!(call("ad", &[]).unwrap_err().ends_with(" valid commands)\n(did you mean 'add'?)"));
        let list = call("list-commands", &[]).unwrap();
        assert!(list.starts_with("The available commands are:\n  a-name/longer-than-the-column \n  add  "));
    }

    #[test]
    fn a_reply_carries_the_id_and_ends_its_text_with_a_line_end() {
        let parse = |result| {
            let text: String = reply(&7.into(), &result).collect();
            serde_json::from_str::<Value>(&text).unwrap()
        };
        let good = parse(Ok("a \"text\"".into()));
        assert_eq!(good, json!({"id": 7, "result": "a \"text\"\n", "error": null}));
        assert_eq!(parse(Ok(String::new()))["result"], "");
        assert_eq!(parse(Err("no\n".into()))["error"], "no\n");
        let long = "ü\n".repeat(PIECE_BYTES);
        assert_eq!(parse(Ok(long.clone()))["result"], long);
    }

    #[test]
    fn clients_that_read_nothing_hold_no_more_than_the_budget_and_who_reads_is_answered() {
        const REPLY_BYTES: usize = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let listener = Listener::bind(&PassiveTarget::Unix(path.clone()), None).await.unwrap();
            let answer = async |_: &Request, _| Ok("x".repeat(REPLY_BYTES));
            tokio::task::spawn_local(serve_within(
                Budget::new(3 * REPLY_BYTES + 1),
                listener,
                Rc::default(),
                answer,
            ));
            let ask = async || {
                let mut client = tokio::net::UnixStream::connect(&path).await.unwrap();
                client.write_all(br#"{"id":0,"method":"a","params":[]}"#).await.unwrap();
                client
            };
            let (cut_before, mut deaf) = (cut(), Vec::new());
            for _ in 0..5 {
                deaf.push(ask().await);
                // Its reply waits from now on.
                deaf.last().unwrap().readable().await.unwrap();
            }
            let mut text = vec![0; REPLY_BYTES];
            ask().await.read_exact(&mut text).await.unwrap();
            let mut whole = 0;
            let all_bytes: usize =
                reply(&0.into(), &Ok("x".repeat(REPLY_BYTES))).map(|piece| piece.len()).sum();
            for client in deaf {
                let mut text = Vec::new();
                client.take(all_bytes as u64).read_to_end(&mut text).await.unwrap();
                assert!(text.len() == all_bytes || text.len() < REPLY_BYTES);
                whole += usize::from(text.len() == all_bytes);
            }
            assert!((2..=3).contains(&whole), "{whole} of five were kept");
            assert!(cut() >= cut_before + 5 - whole as u64, "each cut reply is counted");
        });
    }
    #[test]
    fn replies_that_are_being_made_hold_no_more_than_the_budget() {
        const REPLY_BYTES: usize = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let listener = Listener::bind(&PassiveTarget::Unix(path.clone()), None).await.unwrap();
            let (begun, made) = (Rc::new(Cell::new(0)), Rc::new(()));
            let answer = {
                let (begun, made) = (begun.clone(), made.clone());
                async move |_: &Request, growing: Growing| {
                    let _made = made.clone();
                    begun.set(begun.get() + 1);
                    growing.reaches(REPLY_BYTES);
                    // There is more to come.
                    std::future::pending().await
                }
            };
            let idle = Rc::strong_count(&made);
            let budget = Budget::new(3 * REPLY_BYTES);
            tokio::task::spawn_local(serve_within(budget, listener, Rc::default(), answer));
            let mut clients = Vec::new();
            for asked in 1..=5 {
                let mut client = tokio::net::UnixStream::connect(&path).await.unwrap();
                client.write_all(br#"{"id":0,"method":"a","params":[]}"#).await.unwrap();
                clients.push(client);
                let are_bounded = async {
                    while begun.get() < asked || Rc::strong_count(&made) - idle > 3 {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::time::timeout(Duration::from_secs(5), are_bounded).await.expect("those beyond end");
            }
            assert_eq!(Rc::strong_count(&made) - idle, 3, "no more end than must");
        });
    }
}
