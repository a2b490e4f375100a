//! Replies of any length, split into messages as they fill.
//!
//! A dump of a million flows takes some 2,000 messages. [`ReplyWriter`] accepts one entry after another and
//! emits a message whenever one is full, so that the caller decides how much is in memory at once. Every
//! message except the last announces that more follow, and each contains only whole entries.

use crate::codec::{Codec, finish, port_stats_bytes_max, write_flow_stats, write_flow_update};
use crate::message::{FlowForm, FlowStatsRef, FlowUpdate, Message, PortStats, StatsBody, StatsReply};

/// Bytes at which a message counts as full. Below the 65,535 that the length can say, with room for the next
/// entry.
const FULL: usize = 32 * 1024;
/// Bytes of ports in a message, which leave room for its head.
const PORTS_BYTES_MAX: usize = 60_000;
/// The longest message.
const MESSAGE_MAX: usize = 0xffff;

/// Encodes the flows of a reply to OFPST_FLOW or NXST_FLOW, or the events of one to NXST_FLOW_MONITOR.
#[derive(Debug)]
pub struct ReplyWriter {
    codec: Codec,
    xid: u32,
    /// For flows; events have only one form.
    form: Option<FlowForm>,
    buffer: Vec<u8>,
    head: usize,
    /// Flows that no message can hold.
    too_long: u64,
}

impl ReplyWriter {
    /// A reply to the request with this transaction id, in the form of the request.
    pub fn new(codec: Codec, xid: u32, form: FlowForm) -> ReplyWriter {
        Self::of(codec, xid, Some(form))
    }

    /// Events of a flow monitor: the initial ones carry the request's transaction id, others 0.
    pub fn of_events(codec: Codec, xid: u32) -> ReplyWriter {
        Self::of(codec, xid, None)
    }

    fn of(codec: Codec, xid: u32, form: Option<FlowForm>) -> ReplyWriter {
        let mut writer =
            ReplyWriter { codec, xid, form, buffer: Vec::with_capacity(FULL + 4096), head: 0, too_long: 0 };
        writer.begin();
        writer.head = writer.buffer.len();
        writer
    }

    fn begin(&mut self) {
        let body = match self.form {
            Some(form) => StatsBody::Flow { form, flows: Vec::new() },
            None => StatsBody::FlowMonitor(Vec::new()),
        };
        let message = Message::StatsReply(StatsReply { more: false, body });
        self.codec
            .encode_into(self.xid, &message, &mut self.buffer)
            .expect("every version has flow statistics");
    }

    /// Adds a flow. A message that this fills is appended to `out`.
    ///
    /// A flow that is too long for any message is left out and counted: see [`Self::too_long`].
    pub fn push(&mut self, flow: &FlowStatsRef, out: &mut Vec<u8>) {
        let before = self.buffer.len();
        write_flow_stats(self.codec.version, self.form.unwrap_or_default(), &mut self.buffer, flow);
        self.pushed(before, out);
    }

    /// Adds an event, likewise.
    pub fn push_event(&mut self, event: &FlowUpdate, out: &mut Vec<u8>) {
        let before = self.buffer.len();
        write_flow_update(self.codec.version, &mut self.buffer, event);
        self.pushed(before, out);
    }

    /// An entry was written behind `before`.
    fn pushed(&mut self, before: usize, out: &mut Vec<u8>) {
        let length = self.buffer.len() - before;
        if self.head + length > MESSAGE_MAX {
            self.buffer.truncate(before);
            self.too_long += 1;
            return;
        }
        if self.buffer.len() > MESSAGE_MAX {
            // This one goes to the next message.
            let entry = self.buffer.split_off(before);
            self.flush(true, out);
            self.buffer.extend_from_slice(&entry);
        }
        if self.buffer.len() >= FULL {
            self.flush(true, out);
        }
    }

    fn flush(&mut self, more: bool, out: &mut Vec<u8>) {
        finish(&mut self.buffer, 0).expect("never longer than a message");
        if more {
            let flags = crate::codec::STATS_FLAGS_AT + 1;
            self.buffer[flags] |= 1;
        }
        out.extend_from_slice(&self.buffer);
        self.buffer[crate::codec::STATS_FLAGS_AT + 1] &= !1;
        self.buffer.truncate(self.head);
    }

    /// The last message, which may hold no flow.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.flush(false, out);
    }

    /// How many flows were left out because no message can hold them: theirs have more than 64 KiB of
    /// actions.
    pub fn too_long(&self) -> u64 {
        self.too_long
    }
}

/// Encodes a reply of any other kind, split into several messages if it is too long for one.
pub fn write_reply(
    codec: Codec,
    xid: u32,
    body: StatsBody,
    out: &mut Vec<u8>,
) -> Result<(), crate::Unencodable> {
    fn chunks<T: Clone>(list: &[T], n: usize, make: impl Fn(Vec<T>) -> StatsBody) -> Vec<StatsBody> {
        if list.is_empty() {
            return vec![make(Vec::new())];
        }
        list.chunks(n).map(|chunk| make(chunk.to_vec())).collect()
    }
    let parts = match body {
        StatsBody::Table(tables) => chunks(&tables, 512, StatsBody::Table),
        StatsBody::Port(ports) => ports_by_room(ports).into_iter().map(StatsBody::Port).collect(),
        StatsBody::Queue(queues) => chunks(&queues, 1024, StatsBody::Queue),
        StatsBody::PortDesc(ports) => chunks(&ports, 512, StatsBody::PortDesc),
        // A table's features take up to some 5 KiB.
        StatsBody::TableFeatures(tables) => chunks(&tables, 8, StatsBody::TableFeatures),
        StatsBody::FlowMonitor(updates) => chunks(&updates, 16, StatsBody::FlowMonitor),
        other => vec![other],
    };
    let last = parts.len() - 1;
    for (i, body) in parts.into_iter().enumerate() {
        codec.encode_into(xid, &Message::StatsReply(StatsReply { more: i < last, body }), out)?;
    }
    Ok(())
}

/// Groups of as many ports as fit into a message. A single empty list if there are none.
fn ports_by_room(ports: Vec<PortStats>) -> Vec<Vec<PortStats>> {
    let (mut parts, mut bytes) = (vec![Vec::new()], 0);
    for port in ports {
        bytes += port_stats_bytes_max(&port);
        if bytes > PORTS_BYTES_MAX && parts != [Vec::new()] {
            bytes = port_stats_bytes_max(&port);
            parts.push(Vec::new());
        }
        parts.last_mut().expect("it begins with one").push(port);
    }
    parts
}
