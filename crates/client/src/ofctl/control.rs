//! The control socket of `monitor` and `snoop`: `ovs-appctl -t ovs-ofctl` sends messages, waits for barriers,
//! moves the output.
//!
//! Threads: one serves the socket. Requests and the switch's bytes arrive through the same channel, so that
//! the main thread, the only one that talks to the switch, processes both in order; it sends the answer
//! through the request.

use super::client::{Arrival, Asked, Client, Failure, text_with_bytes};
use super::context::Options;
use super::flows::parse_packet_out;
use super::input::from_hex;
use host::log;
use host::program;
use host::rundir::RunDir;
use openflow::message::PacketOut;
use openflow::text::{PortNames, message_text, unreadable_text};
use openflow::{Codec, Message, Version};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use transport::unixctl::{self, Command, Request};
use unix_socket::Socket;

/// Longest that the end of the program waits for the reply to `exit` to be written.
const REPLY_WAIT: Duration = Duration::from_secs(5);

/// The state that commands work on.
pub struct Control {
    socket: Option<Socket>,
    exiting: bool,
    /// Messages from the running command.
    outgoing: Vec<Outgoing>,
    /// Barriers in flight.
    barriers: Vec<(u32, oneshot::Sender<Result<String, String>>)>,
    blocked: bool,
}

enum Outgoing {
    Raw(Vec<u8>),
    PacketOut(Box<PacketOut>),
    Barrier,
}

const fn row(
    name: &'static str,
    usage: &'static str,
    args_min: usize,
    args_max: usize,
    run: fn(&mut Control, &[String]) -> Result<String, String>,
) -> Command<Control> {
    Command { name, usage, args_min, args_max, run }
}

const COMMANDS: &[Command<Control>] = &[
    row("exit", "", 0, 0, |control, _| {
        control.exiting = true;
        Ok(String::new())
    }),
    row("ofctl/barrier", "", 0, 0, |control, _| {
        control.outgoing.push(Outgoing::Barrier);
        Ok(String::new())
    }),
    row("ofctl/block", "", 0, 0, |control, _| control.set_blocked(true)),
    row("ofctl/packet-out", "\"in_port=<port> packet=<hex data> actions=...\"", 1, 1, |control, args| {
        let (packet, _) = parse_packet_out(&args[0], PortNames::none()).map_err(|why| why.to_string())?;
        control.outgoing.push(Outgoing::PacketOut(Box::new(packet)));
        Ok(String::new())
    }),
    row("ofctl/send", "OFMSG...", 1, usize::MAX, |control, args| {
        for text in args {
            let bytes = from_hex(text).ok_or_else(|| format!("bad hex value in {text}"))?;
            control.outgoing.push(Outgoing::Raw(bytes));
        }
        Ok(String::new())
    }),
    row("ofctl/set-output-file", "FILE", 1, 1, |_, args| {
        let failed = |error: std::io::Error| format!("{}: {}", args[0], log::os_text(&error));
        let file = std::fs::File::create(&args[0]).map_err(failed)?;
        rustix::stdio::dup2_stderr(&file).map_err(|error| failed(error.into()))?;
        Ok(String::new())
    }),
    row("ofctl/unblock", "", 0, 0, |control, _| control.set_blocked(false)),
];

