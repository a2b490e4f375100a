//! NORMAL: the learning switch with VLANs.
//!
//! 1. determine the packet's VLAN from its tag and its port's mode; drop it if the port does not carry the
//!    tag
//! 2. drop reserved destinations
//! 3. learn the source address, unless it is known already
//! 4. look up the destination address: send to its port if known, flood if unknown
//! 5. for each output port, apply the tags that its mode requires
//!
//! The bridge's `vlan_limit` says how many tags are examined. Further ones are payload: they are carried
//! along, and move up or down when a tag in front of them is removed or added. A customer's tag after another
//! is kept even if it has only a priority and no VLAN, and one that a tunnel's tag pushes out of reach is not
//! lost.

use super::Xlate;
use crate::changelog::word_table;
use crate::effect::Effect;
use crate::topology::{Bridge, Port, PriorityTags, VlanConfig, VlanMode};
use crate::trace::Sink;
use base::{DropReason, OfPort};
use flow::FieldId;
use wire::EthAddr;

/// A tag: TPID, VLAN and priority. VLAN 0 means none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Tag {
    tpid: u16,
    vid: u16,
    /// In its wire position, the upper three bits.
    pcp: u16,
    /// It follows another tag and is kept unchanged, even without a VLAN.
    inner: bool,
}

/// The two tags of a packet that are examined, outer first.
type Tags = [Tag; 2];

/// A packet's tags inside the switch.
#[derive(Clone, Copy)]
struct Inside {
    tags: Tags,
    /// The priority with which it arrived, in its wire position.
    pcp: u16,
    /// How many of the packet's own tags were examined.
    had: usize,
    /// The last of them, if a tunnel's tag has pushed it out of `tags`.
    pushed_out: Option<Tag>,
}

/// Destinations that bridges do not forward (ovs-vswitchd.conf.db(5), `forward-bpdu`).
fn is_reserved(mac: u64) -> bool {
    matches!(mac, 0x0180_c200_0000..=0x0180_c200_000f)
        || matches!(mac, 0x00e0_2b00_0000 | 0x00e0_2b00_0004 | 0x00e0_2b00_0006)
        || matches!(mac, 0x0100_0c00_0000 | 0x0100_0ccd_cdcd)
        || matches!(mac, 0x0100_0ccc_ccc0..=0x0100_0ccc_ccc7 | 0x0100_0ccc_cccc | 0x0100_0ccc_cccd)
}

fn is_multicast(mac: u64) -> bool {
    mac >> 40 & 1 != 0
}

impl VlanConfig {
    fn trunks_vlan(&self, vid: u16) -> bool {
        self.trunks.as_ref().is_none_or(|t| t.contains(vid))
    }

    /// A port always carries its native VLAN, but then not VLAN 0. (Without a native VLAN it is a trunk.)
    fn carries_native(&self, vid: u16) -> bool {
        if self.tag == 0 {
            self.trunks_vlan(vid)
        } else {
            vid == self.tag || vid != 0 && self.trunks_vlan(vid)
        }
    }

    fn carries_cvlan(&self, vid: u16) -> bool {
        self.cvlans.as_ref().is_none_or(|t| t.contains(vid))
    }

    /// Whether a packet with this outer VLAN (0 for none) may come in.
    fn admits(&self, vid: u16) -> bool {
        match self.mode {
            VlanMode::Access => vid == 0,
            VlanMode::NativeUntagged | VlanMode::NativeTagged => vid == 0 || self.carries_native(vid),
            VlanMode::Trunk => self.trunks_vlan(vid),
            VlanMode::Dot1qTunnel => self.carries_cvlan(vid),
        }
    }

    /// Why a packet with this outer VLAN may not come in, in Open vSwitch's words.
    fn refusal(&self, vid: u16, name: &str) -> String {
        match self.mode {
            VlanMode::Access => format!(
                "dropping VLAN {vid} tagged packet received on port {name} configured as VLAN {} access port",
                self.tag
            ),
            VlanMode::NativeUntagged | VlanMode::NativeTagged | VlanMode::Trunk => format!(
                "dropping VLAN {vid} packet received on port {name} not configured for trunking VLAN {vid}"
            ),
            VlanMode::Dot1qTunnel => format!(
                "dropping VLAN {vid} packet received on dot1q-tunnel port {name} that excludes this VLAN"
            ),
        }
    }

