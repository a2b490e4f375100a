//! NORMAL: the learning switch with VLANs.
//!
//! 1. the VLAN that the packet is in, from its tag and its port's mode; a tag that the port does not carry drops it
//! 2. reserved destinations are dropped
//! 3. the source address is learned, unless it is there already
//! 4. the destination address is looked up: known goes to its port, unknown is flooded
//! 5. per output port, the tags that its mode asks for

use super::Xlate;
use crate::changelog::word_table;
use crate::switch::Effect;
use crate::topology::{Bridge, Port, PriorityTags, VlanConfig, VlanMode};
use crate::trace::Sink;
use base::{DropReason, OfPort};
use flow::FieldId;

/// A tag: protocol id, VLAN and priority. VLAN 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Tag {
    tpid: u16,
    vid: u16,
    /// In place, the upper three bits.
    pcp: u16,
    /// It lies behind another and stays what it is, even without a VLAN.
    inner: bool,
}

/// The two tags of a packet, outer first.
type Tags = [Tag; 2];

/// Destinations that bridges do not forward (ovs-vswitchd.conf.db(5), `forward-bpdu`).
fn is_reserved(mac: u64) -> bool {
    matches!(mac, 0x0180_c200_0000..=0x0180_c200_000f)
        || matches!(mac, 0x00e0_2b00_0000 | 0x00e0_2b00_0004 | 0x00e0_2b00_0006)
        || matches!(mac, 0x0100_0c00_0000 | 0x0100_0ccd_cdcd)
        || matches!(mac, 0x0100_0ccc_ccc0..=0x0100_0ccc_cccf)
}

fn is_multicast(mac: u64) -> bool {
    mac >> 40 & 1 != 0
}

impl VlanConfig {
    fn trunks_vlan(&self, vid: u16) -> bool {
        self.trunks.as_ref().is_none_or(|t| t.contains(vid))
    }

    fn carries_cvlan(&self, vid: u16) -> bool {
        self.cvlans.as_ref().is_none_or(|t| t.contains(vid))
    }

    /// Whether a packet with this outer VLAN (0 for none) may come in.
    fn admits(&self, vid: u16) -> bool {
        match self.mode {
            VlanMode::Access => vid == 0,
            VlanMode::NativeUntagged | VlanMode::NativeTagged => vid == 0 || self.trunks_vlan(vid),
            VlanMode::Trunk => self.trunks_vlan(vid),
            VlanMode::Dot1qTunnel => self.carries_cvlan(vid),
        }
    }

    /// The tags inside the switch of a packet that came in with these.
    fn ingress(&self, tags: Tags) -> Tags {
        let mut inside = tags;
        match self.mode {
            VlanMode::Access => inside[0].vid = self.tag,
            VlanMode::Trunk => {}
            VlanMode::NativeUntagged | VlanMode::NativeTagged => {
                if tags[0].vid == 0 {
                    inside[0].vid = self.tag;
                }
            }
            VlanMode::Dot1qTunnel => {
                inside = [
                    Tag { tpid: self.qinq_tpid, vid: self.tag, pcp: 0, inner: false },
                    Tag { inner: tags[0].tpid != 0, ..tags[0] },
                ];
            }
        }
        inside
    }

    /// Whether a packet with these tags inside the switch leaves here.
    fn includes(&self, tags: Tags) -> bool {
        match self.mode {
            VlanMode::Access => tags[0].vid == self.tag && !tags[1].inner,
            VlanMode::Trunk => self.trunks_vlan(tags[0].vid),
            VlanMode::NativeUntagged | VlanMode::NativeTagged => {
                tags[0].vid == self.tag || self.trunks_vlan(tags[0].vid)
            }
            VlanMode::Dot1qTunnel => tags[0].vid == self.tag && self.carries_cvlan(tags[1].vid),
        }
    }

