//! The connection of `crosspoint ofctl` to a switch: requests, replies and errors, one after the other.
//!
//! A thread reads what arrives, so that a switch that answers while it is still being sent to never waits for
//! us.

pub(crate) use super::failure::{Failure, fail};
use super::gate::Gate;
use super::target::open;
use host::log::os_text;
use openflow::connection::CloseReason;
use openflow::message::{BundleAdd, FlowForm, PortDesc, StatsBody, StatsRequest, TableFeatures};
use openflow::text::{
    MessageStyle, PortNames, Protocol, Protocols, bytes_text, message_text, unreadable_text, write_hex_dump,
};
use openflow::{Codec, Connection, ConnectionConfig, ErrorKind, Event, Message, Side, Version, VersionSet};
use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;
use tokio::sync::oneshot;
use transport::TlsFiles;
use transport::unixctl::Request;

/// Each has some kilobytes of features.
const TABLES_PER_MESSAGE: usize = 8;

/// Bytes that wait to be sent before they are written.
const WRITE_AT: usize = 256 * 1024;

/// A request of the control socket, and where its answer goes.
pub struct Asked {
    pub request: Request,
    pub answer: oneshot::Sender<Result<String, String>>,
}

/// What wakes the main thread.
pub enum Arrival {
    /// Bytes from the switch; none at its end.
    Bytes(std::io::Result<Vec<u8>>),
    /// A request of the control socket.
    Asked(Asked),
}

/// What to handle next.
pub enum Heard {
    /// A message from the switch, with its version and transaction id.
    Message(Version, u32, Message),
    /// A request on the control socket.
    Asked(Asked),
}

/// An answer, or why it cannot be read.
pub type Answer = Result<Message, ErrorKind>;

/// A connection on which both sides have said hello.
pub struct Client {
    name: String,
    connection: Connection,
    writer: Box<dyn Write>,
    arrivals: Receiver<Arrival>,
    gate: Arc<Gate>,
    /// For further sources of arrivals.
    sender: Sender<Arrival>,
    /// Requests of the control socket that were not taken yet.
    asked: VecDeque<Asked>,
    /// Bytes that the connection has not taken yet.
    backlog: Vec<u8>,
    version: Version,
    protocol: Protocol,
}

impl Client {
    /// Connects to a switch and says hello.
    pub fn connect(target: &str, versions: VersionSet, tls: &TlsFiles) -> Result<Client, Failure> {
        Self::connect_as(Side::Controller, target, versions, tls)
    }

    /// Connects to where a switch repeats what it and its controllers say.
    pub fn listen(target: &str, versions: VersionSet, tls: &TlsFiles) -> Result<Client, Failure> {
        Self::connect_as(Side::Listener, target, versions, tls)
    }