    /// The tags inside the switch for a packet that came in with these.
    fn ingress(&self, tags: Tags) -> Tags {
        let mut inside = tags;
        match self.mode {
            VlanMode::Trunk => {}
            VlanMode::NativeUntagged | VlanMode::NativeTagged if tags[0].vid != 0 => {}
            VlanMode::Access | VlanMode::NativeUntagged | VlanMode::NativeTagged => {
                let tpid = if tags[0].tpid == 0 { 0x8100 } else { tags[0].tpid };
                inside[0] = Tag { tpid, vid: self.tag, ..tags[0] };
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

    /// Whether a packet with these tags inside the switch leaves through this port.
    fn includes(&self, tags: Tags) -> bool {
        match self.mode {
            VlanMode::Access => tags[0].vid == self.tag && tags[1].vid == 0,
            VlanMode::Trunk => self.trunks_vlan(tags[0].vid),
            VlanMode::NativeUntagged | VlanMode::NativeTagged => self.carries_native(tags[0].vid),
            VlanMode::Dot1qTunnel => tags[0].vid == self.tag && self.carries_cvlan(tags[1].vid),
        }
    }

    /// The tags with which it leaves.
    fn egress(&self, tags: Tags) -> Tags {
        match self.mode {
            VlanMode::Access => [Tag::default(), tags[1]],
            VlanMode::Trunk | VlanMode::NativeTagged => tags,
            VlanMode::NativeUntagged if tags[0].vid == self.tag => [tags[1], Tag::default()],
            VlanMode::NativeUntagged => tags,
            VlanMode::Dot1qTunnel => [tags[1], Tag::default()],
        }
    }
}

impl VlanConfig {
    /// A tag as it leaves, TPID first; `None` if there is none.
    fn tag_on_wire(&self, tag: Tag, outer: bool) -> Option<(u16, u16)> {
        // If a port does not set the priority, the packet's original one is kept; a tag without one is
        // retained, not added.
        let retained = tag.tpid != 0 && self.priority_tags == PriorityTags::Always;
        let priority = outer && (tag.pcp != 0 || retained);
        let tpid = if tag.tpid == 0 { 0x8100 } else { tag.tpid };
        (tag.vid != 0 || tag.inner || priority).then_some((tpid, 0x1000 | tag.pcp | tag.vid))
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
        // A packet-out without an input port is flooded or sent as it is, and nothing is learned.
        let from = match bridge.port(in_port) {
            Some(port) => Some(port),
            None if in_port.0 >= OfPort::MAX.0 => None,
            None => {
                self.drop_reason = DropReason::OutputPortGone;
                self.trace.error(|| format!("received packet on unknown port {}", in_port.0));
                self.trace.warn(|| "no input bundle, dropping".to_string());
                return;
            }
        };
        if let Some(port) = from
            && !port.spec.vlan.admits(tags[0].vid)
        {
            self.drop_reason = DropReason::VlanViolation;
            self.trace.error(|| port.spec.vlan.refusal(tags[0].vid, &port.spec.name));
            self.trace.warn(|| "disallowed VLAN VID for this input port, dropping".to_string());
            return;
        }
        let had = tags.iter().filter(|t| t.tpid != 0).count();
        let tunnel = from.is_some_and(|port| port.spec.vlan.mode == VlanMode::Dot1qTunnel);
        let pushed_out = (tunnel && had == 2).then_some(tags[1]);
        let pcp = tags[0].pcp;
        let tags = from.map_or(tags, |port| port.spec.vlan.ingress(tags));
        let inside = Inside { tags, pcp, had, pushed_out };
        let vlan = tags[0].vid;
        if !bridge.config.forward_bpdu && is_reserved(dst) {
            self.drop_reason = DropReason::ReservedMulticast;
            self.trace.detail(|| "packet has reserved destination MAC, dropping".to_string());
            return;
        }
        let learned = from.is_some_and(|port| self.learn(port, vlan, src));
        if learned && src == dst && S::LEARNS {
            // The address has just been learned here; other packets of the flow will find it in the table.
            self.drop_reason = DropReason::NoOutput;
            self.trace.detail(|| "learned port is input port, dropping".to_string());
            return;
        }
        self.forward(from, &inside, dst);
    }

    /// The packet's tags, as many as are examined. All their bits go into the mask, since they are removed
    /// and added.
    fn tags(&mut self) -> Tags {
        let limit = self.bridge.config.vlan_limit;
        let mut tag = |tci: FieldId, tpid: FieldId| {
            let (tci, tpid) = (self.read(tci) as u16, self.read(tpid) as u16);
            let inner = false;
            if tci & 0x1000 == 0 {
                Tag::default()
            } else {
                Tag { tpid, vid: tci & 0xfff, pcp: tci & 0xe000, inner }
            }
        };
        let outer = tag(FieldId::VlanTci, FieldId::VlanTpid);
        // Without an outer tag there is no inner one.
        if outer == Tag::default() || limit < 2 {
            return [outer, Tag::default()];
        }
        let inner = tag(FieldId::VlanTci2, FieldId::VlanTpid2);
        [outer, Tag { inner: inner.tpid != 0, ..inner }]
    }

    /// Whether the address is known to be at the port.
    fn learn(&mut self, port: &'a Port, vlan: u16, mac: u64) -> bool {
        let bridge: &'a Bridge = self.bridge;
        // A packet without an Ethernet header has no address.
        if !self.is_ethernet() || is_multicast(mac) || bridge.config.flood_vlans.contains(vlan) {
            return false;
        }
        let word = word_table::mac(vlan, mac);
        self.visit_word(word_table::macs(bridge.idx.0), word);
        let known = bridge.state.macs.lookup(word, self.version, self.reader);
        match known {
            Some(entry) if entry.port == port.spec.port_no => self.out.credits.push(entry.slot),
            _ => {
                let name = &port.spec.name;
                let learn = Effect::Learn { bridge: bridge.idx, vlan, mac, port: port.spec.port_no };
                if !S::LEARNS && self.trace.may_learn() && !self.out.effects.contains(&learn) {
                    let mac = EthAddr::from_u64(mac);
                    self.trace.detail(|| format!("learned that {mac} is on port {name} in VLAN {vlan}"));
                }
                self.out.effects.push(learn);
            }
        }
        true
    }

    fn forward(&mut self, from: Option<&'a Port>, inside: &Inside, dst: u64) {
        let bridge: &'a Bridge = self.bridge;
        let vlan = inside.tags[0].vid;
        self.drop_reason = DropReason::NoOutput;
        if !is_multicast(dst) {
            let word = word_table::mac(vlan, dst);
            self.visit_word(word_table::macs(bridge.idx.0), word);
            let known = bridge.state.macs.lookup(word, self.version, self.reader);
            let port =
                known.and_then(|entry| self.topology.port(entry.port)).filter(|p| p.bridge == bridge.idx);
            if let Some(port) = port {
                self.trace.detail(|| "forwarding to learned port".to_string());
                // The learned port's configuration matters here, not only that it exists.
                self.visit_word(word_table::ports(bridge.idx.0), word_table::port(port.spec.of_port.0));
                if from.is_some_and(|f| f.spec.port_no == port.spec.port_no) {
                    self.trace.detail(|| "learned port is input port, dropping".to_string());
                } else {
                    self.output_tagged(port, inside);
                }
                return;
            }
        }
        self.trace.detail(|| "no learned MAC for destination, flooding".to_string());
        self.visit_word(word_table::ports(bridge.idx.0), word_table::FLOOD);
        // The bridge's own port comes first, as in Open vSwitch, whose tests know the order.
        let is_own = |port: &&Port| port.spec.of_port == OfPort::LOCAL;
        let others = bridge.ports().filter(|port| !is_own(port));
        for port in bridge.ports().filter(is_own).chain(others) {
            let spec = &port.spec;
            let back = from.is_some_and(|f| f.spec.port_no == spec.port_no);
            if !back && !spec.config.no_flood && spec.vlan.includes(inside.tags) {
                self.output_tagged(port, inside);
            }
        }
    }

    /// Sends with the tags that the port's mode requires.
    fn output_tagged(&mut self, port: &'a Port, inside: &Inside) {
        let mut wanted = [(0, 0); 3];
        let mut count = 0;
        let mut want = |tag: (u16, u16)| {
            wanted[count] = tag;
            count += 1;
        };
        let config = &port.spec.vlan;
        let mut out = config.egress(inside.tags);
        if config.priority_tags != PriorityTags::Never {
            // If priorities are shown, it is the packet's original one, also on a tunnel's tag.
            out[0].pcp = inside.pcp;
        }
        out.into_iter().enumerate().filter_map(|(i, t)| config.tag_on_wire(t, i == 0)).for_each(&mut want);
        // Unchanged, since it was not examined.
        inside.pushed_out.into_iter().for_each(|t| want((t.tpid, 0x1000 | t.pcp | t.vid)));

        const FIELDS: [FieldId; 4] =
            [FieldId::VlanTci, FieldId::VlanTpid, FieldId::VlanTci2, FieldId::VlanTpid2];
        let depth_below = self.below.len();
        let mut came_up = None;
        let [first, second, third] = wanted;
        let now = |x: &Self| FIELDS.map(|f| x.key.get64(f) as u16);
        let pair = |outer: (u16, u16), inner: (u16, u16)| [outer.1, outer.0, inner.1, inner.0];
        let values = match (count, inside.had) {
            (0, 0) => now(self),
            (1, 1) | (1, 0) => pair(first, (now(self)[3], now(self)[2])),
            (2, 2) => pair(first, second),
            // One tag less: the ones behind move up.
            (0, 1) => {
                let inner = (self.read(FieldId::VlanTpid2) as u16, self.read(FieldId::VlanTci2) as u16);
                came_up = if inner.1 != 0 { self.below.pop() } else { None };
                pair(inner, came_up.unwrap_or_default())
            }
            (1, 2) => {
                came_up = self.below.pop();
                pair(first, came_up.unwrap_or_default())
            }
            // One tag more: the ones behind move down.
            (2, 1) => {
                let inner = (self.read(FieldId::VlanTpid2) as u16, self.read(FieldId::VlanTci2) as u16);
                if inner.1 != 0 {
                    self.below.push(inner);
                }
                pair(first, second)
            }
            (3, 2) => {
                self.below.push(third);
                pair(first, second)
            }
            (count, had) => {
                debug_assert!(false, "a port makes {count} tags of {had}");
                now(self)
            }
        };
        if count == inside.had && now(self) == values {
            self.output_to(port);
        } else {
            self.output_with(port, FIELDS, values);
        }
        self.below.truncate(depth_below);
        self.below.extend(came_up);
    }

    /// Sends with these tags in the key, which is restored afterwards.
    fn output_with(&mut self, port: &'a Port, fields: [FieldId; 4], values: [u16; 4]) {
        const WORDS: [(usize, u64); 2] = [(2, 0xffff), (5, 0xffff_ffff_ffff_0000)];
        let before = WORDS.map(|(w, _)| (self.key.word(0, w), self.written.0.word(0, w)));
        let moved = self.vlan_moved;
        self.vlan_moved = true;
        for (f, v) in fields.into_iter().zip(values) {
            // An inner tag that was not examined remains the packet's own.
            if self.key.get64(f) != u64::from(v) || matches!(f, FieldId::VlanTci | FieldId::VlanTpid) {
                self.write_field(f, u128::from(v));
            }
        }
        self.output_to(port);
        for ((w, bits), (key, written)) in WORDS.into_iter().zip(before) {
            let value = self.key.word(0, w) & !bits | key & bits;
            let written = self.written.0.word(0, w) & !bits | written & bits;
            self.key.set_word(0, w, value);
            self.written.0.set_word(0, w, written);
        }
        self.noted = None;
        self.vlan_moved = moved || self.base_known.get(FieldId::VlanTci) != 0;
    }
}
