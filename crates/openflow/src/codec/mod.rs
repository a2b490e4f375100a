//! Messages on the wire: bytes to [`Message`] and back, for one version.
//!
//! A message is a header of 8 bytes (version, type, length, transaction id) and a body. The tables in
//! `kind.rs` give the type numbers in each version; decoder and encoder of a body are side by side, one file
//! per subject. Decoding never panics and answers bad input with the standard's error; what a version cannot
//! express is an [`Unencodable`].

mod asynchronous;
pub(crate) mod bytes;
mod ct_flush;
mod document;
mod extension;
mod features;
mod fields;
mod flows;
mod group;
mod header;
mod kind;
mod length;
mod match10;
mod match11;
pub(crate) mod matching;
mod meter;
mod monitor;
mod names;
mod oxs;
mod packet;
mod port;
mod property;
mod stats;
mod switch;
mod table;
mod table_stats;

pub use document::{errors_table, fields_table, messages_table, statistics_table};
pub use fields::for_each_field;
pub use header::{Codec, HEADER_LEN, Header};
pub use match10::{fits as fits_match10, normalized};
pub use matching::{Unknown, is_of_pipeline};
pub use names::message_name;
pub use switch::names_no_version;

pub(crate) use flows::write_flow_stats;
pub(crate) use monitor::write_update as write_flow_update;
pub(crate) use port::port_stats_bytes_max;
pub(crate) use stats::FLAGS_AT as STATS_FLAGS_AT;
pub(crate) use switch::unknown_in_hello;

use crate::error::ErrorKind::{self, *};
use crate::message::{AsyncChange, Message};
use crate::version::{Version, VersionSet};
use bytes::{Put, Reader};
use kind::{Kind, NICIRA, ONF, nxt, onft};

/// Why a message cannot be encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unencodable {
    /// The version has no such message.
    Version(Version, &'static str),
    /// It would be longer than 65,535 bytes.
    TooLong(&'static str),
}

impl std::fmt::Display for Unencodable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unencodable::Version(version, what) => write!(f, "{version} has no {what}"),
            Unencodable::TooLong(what) => write!(f, "{what} is too long for a message"),
        }
    }
}

impl std::error::Error for Unencodable {}

impl Codec {
    /// Decodes one message, which takes up all of `bytes`. A hello may have any version.
    pub fn decode(&self, bytes: &[u8]) -> Result<(u32, Message), ErrorKind> {
        let header = Header::parse(bytes).ok_or(OFPBRC_BAD_LEN)?;
        if usize::from(header.length) != bytes.len() {
            return Err(OFPBRC_BAD_LEN);
        }
        let body = Reader::new(&bytes[HEADER_LEN..], OFPBRC_BAD_LEN);
        if header.kind == 0 {
            return Ok((header.xid, Message::Hello(switch::read_hello(header.version, body)?)));
        }
        if header.version != self.version as u8 {
            return Err(OFPBRC_BAD_VERSION);
        }
        let kind = Kind::from_wire(self.version, header.kind).ok_or(OFPBRC_BAD_TYPE)?;
        Ok((header.xid, self.read_body(kind, body, header.xid)?))
    }