    fn connect_as(side: Side, target: &str, versions: VersionSet, tls: &TlsFiles) -> Result<Client, Failure> {
        let suffix = if side == Side::Listener { "snoop" } else { "mgmt" };
        let (mut reader, writer, address) = open(target, suffix, tls)?;
        let (sender, arrivals) = channel();
        let from_switch = sender.clone();
        let gate = Arc::<Gate>::default();
        let of_reader = gate.clone();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            loop {
                of_reader.pass();
                let result = reader.read(&mut buffer).map(|n| buffer[..n].to_vec());
                let done = !matches!(&result, Ok(bytes) if !bytes.is_empty());
                of_reader.set(|gate| gate.queued += result.as_ref().map_or(0, Vec::len));
                if from_switch.send(Arrival::Bytes(result)).is_err() || done {
                    return;
                }
            }
        });
        let config = ConnectionConfig { side, versions, probe_interval: None };
        let mut client = Client {
            name: target.to_string(),
            connection: Connection::new(config, Instant::now()),
            writer,
            arrivals,
            gate,
            sender,
            asked: VecDeque::new(),
            backlog: Vec::new(),
            version: Version::V10,
            protocol: Protocol::Of10,
        };
        client.flush()?;
        match client.next_event()? {
            Event::Up(version) => {
                client.version = version;
                client.protocol = Protocol::of_version(version);
                Ok(client)
            }
            Event::Closed(CloseReason::NoCommonVersion(theirs)) => {
                tracing::warn!(
                    target: "vconn",
                    "{address}: version negotiation failed (we support {}, peer supports {})",
                    versions.describe(),
                    theirs.describe()
                );
                fail!("{target}: failed to connect to socket (Protocol error)")
            }
            _ => fail!("{target}: failed to connect to socket (Protocol error)"),
        }
    }

    /// The version spoken.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The encoding of flows in use.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// How messages from it are written.
    pub fn style<'a>(&self, ports: &'a PortNames, verbosity: u8) -> MessageStyle<'a> {
        MessageStyle { version: self.version, ports, verbosity }
    }

    /// The text of the message that came last, as `ovs-ofctl` prints it: with its bytes in hexadecimal from
    /// `-mmmm` on.
    pub fn received_text(&self, xid: u32, message: &Message, style: MessageStyle) -> String {
        text_with_bytes(xid, message, self.connection.last_message(), style)
    }

    /// The text of the answer that came last, whether it can be read or not.
    pub fn answer_text(&self, xid: u32, answer: &Answer, style: MessageStyle) -> String {
        match answer {
            Ok(message) => self.received_text(xid, message, style),
            Err(_) => bytes_text(self.connection.last_message(), style.ports, style.verbosity),
        }
    }

    /// The failure that an answer is, of which nothing can be read.
    fn bad_answer(&self) -> Failure {
        let text = bytes_text(self.connection.last_message(), PortNames::none(), 1);
        Failure(format!("received bad reply: {}", text.trim_end()))
    }

    /// The same for an answer whose text has been shown: no failure if at least its kind could be read, as
    /// with the stock tool.
    pub fn check_shown(&self, answer: &Answer, text: &str) -> Result<(), Failure> {
        if answer.is_err() && text.starts_with("***") { Err(self.bad_answer()) } else { Ok(()) }
    }

    /// Passes over a transaction id, where the stock tool spends one on a second connection's hello.
    pub fn skip_xid(&mut self) {
        self.connection.new_xid();
    }

    /// Echo requests of the switch are messages like others, and answered too.
    pub fn show_echoes(&mut self) {
        self.connection.show_echoes();
    }

    /// Sends all that waits.
    pub fn flush(&mut self) -> Result<(), Failure> {
        if self.connection.transmit().is_empty() {
            return Ok(());
        }
        self.gate.set(|gate| gate.is_sending = true);
        let sent = self.send_all();
        self.gate.set(|gate| gate.is_sending = false);
        sent
    }

    fn send_all(&mut self) -> Result<(), Failure> {
        while !self.connection.transmit().is_empty() {
            let n = self.writer.write(self.connection.transmit());
            match n {
                Ok(n) => self.connection.transmitted(n),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return fail!("{}: error sending OpenFlow message ({})", self.name, os_text(&e)),
            }
        }
        Ok(())
    }

    fn next_event(&mut self) -> Result<Event, Failure> {
        loop {
            if let Some(event) = self.wait(false)? {
                return Ok(event);
            }
        }
    }

    /// The next event of the connection; `None` once a request of the control socket waits. With `blocked` it
    /// waits for those alone.
    fn wait(&mut self, blocked: bool) -> Result<Option<Event>, Failure> {
        self.gate.set(|gate| gate.is_closed = blocked);
        loop {
            if blocked {
                match self.arrivals.recv() {
                    Ok(Arrival::Asked(asked)) => self.asked.push_back(asked),
                    Ok(Arrival::Bytes(Ok(bytes))) if !bytes.is_empty() => {
                        self.take(&bytes);
                        continue;
                    }
                    _ => return fail!("{}: error receiving OpenFlow message (End of file)", self.name),
                }
                return Ok(None);
            }
            let taken = self.connection.handle_bytes(Instant::now(), &self.backlog);
            self.backlog.drain(..taken);
            if let Some(event) = self.connection.next_event(Instant::now()) {
                return Ok(Some(event));
            }
            self.flush()?;
            if !self.backlog.is_empty() && self.connection.wants_input() {
                continue;
            }
            match self.arrivals.recv() {
                Ok(Arrival::Asked(asked)) => {
                    self.asked.push_back(asked);
                    return Ok(None);
                }
                Ok(Arrival::Bytes(Ok(bytes))) if !bytes.is_empty() => self.take(&bytes),
                Ok(Arrival::Bytes(Err(e))) => {
                    return fail!("{}: error receiving OpenFlow message ({})", self.name, os_text(&e));
                }
                _ => return fail!("{}: error receiving OpenFlow message (End of file)", self.name),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.gate.set(|gate| gate.queued -= bytes.len());
        self.backlog.extend_from_slice(bytes);
    }

    /// For sources other than the switch that must wake [`Self::hear_or_be_asked`].
    pub fn sender(&self) -> Sender<Arrival> {
        self.sender.clone()
    }

    /// Sends bytes that are messages.
    pub fn send_raw(&mut self, messages: &[u8]) {
        self.connection.send_bytes(messages);
    }

    /// The next message or request. With `blocked` what the switch says waits.
    pub fn hear_or_be_asked(&mut self, blocked: bool) -> Result<Heard, Failure> {
        loop {
            if let Some(asked) = self.asked.pop_front() {
                return Ok(Heard::Asked(asked));
            }
            if let Some(event) = self.wait(blocked)?
                && let Some((version, xid, message)) = self.message_of(event)?
            {
                return Ok(Heard::Message(version, xid, message));
            }
        }
    }

    /// The next message that can be read, or the answer to request `asked`, which may be one that cannot: no
    /// other will come. What else cannot be read is printed and skipped.
    fn receive_answer(&mut self, asked: u32) -> Result<(u32, Answer), Failure> {
        loop {
            match self.next_event()? {
                Event::Unreadable { xid, error, .. } if xid == asked => return Ok((xid, Err(error))),
                event => {
                    if let Some((_, xid, message)) = self.message_of(event)? {
                        return Ok((xid, Ok(message)));
                    }
                }
            }
        }
    }

    fn message_of(&self, event: Event) -> Result<Option<(Version, u32, Message)>, Failure> {
        match event {
            Event::Message { xid, message, head } => {
                let version = head.as_bytes().first().and_then(|&n| Version::from_wire(n));
                return Ok(Some((version.unwrap_or(self.version), xid, message)));
            }
            // A message of another version reads in that.
            Event::Unreadable { error: ErrorKind::OFPBRC_BAD_VERSION, head, .. } => {
                eprint!("{}", bytes_text(head.as_bytes(), PortNames::none(), 1));
            }
            Event::Unreadable { error, head, .. } => eprint!("{}", unreadable_text(head.as_bytes(), error)),
            Event::Up(_) => {}
            Event::Closed(_) => {
                return fail!("{}: error receiving OpenFlow message (Protocol error)", self.name);
            }
        }
        Ok(None)
    }

    /// How the switch was named.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends a message; gives its transaction id.
    pub fn send(&mut self, message: &Message) -> Result<u32, Failure> {
        let xid = self.connection.new_xid();
        match self.connection.send(xid, message) {
            Ok(()) => {}
            Err(error) => return fail!("{}: {error}", self.name),
        }
        if self.connection.transmit().len() >= WRITE_AT {
            self.flush()?;
        }
        Ok(xid)
    }

    /// Sends features of tables, a few to a message. A refusal is a failure.
    pub fn set_table_features(&mut self, tables: &[TableFeatures]) -> Result<(), Failure> {
        let xid = self.connection.new_xid();
        let mut parts = tables.chunks(TABLES_PER_MESSAGE).peekable();
        while let Some(part) = parts.next() {
            let more = parts.peek().is_some();
            let request = StatsRequest::TableFeatures { features: part.to_vec(), more };
            if let Err(error) = self.connection.send(xid, &Message::StatsRequest(request)) {
                return fail!("{}: {error}", self.name);
            }
        }
        self.flush()?;
        loop {
            match self.receive_answer(xid)? {
                (reply_xid, _) if reply_xid != xid => {}
                (_, Ok(error @ Message::Error(_))) => return Err(self.refused(xid, &error)),
                (_, Ok(Message::StatsReply(reply))) if reply.more => {}
                (_, Err(_)) => return Err(self.bad_answer()),
                _ => return Ok(()),
            }
        }
    }

    /// Adds a message to a bundle, under a transaction id of its own, which it gives.
    pub fn send_bundled(&mut self, mut add: BundleAdd) -> Result<u32, Failure> {
        let xid = self.connection.new_xid();
        add.xid = xid;
        // Its bytes start with a header, whose last four bytes are the transaction id.
        if let Some(bytes) = add.bytes.get_mut(4..8) {
            bytes.copy_from_slice(&xid.to_be_bytes());
        }
        if let Err(error) = self.connection.send(xid, &Message::BundleAdd(add)) {
            return fail!("{}: {error}", self.name);
        }
        if self.connection.transmit().len() >= WRITE_AT {
            self.flush()?;
        }
        Ok(xid)
    }

    /// Sends a request and waits for the answer, which may be an error message.
    pub fn transact(&mut self, request: &Message) -> Result<(u32, Message), Failure> {
        self.transact_hearing(request, |_, _| ())
    }

    /// As [`Self::transact`], and hands over errors in answer to other messages that come meanwhile.
    pub fn transact_hearing(
        &mut self,
        request: &Message,
        hear: impl FnMut(u32, Message),
    ) -> Result<(u32, Message), Failure> {
        match self.exchange(request, hear)? {
            (xid, Ok(reply)) => Ok((xid, reply)),
            (_, Err(_)) => Err(self.bad_answer()),
        }
    }

    /// As [`Self::transact`], for who shows the answer: it may be one that cannot be read.
    pub fn ask(&mut self, request: &Message) -> Result<(u32, Answer), Failure> {
        self.exchange(request, |_, _| ())
    }

    fn exchange(
        &mut self,
        request: &Message,
        mut hear: impl FnMut(u32, Message),
    ) -> Result<(u32, Answer), Failure> {
        let xid = self.send(request)?;
        self.flush()?;
        loop {
            match self.receive_answer(xid)? {
                (reply_xid, reply) if reply_xid == xid => return Ok((xid, reply)),
                (reply_xid, Ok(error @ Message::Error(_))) => hear(reply_xid, error),
                _ => {}
            }
        }
    }

    /// As [`Self::transact`]; an error message is printed, and is a failure.
    pub fn request(&mut self, request: &Message) -> Result<Message, Failure> {
        match self.transact(request)? {
            (xid, error @ Message::Error(_)) => Err(self.refused(xid, &error)),
            (_, reply) => Ok(reply),
        }
    }

    /// The failure that an error message is.
    pub fn refused(&self, xid: u32, error: &Message) -> Failure {
        let text = message_text(xid, error, self.style(PortNames::none(), 1));
        Failure(text.trim_end().to_string())
    }

    /// The same, with the request before the reply.
    pub fn show_exchange(
        &mut self,
        request: StatsRequest,
        style: MessageStyle,
        mut show: impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut asked = Some(Message::StatsRequest(request.clone()));
        self.statistics(request, |client, xid, answer| {
            if let Some(asked) = asked.take() {
                show(&message_text(xid, &asked, style))?;
            }
            client.show_answer(xid, &answer, style, &mut show)
        })
    }

    /// Asks for statistics and hands over each part of the reply in text, as [`Self::received_text`] has it.
    /// A refusal is a reply too.
    pub fn show_statistics(
        &mut self,
        request: StatsRequest,
        style: MessageStyle,
        mut show: impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.statistics(request, |client, xid, answer| client.show_answer(xid, &answer, style, &mut show))
    }

    fn show_answer(
        &self,
        xid: u32,
        answer: &Answer,
        style: MessageStyle,
        show: &mut impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let text = self.answer_text(xid, answer, style);
        show(&text)?;
        self.check_shown(answer, &text)
    }

    /// Whether what came last is a part of statistics that says that there are more, whatever else it says.
    fn announces_more(&self) -> bool {
        let kind = if self.version == Version::V10 { 17 } else { 19 };
        // The last bit of the flags, which come after the kind of statistics.
        matches!(self.connection.last_message(), [_, of, _, _, _, _, _, _, _, _, _, flags, ..]
            if *of == kind && flags & 1 != 0)
    }

    /// Asks for statistics and hands over each part of the reply, or the error, with its transaction id.
    fn statistics(
        &mut self,
        request: StatsRequest,
        mut part: impl FnMut(&Client, u32, Answer) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let xid = self.send(&Message::StatsRequest(request))?;
        self.flush()?;
        loop {
            let (reply_xid, reply) = self.receive_answer(xid)?;
            if reply_xid != xid {
                continue;
            }
            let more = match &reply {
                Ok(Message::StatsReply(body)) => body.more,
                Err(_) => self.announces_more(),
                Ok(Message::Error(_)) => false,
                Ok(_) => return fail!("{}: reply of another kind", self.name),
            };
            part(self, xid, reply)?;
            if !more {
                return Ok(());
            }
        }
    }

    /// Asks for statistics and hands over each part of the reply.
    pub fn each_part(
        &mut self,
        request: StatsRequest,
        mut each: impl FnMut(StatsBody),
    ) -> Result<(), Failure> {
        self.statistics(request, |client, xid, answer| match answer {
            Ok(Message::StatsReply(reply)) => {
                each(reply.body);
                Ok(())
            }
            Ok(error) => Err(client.refused(xid, &error)),
            Err(_) => Err(client.bad_answer()),
        })
    }

    /// Asks for statistics and collects the parts.
    pub fn collect(&mut self, request: StatsRequest) -> Result<Vec<StatsBody>, Failure> {
        let mut parts = Vec::new();
        self.each_part(request, |body| parts.push(body))?;
        Ok(parts)
    }

    /// Sends messages that are answered only if they are refused, and waits until the switch has processed
    /// them. The first error ends the wait.
    pub fn command(&mut self, message: &Message) -> Result<(), Failure> {
        self.send(message)?;
        self.barrier()
    }

    /// Waits until the switch has processed everything sent. An error that arrives meanwhile is a failure.
    pub fn barrier(&mut self) -> Result<(), Failure> {
        match self.barrier_error()? {
            Some((xid, error)) => Err(self.refused(xid, &error)),
            None => Ok(()),
        }
    }

    /// Waits until the switch has processed everything sent, and returns the first error that arrived
    /// meanwhile.
    pub fn barrier_error(&mut self) -> Result<Option<(u32, Message)>, Failure> {
        let xid = self.send(&Message::BarrierRequest)?;
        self.flush()?;
        let mut failure = None;
        loop {
            match self.receive_answer(xid)? {
                (reply_xid, Ok(Message::BarrierReply)) if reply_xid == xid => return Ok(failure),
                (xid, Ok(error @ Message::Error(_))) if failure.is_none() => failure = Some((xid, error)),
                (_, Err(_)) => return Err(self.bad_answer()),
                _ => {}
            }
        }
    }

    /// The ports as the switch describes them.
    pub fn ports(&mut self) -> Result<Vec<PortDesc>, Failure> {
        if self.version == Version::V10 {
            match self.request(&Message::FeaturesRequest)? {
                Message::FeaturesReply(features) if features.has_all_ports(self.version) => {
                    return Ok(features.ports);
                }
                Message::FeaturesReply(_) => {}
                _ => return fail!("{}: reply of another kind", self.name),
            }
        }
        let parts = self.collect(StatsRequest::PortDesc(None))?;
        let all = parts.into_iter().flat_map(|part| match part {
            StatsBody::PortDesc(ports) => ports,
            _ => Vec::new(),
        });
        Ok(all.collect())
    }

    /// Switches to an encoding of the same version; `false` where the switch refuses.
    fn set_protocol(&mut self, wanted: Protocol) -> Result<bool, Failure> {
        if wanted.version() != self.version {
            return Ok(false);
        }
        let mut messages = Vec::new();
        if wanted.is_nxm() != self.protocol.is_nxm() {
            let form = if wanted.is_nxm() { FlowForm::Nxm } else { FlowForm::Standard };
            messages.push(Message::SetFlowFormat(form));
        }
        if wanted.has_table_id_extension() != self.protocol.has_table_id_extension() {
            messages.push(Message::FlowModTableId(wanted.has_table_id_extension()));
        }
        for message in &messages {
            if self.command(message).is_err() {
                return Ok(false);
            }
        }
        self.protocol = wanted;
        Ok(true)
    }

    /// Ensures that one of these encodings is in use: the current one if possible, else the first that the
    /// switch accepts.
    pub fn use_one_of(&mut self, usable: Protocols) -> Result<Protocol, Failure> {
        if usable.contains(self.protocol) {
            return Ok(self.protocol);
        }
        for wanted in usable.iter() {
            if self.set_protocol(wanted)? {
                return Ok(wanted);
            }
        }
        fail!("switch does not support any of the usable flow formats ({usable})")
    }

    /// Sees to it that flows are dumped with all that the switch knows of them.
    pub fn prepare_dump(&mut self, allowed: Protocols) -> Result<(), Failure> {
        let preferred = [Protocol::Nxm, Protocol::NxmTableId, Protocol::Of10, Protocol::Of10TableId];
        if self.version != Version::V10 {
            return Ok(());
        }
        for wanted in preferred.into_iter().filter(|&p| allowed.contains(p)) {
            if wanted == self.protocol || self.set_protocol(wanted)? {
                return Ok(());
            }
        }
        fail!("switch does not support any of the usable flow formats ({allowed})")
    }

    /// The codec, for messages within messages.
    pub fn codec(&self) -> Codec {
        self.connection.codec().unwrap_or(Codec::new(self.version))
    }
}
/// From this verbosity on (`-mmmm`) messages are followed by their bytes.
const BYTES_VERBOSITY: u8 = 5;

/// A message's text, followed by its bytes in hexadecimal if `style` asks for that much.
pub fn text_with_bytes(xid: u32, message: &Message, bytes: &[u8], style: MessageStyle) -> String {
    let mut text = message_text(xid, message, style);
    if style.verbosity >= BYTES_VERBOSITY {
        write_hex_dump(&mut text, bytes);
    }
    text
}

#[cfg(test)]
mod tests;