impl Control {
    /// Serves the socket from now on, unless it is `none`.
    pub fn start(options: &Options, arrivals: Sender<Arrival>) -> Result<Control, Failure> {
        let dir = RunDir::from_env();
        let path: Option<PathBuf> = match options.args.unixctl.as_deref() {
            Some("none") => None,
            Some(given) => Some(dir.path().join(given)),
            None => Some(dir.file(&format!("{}.{}.ctl", program::name(), std::process::id()))),
        };
        let mut control = Control {
            socket: None,
            exiting: false,
            outgoing: Vec::new(),
            barriers: Vec::new(),
            blocked: false,
        };
        let Some(path) = path else { return Ok(control) };
        let runtime = transport::runtime()?;
        let listening = {
            let _inside = runtime.enter();
            transport::Listener::at(&path)
        };
        let (socket, listener) = match listening {
            Ok(listening) => listening,
            Err(error) => {
                let why = log::os_text(&error);
                return Err(Failure(format!(
                    "{}: could not initialize control socket ({why})",
                    path.display()
                )));
            }
        };
        control.socket = Some(socket);
        std::thread::spawn(move || {
            let answer = async move |request: &Request| {
                let (answer, answered) = oneshot::channel();
                let asked = Asked { request: request.clone(), answer };
                let _ = arrivals.send(Arrival::Asked(asked));
                answered.await.unwrap_or_else(|_| Err("the connection to the switch has ended".into()))
            };
            tokio::task::LocalSet::new().block_on(&runtime, unixctl::serve(listener, answer));
        });
        Ok(control)
    }

    fn set_blocked(&mut self, blocked: bool) -> Result<String, String> {
        match (self.blocked, blocked) {
            (true, true) => Err("already blocking".into()),
            (false, false) => Err("already unblocked".into()),
            _ => {
                self.blocked = blocked;
                Ok(String::new())
            }
        }
    }

    /// Whether the switch's messages must wait.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Runs a request. Whether the program ends by it.
    pub fn take(&mut self, asked: Asked, client: &mut Client, verbosity: u8) -> Result<bool, Failure> {
        let tables: &[&[Command<Control>]] = &[COMMANDS, &unixctl::standard::commands()];
        let result = unixctl::run(tables, &[], self, &asked.request);
        let mut barrier = None;
        for outgoing in std::mem::take(&mut self.outgoing) {
            match outgoing {
                Outgoing::Raw(bytes) => {
                    eprint!("send: {}", text_of(&bytes, client, verbosity));
                    client.send_raw(&bytes);
                }
                Outgoing::PacketOut(packet) => {
                    let message = Message::PacketOut(packet);
                    let xid = client.send(&message)?;
                    let style = client.style(PortNames::none(), verbosity);
                    let text = message_text(xid, &message, style);
                    // For messages given by the user, the packet is shown from `-m` on.
                    let shown =
                        if verbosity > 1 { text.trim_end() } else { text.lines().next().unwrap_or("") };
                    eprintln!("send: {shown}");
                }
                Outgoing::Barrier => barrier = Some(client.send(&Message::BarrierRequest)?),
            }
        }
        client.flush()?;
        let replied = unixctl::replied();
        match barrier {
            Some(xid) => self.barriers.push((xid, asked.answer)),
            // The requester may be gone.
            None => drop(asked.answer.send(result)),
        }
        if self.exiting {
            // The other thread writes the reply, which would be lost if the process ended before.
            let end = Instant::now() + REPLY_WAIT;
            while unixctl::replied() == replied && Instant::now() < end {
                std::thread::yield_now();
            }
        }
        Ok(self.exiting)
    }

    /// A reply to a barrier has come.
    pub fn barrier_passed(&mut self, xid: u32) {
        if let Some(place) = self.barriers.iter().position(|(of, _)| *of == xid) {
            let _ = self.barriers.swap_remove(place).1.send(Ok(String::new()));
        }
    }
}

/// A message's text, whichever version it is of.
fn text_of(bytes: &[u8], client: &Client, verbosity: u8) -> String {
    let version = bytes.first().and_then(|&n| Version::from_wire(n)).unwrap_or(client.version());
    // It is not known which flow-mods of OpenFlow 1.0 carry a table; in those that do not, it reads as 0.
    let codec = Codec { flow_mod_table_id: true, ..Codec::new(version) };
    match codec.decode(bytes) {
        Ok((xid, message)) => {
            let style =
                openflow::text::MessageStyle { version, ..client.style(PortNames::none(), verbosity) };
            text_with_bytes(xid, &message, bytes, style)
        }
        Err(error) => unreadable_text(bytes, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_sorted() {
        assert!(COMMANDS.is_sorted_by_key(|c| c.name));
    }
}