    fn read_body(&self, kind: Kind, mut b: Reader, xid: u32) -> Result<Message, ErrorKind> {
        let v = self.version;
        let r = &mut b;
        length::check(v, kind, *r)?;
        let message = match kind {
            Kind::Hello => Message::Hello(switch::read_hello(v as u8, *r)?),
            Kind::Error => return switch::read_error(v, r).map(Message::Error),
            Kind::EchoRequest => return Ok(Message::EchoRequest(r.rest().to_vec())),
            Kind::EchoReply => return Ok(Message::EchoReply(r.rest().to_vec())),
            Kind::Experimenter => return extension::read(self, r, xid),
            Kind::FeaturesRequest => Message::FeaturesRequest,
            Kind::FeaturesReply => Message::FeaturesReply(switch::read_features(v, r)?),
            Kind::GetConfigRequest => Message::GetConfigRequest,
            Kind::GetConfigReply => Message::GetConfigReply(switch::read_config(v, r)?),
            Kind::SetConfig => Message::SetConfig(switch::read_config(v, r)?),
            Kind::PacketIn => Message::PacketIn(packet::read_packet_in(v, r)?),
            Kind::FlowRemoved => Message::FlowRemoved(flows::read_flow_removed(v, r)?),
            Kind::PortStatus => Message::PortStatus(port::read_port_status(v, r)?),
            Kind::PacketOut => Message::PacketOut(Box::new(packet::read_packet_out(v, r)?)),
            Kind::FlowMod => Message::FlowMod(flows::read_flow_mod(self, r)?),
            Kind::PortMod => Message::PortMod(port::read_port_mod(v, r)?),
            Kind::TableMod => Message::TableMod(table::read_table_mod(v, r)?),
            Kind::StatsRequest => Message::StatsRequest(stats::read_request(v, r)?),
            Kind::StatsReply => Message::StatsReply(stats::read_reply(v, r)?),
            Kind::BarrierRequest => Message::BarrierRequest,
            Kind::BarrierReply => Message::BarrierReply,
            Kind::QueueGetConfigRequest => port::read_queue_config_request(v, r)?,
            Kind::QueueGetConfigReply => port::read_queue_config_reply(v, r)?,
            Kind::RoleRequest => Message::RoleRequest(switch::read_role(r)?),
            Kind::RoleReply => Message::RoleReply(switch::read_role_reply(r)?),
            Kind::GetAsyncRequest => Message::GetAsyncRequest,
            Kind::GetAsyncReply => Message::GetAsyncReply(asynchronous::read_reply(v, r)?),
            Kind::SetAsync => Message::SetAsync(asynchronous::read(v, r)?),
            Kind::BundleControl => Message::BundleControl(extension::read_bundle_control(r)?),
            Kind::BundleAdd => Message::BundleAdd(extension::read_bundle_add(self, r, xid)?),
            Kind::GroupMod => Message::GroupMod(group::read_group_mod(v, r)?),
            Kind::MeterMod => Message::MeterMod(meter::read_meter_mod(r)?),
            Kind::RoleStatus => Message::RoleStatus(switch::read_role_status(r)?),
            Kind::RequestForward => extension::read_request_forward(self, r)?,
            Kind::TableStatus => Message::TableStatus(table::read_table_status(r)?),
        };
        b.end()?;
        Ok(message)
    }

    /// How a switch refuses a message that only a switch sends, as Open vSwitch does: for its type, or for a
    /// wrong length, whatever its contents. `None` if others send such messages, or nobody does.
    fn refusal_by_type(&self, bytes: &[u8]) -> Option<ErrorKind> {
        let kind = Kind::from_wire(self.version, Header::parse(bytes)?.kind)?;
        let body = Reader::new(&bytes[HEADER_LEN..], OFPBRC_BAD_LEN);
        length::check_of_switch(self.version, kind, body)
            .map(|length| length.err().unwrap_or(OFPBRC_BAD_TYPE))
    }

    /// The error of a switch for a message that it cannot read because of `error`: that of its type or its
    /// length first, then the role's, as in Open vSwitch.
    pub(crate) fn refusal(&self, bytes: &[u8], error: ErrorKind, is_secondary: bool) -> ErrorKind {
        let by_role = || (is_secondary && self.is_change(bytes)?).then_some(());
        let by_type = self.refusal_by_type(bytes);
        by_type.unwrap_or_else(|| by_role().map_or(error, |()| OFPBRC_IS_SECONDARY))
    }

    /// Whether a message of a length that its type may have, whatever its contents, asks for what a secondary
    /// may not ask for.
    fn is_change(&self, bytes: &[u8]) -> Option<bool> {
        let mut body = Reader::new(bytes.get(HEADER_LEN..)?, OFPBRC_BAD_LEN);
        let kind = Kind::from_wire(self.version, Header::parse(bytes)?.kind)?;
        length::check(self.version, kind, body).ok()?;
        Some(match kind {
            Kind::FlowMod | Kind::GroupMod | Kind::PortMod | Kind::TableMod | Kind::MeterMod => true,
            Kind::PacketOut | Kind::BundleControl | Kind::BundleAdd => true,
            Kind::Experimenter => matches!(
                (body.u32().ok()?, body.u32().ok()?),
                (NICIRA, nxt::FLOW_MOD | nxt::GROUP_MOD | nxt::TLV_TABLE_MOD)
                    | (ONF, onft::BUNDLE_CONTROL | onft::BUNDLE_ADD)
            ),
            _ => false,
        })
    }

    /// Encodes a message.
    pub fn encode(&self, xid: u32, message: &Message) -> Result<Vec<u8>, Unencodable> {
        let mut out = Vec::with_capacity(128);
        self.encode_into(xid, message, &mut out)?;
        Ok(out)
    }

