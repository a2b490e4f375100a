//! NORMAL in the model: which VLAN a packet is in, where it is flooded, and with which tags it leaves.

use super::*;

impl Run<'_> {
    pub(super) fn normal(&mut self, at: &mut Place) {
        let bridge = self.model.bridges[at.bridge].clone();
        let Some(from) = bridge.ports.get(&at.in_port) else { return };
        let (src, dst) = (at.packet.key.get64(FieldId::EthSrc), at.packet.key.get64(FieldId::EthDst));
        let vid = at.packet.tags.first().map_or(0, |t| t.1 & 0xfff);
        let c = &from.vlan;
        let admitted = match c.mode {
            VlanMode::Access => vid == 0,
            VlanMode::Trunk => within(&c.trunks, vid),
            VlanMode::NativeTagged | VlanMode::NativeUntagged => vid == 0 || carries(from, &[vid]),
            VlanMode::Dot1qTunnel => within(&c.cvlans, vid),
        };
        if !admitted || !bridge.forward_bpdu && dst >> 4 == 0x0180_c200_0000 >> 4 {
            return;
        }
        // The tags inside: those looked at, as VLANs with a priority, and behind them payload.
        let looked_at = at.packet.tags.len().min(bridge.vlan_limit);
        let (looked, payload) = at.packet.tags.split_at(looked_at);
        let shown_priority = looked.first().map_or(0, |t| t.1 & 0xe000);
        let mut inside = looked.to_vec();
        let mut payload = payload.to_vec();
        let native = matches!(c.mode, VlanMode::NativeTagged | VlanMode::NativeUntagged);
        if c.mode == VlanMode::Access || native && vid == 0 {
            let (tpid, tci) = inside.first().copied().unwrap_or((0x8100, 0));
            inside.splice(..inside.len().min(1), [(tpid, 0x1000 | tci & 0xe000 | c.tag)]);
        }
        if c.mode == VlanMode::Dot1qTunnel {
            inside.insert(0, (c.qinq_tpid, 0x1000 | c.tag));
            if inside.len() > 2 {
                payload.insert(0, inside.pop().unwrap());
            }
        }
        let vids: Vec<u16> = inside.iter().map(|t| t.1 & 0xfff).collect();
        let vlan = vids.first().copied().unwrap_or(0);
        let multicast = |mac: u64| mac >> 40 & 1 == 1;
        let learns = !multicast(src) && !bridge.flood_vlans.contains(&vlan);
        if learns && bridge.macs.get(&(vlan, src)) != Some(&from.port_no) {
            let bridge = switch::BridgeIdx(at.bridge as u32);
            self.fate.learned.push(Effect::Learn { bridge, vlan, mac: src, port: from.port_no });
        }
        if learns && src == dst {
            return;
        }
        let known = bridge.macs.get(&(vlan, dst)).filter(|_| !multicast(dst));
        let known = known.and_then(|p| bridge.ports.values().find(|x| x.port_no == *p));
        let to: Vec<&PortSpec> = match known {
            Some(port) => vec![port],
            None => bridge.ports.values().filter(|p| !p.config.no_flood && carries(p, &vids)).collect(),
        };
        for port in to {
            if port.port_no == from.port_no || port.protected && from.protected {
                continue;
            }
            let mut out = leaving(port, &inside, shown_priority);
            out.extend(&payload);
            let before = std::mem::replace(&mut at.packet.tags, out);
            at.packet.show_tags();
            self.send(at, port.of_port);
            at.packet.tags = before;
            at.packet.show_tags();
        }
    }
}

fn within(vlans: &Option<switch::VlanSet>, vid: u16) -> bool {
    vlans.as_ref().is_none_or(|set| set.contains(vid))
}

/// Whether a port carries packets with these VLANs, the outer one first.
fn carries(port: &PortSpec, vids: &[u16]) -> bool {
    let c = &port.vlan;
    let (outer, inner) = (vids.first().copied().unwrap_or(0), vids.get(1).copied().unwrap_or(0));
    match c.mode {
        VlanMode::Access => outer == c.tag && inner == 0,
        VlanMode::Trunk => within(&c.trunks, outer),
        VlanMode::NativeTagged | VlanMode::NativeUntagged if c.tag == 0 => within(&c.trunks, outer),
        VlanMode::NativeTagged | VlanMode::NativeUntagged => {
            outer == c.tag || outer != 0 && within(&c.trunks, outer)
        }
        VlanMode::Dot1qTunnel => outer == c.tag && within(&c.cvlans, inner),
    }
}

/// The tags, of those inside, with which a packet leaves a port.
fn leaving(port: &PortSpec, inside: &[(u16, u16)], shown_priority: u16) -> Vec<(u16, u16)> {
    let c = &port.vlan;
    let shows = c.priority_tags != PriorityTags::Never;
    let outer = inside.first().map_or(0, |t| t.1 & 0xfff);
    // What lies behind the outer tag stays as it is.
    let behind = inside.get(1..).unwrap_or(&[]).to_vec();
    let bare = |pcp: u16| if pcp != 0 { vec![(0x8100, 0x1000 | pcp)] } else { vec![] };
    let mut out = match c.mode {
        VlanMode::Access => {
            let mut out = if shows { bare(shown_priority) } else { vec![] };
            out.extend(behind);
            return out;
        }
        VlanMode::NativeUntagged if outer == c.tag => behind,
        VlanMode::Dot1qTunnel => behind,
        _ => {
            let mut out = inside.to_vec();
            if let Some(first) = out.first_mut() {
                let pcp = if shows { shown_priority } else { first.1 & 0xe000 };
                first.1 = 0x1000 | pcp | outer;
                if outer == 0 && pcp == 0 && c.priority_tags != PriorityTags::Always {
                    out.remove(0);
                }
            } else if shows {
                out = bare(shown_priority);
            }
            return out;
        }
    };
    if shows {
        match out.first_mut() {
            Some(first) => first.1 = first.1 & !0xe000 | shown_priority,
            None => out = bare(shown_priority),
        }
    }
    out
}