    /// The tags with which it leaves.
    fn egress(&self, tags: Tags) -> Tags {
        match self.mode {
            // Only the priority is left of the tag.
            VlanMode::Access => [Tag { vid: 0, ..tags[0] }, tags[1]],
            VlanMode::Trunk | VlanMode::NativeTagged => tags,
            VlanMode::NativeUntagged if tags[0].vid == self.tag => [Tag { vid: 0, ..tags[0] }, tags[1]],
            VlanMode::NativeUntagged => tags,
            VlanMode::Dot1qTunnel => [tags[1], Tag::default()],
        }
    }
}

impl<'a, S: Sink> Xlate<'a, S> {
    pub(super) fn normal(&mut self) {
        let bridge: &'a Bridge = self.bridge;
        let (src, dst) = (self.read(FieldId::EthSrc), self.read(FieldId::EthDst));
        let tags = self.tags();
        let in_port = self.in_port();
        self.visit_word(word_table::ports(bridge.idx.0), word_table::port(in_port.0));
        self.visit_word(word_table::ports(bridge.idx.0), word_table::SETTINGS);
        // A packet-out from no port is flooded or sent as it is, and nothing is learned.
        let from = match bridge.port(in_port) {
            Some(port) => Some(port),
            None if in_port.0 >= OfPort::MAX.0 => None,
            None => {
                self.drop_reason = DropReason::OutputPortGone;
                self.trace.detail(|| "received packet on unknown port, dropping".to_string());
                return;
            }
        };
        if let Some(port) = from
            && !port.spec.vlan.admits(tags[0].vid)
        {
            self.drop_reason = DropReason::VlanViolation;
            self.trace.detail(|| {
                format!("dropping VLAN {} packet received on port {}", tags[0].vid, port.spec.name)
            });
            return;
        }
        let tags = from.map_or(tags, |port| port.spec.vlan.ingress(tags));
        let vlan = tags[0].vid;
        if !bridge.config.forward_bpdu && is_reserved(dst) {
            self.drop_reason = DropReason::ReservedMulticast;
            self.trace.detail(|| "packet has reserved destination MAC, dropping".to_string());
            return;
        }
        if let Some(port) = from {
            self.learn(port, vlan, src);
        }
        self.forward(from, tags, dst);
    }

    /// The packet's tags. All bits of both decide, for they are taken off and put on.
    fn tags(&mut self) -> Tags {
        let mut tag = |tci, tpid| {
            let (tci, tpid) = (self.read(tci) as u16, self.read(tpid) as u16);
            let inner = false;
            if tci & 0x1000 == 0 {
                Tag::default()
            } else {
                Tag { tpid, vid: tci & 0xfff, pcp: tci & 0xe000, inner }
            }
        };
        let outer = tag(FieldId::VlanTci, FieldId::VlanTpid);
        if outer == Tag::default() {
            // Without an outer tag there is no inner one.
            return [outer, Tag::default()];
        }
        let inner = tag(FieldId::VlanTci2, FieldId::VlanTpid2);
        [outer, Tag { inner: inner.tpid != 0, ..inner }]
    }

    fn learn(&mut self, port: &'a Port, vlan: u16, mac: u64) {
        let bridge: &'a Bridge = self.bridge;
        if is_multicast(mac) || bridge.config.flood_vlans.contains(vlan) {
            return;
        }
        let word = word_table::mac(vlan, mac);
        self.visit_word(word_table::macs(bridge.idx.0), word);
        let known = bridge.state.macs.lookup(word, self.version, self.reader);
        match known {
            Some(entry) if entry.port == port.spec.port_no => self.out.credits.push(entry.slot),
            _ => {
                let port = port.spec.port_no;
                self.out.effects.push(Effect::Learn { bridge: bridge.idx, vlan, mac, port });
            }
        }
    }