    /// Appends an encoded message; on an error `out` is as before.
    pub fn encode_into(&self, xid: u32, message: &Message, out: &mut Vec<u8>) -> Result<(), Unencodable> {
        let start = out.len();
        self.put_header(out, 0, xid);
        let kind = match self.write_body(out, message) {
            Some(kind) => kind,
            None => {
                out.truncate(start);
                return Err(Unencodable::Version(self.version, message.name()));
            }
        };
        let Some(number) = kind.to_wire(self.version) else {
            out.truncate(start);
            return Err(Unencodable::Version(self.version, message.name()));
        };
        out[start + 1] = number;
        finish(out, start).map_err(|()| Unencodable::TooLong(message.name()))
    }

    fn put_header(&self, out: &mut Vec<u8>, kind: u8, xid: u32) {
        out.u8(self.version as u8);
        out.u8(kind);
        out.u16(0);
        out.u32(xid);
    }

    /// Appends the body; `None` where the version has no such message.
    fn write_body(&self, out: &mut Vec<u8>, message: &Message) -> Option<Kind> {
        let v = self.version;
        Some(match message {
            Message::Hello(versions) => {
                switch::write_hello(v, out, *versions);
                Kind::Hello
            }
            Message::Error(error) => {
                switch::write_error(v, out, error);
                Kind::Error
            }
            Message::EchoRequest(data) => {
                out.extend_from_slice(data);
                Kind::EchoRequest
            }
            Message::EchoReply(data) => {
                out.extend_from_slice(data);
                Kind::EchoReply
            }
            Message::FeaturesRequest => Kind::FeaturesRequest,
            Message::FeaturesReply(features) => {
                switch::write_features(v, out, features);
                Kind::FeaturesReply
            }
            Message::GetConfigRequest => Kind::GetConfigRequest,
            Message::GetConfigReply(config) => {
                switch::write_config(v, out, config);
                Kind::GetConfigReply
            }
            Message::SetConfig(config) => {
                switch::write_config(v, out, config);
                Kind::SetConfig
            }
            Message::PacketIn(packet) => packet::write_packet_in(v, out, packet),
            Message::FlowRemoved(removed) => flows::write_flow_removed(v, out, removed),
            Message::PortStatus(status) => {
                port::write_port_status(v, out, status);
                Kind::PortStatus
            }
            Message::PacketOut(packet) => {
                packet::write_packet_out(v, out, packet);
                Kind::PacketOut
            }
            Message::FlowMod(flow_mod) => flows::write_flow_mod(self, out, flow_mod),
            Message::PortMod(port_mod) => {
                port::write_port_mod(v, out, port_mod);
                Kind::PortMod
            }
            Message::TableMod(table_mod) => {
                table::write_table_mod(v, out, table_mod);
                Kind::TableMod
            }
            Message::GroupMod(group_mod) if v >= Version::V11 => {
                group::write_group_mod(v, out, group_mod);
                Kind::GroupMod
            }
            Message::MeterMod(meter_mod) => {
                meter::write_meter_mod(out, meter_mod);
                Kind::MeterMod
            }
            Message::RoleStatus(status) if v >= Version::V14 => {
                switch::write_role_status(out, status);
                Kind::RoleStatus
            }
            Message::RequestForward(xid, request) if v >= Version::V14 => {
                self.encode_into(*xid, request, out).ok()?;
                Kind::RequestForward
            }
            Message::TableStatus(status) => {
                table::write_table_status(out, status);
                Kind::TableStatus
            }
            Message::StatsRequest(request) => stats::write_request(v, out, request)?,
            Message::StatsReply(reply) => stats::write_reply(v, out, reply)?,
            Message::BarrierRequest => Kind::BarrierRequest,
            Message::BarrierReply => Kind::BarrierReply,
            Message::QueueGetConfigRequest { port } => {
                port::write_queue_config_request(v, out, *port);
                Kind::QueueGetConfigRequest
            }
            Message::QueueGetConfigReply { port, queues } => {
                port::write_queue_config_reply(v, out, *port, queues);
                Kind::QueueGetConfigReply
            }
            Message::RoleRequest(role) if !role.nicira => {
                switch::write_role(out, role);
                Kind::RoleRequest
            }
            Message::RoleReply(role) if !role.nicira => {
                switch::write_role(out, role);
                Kind::RoleReply
            }
            Message::GetAsyncRequest => Kind::GetAsyncRequest,
            Message::GetAsyncReply(config) => {
                let all = AsyncChange { config: *config, given: AsyncChange::ALL };
                asynchronous::write(v, out, &all);
                Kind::GetAsyncReply
            }
            Message::SetAsync(change) if v >= Version::V13 => {
                asynchronous::write(v, out, change);
                Kind::SetAsync
            }
            Message::BundleControl(control) if v >= Version::V14 => {
                extension::write_bundle_control(out, control);
                Kind::BundleControl
            }
            Message::BundleAdd(add) if v >= Version::V14 => {
                extension::write_bundle_add(self, out, add)?;
                Kind::BundleAdd
            }
            message => {
                extension::write(self, out, message)?;
                Kind::Experimenter
            }
        })
    }