    fn forward(&mut self, from: Option<&'a Port>, tags: Tags, dst: u64) {
        let bridge: &'a Bridge = self.bridge;
        let vlan = tags[0].vid;
        self.drop_reason = DropReason::NoOutput;
        if !is_multicast(dst) {
            let word = word_table::mac(vlan, dst);
            self.visit_word(word_table::macs(bridge.idx.0), word);
            let known = bridge.state.macs.lookup(word, self.version, self.reader);
            let port =
                known.and_then(|entry| self.topology.port(entry.port)).filter(|p| p.bridge == bridge.idx);
            if let Some(port) = port {
                self.trace.detail(|| "forwarding to learned port".to_string());
                // The learned port's configuration matters here, not only its being there.
                self.visit_word(word_table::ports(bridge.idx.0), word_table::port(port.spec.of_port.0));
                if from.is_some_and(|f| f.spec.port_no == port.spec.port_no) {
                    self.trace.detail(|| "learned port is input port, dropping".to_string());
                } else if from.is_some_and(|f| f.spec.protected) && port.spec.protected {
                    self.trace.detail(|| "learned port is protected, dropping".to_string());
                } else {
                    self.output_tagged(port, tags);
                }
                return;
            }
            self.trace.detail(|| "no learned MAC for destination, flooding".to_string());
        }
        self.visit_word(word_table::ports(bridge.idx.0), word_table::FLOOD);
        for port in bridge.ports() {
            let spec = &port.spec;
            let back = from.is_some_and(|f| f.spec.port_no == spec.port_no);
            let protected = from.is_some_and(|f| f.spec.protected) && spec.protected;
            if !back && !protected && !spec.config.no_flood && spec.vlan.includes(tags) {
                self.output_tagged(port, tags);
            }
        }
    }

    /// Sends with the tags that the port's mode asks for.
    fn output_tagged(&mut self, port: &'a Port, tags: Tags) {
        let config = &port.spec.vlan;
        let out = config.egress(tags);
        let tci = |t: Tag, outer: bool| {
            let priority = outer
                && match config.priority_tags {
                    PriorityTags::Never => false,
                    PriorityTags::IfNonzero => t.pcp != 0,
                    PriorityTags::Always => true,
                };
            if t.vid != 0 || t.inner || priority { 0x1000 | t.pcp | t.vid } else { 0 }
        };
        let (mut outer, mut inner) = ((out[0], tci(out[0], true)), (out[1], tci(out[1], false)));
        let mut third = None;
        if outer.1 == 0 {
            // Where the outer tag goes, the inner one becomes the outer, and one that was pushed down comes up.
            third = if inner.1 != 0 { self.below.pop() } else { None };
            let up = third.map_or((Tag::default(), 0), |(tpid, tci)| (Tag { tpid, ..Tag::default() }, tci));
            (outer, inner) = (inner, up);
        }
        let fields = [FieldId::VlanTci, FieldId::VlanTpid, FieldId::VlanTci2, FieldId::VlanTpid2];
        let tpid = |(tag, tci): (Tag, u16)| match (tci, tag.tpid) {
            (0, _) => 0,
            (_, 0) => 0x8100,
            (_, tpid) => tpid,
        };
        let wanted = [outer.1, tpid(outer), inner.1, tpid(inner)];
        let same = fields.iter().zip(wanted).all(|(f, v)| self.key.get64(*f) == u64::from(v));
        if same {
            self.output_to(port);
            self.below.extend(third);
            return;
        }
        let before: Vec<_> = [2, 5].map(|w| (self.key.word(0, w), self.written.0.word(0, w))).to_vec();
        let moved = self.vlan_moved;
        self.vlan_moved = true;
        for (f, v) in fields.into_iter().zip(wanted) {
            // An inner tag that was never looked at stays the packet's own.
            if self.key.get64(f) != u64::from(v) || matches!(f, FieldId::VlanTci | FieldId::VlanTpid) {
                self.write_field(f, u128::from(v));
            }
        }
        self.output_to(port);
        self.below.extend(third);
        for (w, before) in [2, 5].into_iter().zip(before) {
            let bits = if w == 2 { 0xffff } else { 0xffff_ffff_ffff_0000 };
            let value = self.key.word(0, w) & !bits | before.0 & bits;
            let written = self.written.0.word(0, w) & !bits | before.1 & bits;
            self.key.set_word(0, w, value);
            self.written.0.set_word(0, w, written);
        }
        self.noted = None;
        self.vlan_moved = moved || self.base_known.get(FieldId::VlanTci) != 0;
    }
}