    /// Reads a match: `ofp_match` of OpenFlow 1.0 or 1.1, without what may follow, or from 1.2 on OXM entries
    /// without header and padding.
    pub fn decode_match(&self, bytes: &[u8], unknown: Unknown) -> Result<flow::Match, ErrorKind> {
        let mut r = Reader::new(bytes, OFPBMC_BAD_LEN);
        match self.version {
            Version::V10 => match10::read(&mut r),
            Version::V11 => match11::read(&mut r),
            _ => matching::read_known_entries(r, None, unknown),
        }
    }

    /// Encodes a match as `decode_match` reads it.
    pub fn encode_match(&self, m: &flow::Match) -> Vec<u8> {
        let mut out = Vec::new();
        match self.version {
            Version::V10 => match10::write(&mut out, m),
            Version::V11 => match11::write(&mut out, m),
            version => matching::write_entries(&mut out, m, version.minor(), (0, 0)),
        }
        out
    }

    /// Decodes NXM entries, without padding, and an optional cookie with its mask among them.
    pub fn decode_nxm(bytes: &[u8], unknown: Unknown) -> Result<(flow::Match, (u64, u64)), ErrorKind> {
        let mut cookie = (0, 0);
        let r = Reader::new(bytes, OFPBMC_BAD_LEN);
        let m = matching::read_known_entries(r, Some(&mut cookie), unknown)?;
        Ok((m, cookie))
    }

    /// Encodes NXM entries, without padding.
    pub fn encode_nxm(m: &flow::Match, cookie: (u64, u64)) -> Vec<u8> {
        let mut out = Vec::new();
        matching::write_entries(&mut out, m, 0, cookie);
        out
    }

    /// Decodes a list of actions, which takes up all of `bytes`. Instructions in the form of actions are
    /// refused.
    pub fn decode_actions(&self, bytes: &[u8]) -> Result<Vec<flow::Action>, ErrorKind> {
        let actions = crate::action::read_actions(self.version, Reader::new(bytes, OFPBAC_BAD_LEN))?;
        // A connection's fields are set within `ct`.
        if actions.iter().any(crate::action::sets_connection) {
            Err(OFPBAC_BAD_SET_ARGUMENT)
        } else {
            Ok(actions)
        }
    }

    /// Decodes instructions, or in OpenFlow 1.0 the actions that take their place.
    pub fn decode_instructions(&self, bytes: &[u8]) -> Result<Vec<flow::Action>, ErrorKind> {
        match self.version {
            Version::V10 => {
                crate::action::read_flow_actions(self.version, Reader::new(bytes, OFPBAC_BAD_LEN))
            }
            version => crate::action::read_instructions(version, Reader::new(bytes, OFPBIC_BAD_LEN)),
        }
    }

    /// Encodes a list of actions.
    pub fn encode_actions(&self, actions: &[flow::Action]) -> Vec<u8> {
        let mut out = Vec::new();
        crate::action::write_actions(&mut out, self.version, None, actions);
        out
    }

    /// Encodes instructions, or in OpenFlow 1.0 actions.
    pub fn encode_instructions(&self, actions: &[flow::Action]) -> Vec<u8> {
        let mut out = Vec::new();
        match self.version {
            Version::V10 => crate::action::write_actions(&mut out, self.version, None, actions),
            version => crate::action::write_instructions(&mut out, version, &flow::Match::any(), actions),
        }
        out
    }

    /// A hello that offers these versions, sent as the greatest of them.
    pub fn hello(versions: VersionSet, xid: u32) -> Vec<u8> {
        // A peer that offers no known version speaks none: it must not appear to offer the oldest one.
        let version = versions.greatest().unwrap_or(Version::V15);
        let mut out = Vec::new();
        Codec::new(version).put_header(&mut out, 0, xid);
        switch::write_hello(version, &mut out, versions);
        let length = out.len() as u16;
        out.set_u16(2, length);
        out
    }
}

/// Writes the length of the message that begins at `start`; if it is too long, removes it.
pub(crate) fn finish(out: &mut Vec<u8>, start: usize) -> Result<(), ()> {
    let Ok(length) = u16::try_from(out.len() - start) else {
        out.truncate(start);
        return Err(());
    };
    out.set_u16(start + 2, length);
    Ok(())
}
