//! The datapath's actions.

use super::words::{PortNames, decimal, hex, ipv4, ipv6, mac, port};
use ::flow::{FieldId, Key};
use datapath::DpAction;
use datapath::conntrack::nat::Side;
use datapath::conntrack::{Nat, Request};
use datapath::hash::HashAlgorithm;
use wire::nsh::NshHeader;

/// What determines the names of header fields: the protocols of the flow that the actions belong to.
#[derive(Clone, Copy, Default, Debug)]
pub struct ActionContext {
    /// Ethernet type.
    pub eth_type: u16,
    /// IP protocol.
    pub nw_proto: u8,
    /// TPID and TCI of the outer and the inner VLAN tag; zeros if there is none.
    pub tags: [(u16, u16); 2],
    /// The actions have no effect, not even packet-ins: a trace without a packet.
    pub only_looks: bool,
}

impl ActionContext {
    /// From a flow's key.
    pub fn of(key: &Key) -> ActionContext {
        let tag = |tpid, tci| (key.get64(tpid) as u16, key.get64(tci) as u16);
        ActionContext {
            eth_type: key.get64(FieldId::EthType) as u16,
            nw_proto: key.get64(FieldId::NwProto) as u8,
            tags: [tag(FieldId::VlanTpid, FieldId::VlanTci), tag(FieldId::VlanTpid2, FieldId::VlanTci2)],
            only_looks: false,
        }
    }

    /// A frame of that type without any known header.
    fn unknown(self, eth_type: u16) -> ActionContext {
        ActionContext { eth_type, nw_proto: 0, tags: Default::default(), ..self }
    }

    /// The headers behind an action.
    fn follow(&mut self, action: &DpAction) {
        let [outer, inner] = self.tags;
        match action {
            DpAction::PushNsh(_) => *self = self.unknown(0x894f),
            DpAction::AddMpls { eth_type, .. } => *self = self.unknown(*eth_type),
            DpAction::PushEth { .. } => self.tags = Default::default(),
            DpAction::PushVlan { tpid, tci } => self.tags = [(*tpid, tci | 0x1000), outer],
            DpAction::PopVlan => self.tags = [inner, (0, 0)],
            DpAction::Set { field: FieldId::VlanTci, value, mask } => {
                self.tags[0].1 = outer.1 & !*mask as u16 | (value & mask) as u16;
            }
            _ => {}
        }
    }
}

/// Shows a list of actions; an empty one is `drop`.
pub fn actions(list: &[DpAction], mut context: ActionContext, names: PortNames<'_>) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = list;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        context.follow(first);
        if let DpAction::Set { field: FieldId::VlanTci, .. } = first {
            // Open vSwitch has no such action: it takes the tag off and puts another on.
            let (tpid, tci) = context.tags[0];
            parts.push(format!("pop_vlan,{}", push_vlan(tpid, tci)));
        } else if let DpAction::Set { field, .. } = first {
            // Neighbouring changes of one header are one action.
            let header = header(*field, context);
            let same = |a: &&DpAction| matches!(a, DpAction::Set { field, .. } if self::header(*field, context) == header);
            let more = tail.iter().take_while(same).count();
            let members = std::iter::once(first).chain(&tail[..more]).filter_map(|a| member(a, context));
            let members: Vec<_> = members.collect();
            parts.push(format!("set({header}({}))", members.join(",")));
            rest = &tail[more..];
        } else {
            parts.push(one(first, context, names));
        }
    }
    if parts.is_empty() { "drop".into() } else { parts.join(",") }
}

fn one(action: &DpAction, context: ActionContext, names: PortNames<'_>) -> String {
    match action {
        DpAction::Output(to) => port(*to, names),
        DpAction::OutputTrunc { port: to, max_bytes } => format!("trunc({max_bytes}),{}", port(*to, names)),
        DpAction::Set { .. } => unreachable!("shown together with its neighbours"),
        DpAction::PushVlan { tpid, tci } => push_vlan(*tpid, *tci),
        DpAction::PopVlan => "pop_vlan".into(),
        DpAction::PushMpls { eth_type, lse } => format!("push_mpls({})", label(*lse, *eth_type)),
        DpAction::PopMpls { eth_type } => format!("pop_mpls(eth_type={eth_type:#x})"),
        DpAction::AddMpls { eth_type, lse } => format!("add_mpls({})", label(*lse, *eth_type)),
        DpAction::PushEth { src, dst, .. } => {
            format!("push_eth(src={},dst={})", mac((*src).into()), mac((*dst).into()))
        }
        DpAction::PopEth { .. } => "pop_eth".into(),
        DpAction::PushNsh(header) => push_nsh(header),
        DpAction::PopNsh { .. } => "pop_nsh()".into(),
        DpAction::Meter(meter) => format!("meter({})", meter.number),
        DpAction::Hash(hash) => {
            let name = match hash.algorithm {
                HashAlgorithm::L4 => "l4",
                HashAlgorithm::SymmetricL4 => "sym_l4",
            };
            format!("hash({name}({}))", hash.basis)
        }
        DpAction::Recirc(id) => format!("recirc({})", hex(u128::from(*id))),
        DpAction::Ct(request) => ct(request),
        DpAction::CtClear => "ct_clear".into(),
        DpAction::Sample { probability, actions: inner } => format!(
            "sample(sample={:.1}%,actions({}))",
            f64::from(*probability) * 100.0 / f64::from(u32::MAX),
            actions(inner, context, names)
        ),
        DpAction::Clone(inner) => format!("clone({})", actions(inner, context, names)),
        DpAction::CheckPktLen { length, greater, others } => format!(
            "check_pkt_len(size={length},gt({}),le({}))",
            actions(greater, context, names),
            actions(others, context, names)
        ),
        DpAction::PacketIn(spec) => format!(
            "userspace(pid=0,controller(reason={},dont_send={},continuation={},recirc_id={},rule_cookie={},\
             controller_id={},max_len={}))",
            spec.reason as u8,
            u8::from(context.only_looks),
            u8::from(spec.continuation.is_some()),
            spec.state_id,
            hex(u128::from(spec.cookie)),
            spec.controller_id,
            spec.max_len
        ),
        DpAction::Drop(_) => "drop".into(),
    }
}

/// A label stack entry that is pushed.
fn label(lse: u32, eth_type: u16) -> String {
    let (label, tc, ttl, bos) = (lse >> 12, lse >> 9 & 7, lse & 0xff, lse >> 8 & 1);
    format!("label={label},tc={tc},ttl={ttl},bos={bos},eth_type={eth_type:#x}")
}

/// `push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x1234,si=255,c1=0x0,...)`.
fn push_nsh(header: &[u8]) -> String {
    let Ok(nsh) = NshHeader::new(header) else { return "push_nsh(<error>)".into() };
    let context = match nsh.context() {
        Some(context) => {
            let words = context.iter().zip(1..);
            words.map(|(word, n)| format!(",c{n}={word:#x}")).collect()
        }
        None => {
            // As a number, without leading zeros.
            let digits: String = nsh.context_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            let digits = digits.trim_start_matches('0');
            format!(",md2=0x{}", if digits.is_empty() { "0" } else { digits })
        }
    };
    format!(
        "push_nsh(flags={},ttl={},mdtype={},np={},spi={:#x},si={}{context})",
        nsh.ver_ttl_len() >> 12 & 3,
        nsh.ttl(),
        nsh.md_type(),
        nsh.next_protocol(),
        nsh.path_id(),
        nsh.service_index(),
    )
}

fn ct(request: &Request) -> String {
    let mut parts = Vec::new();
    match (request.commit, request.force) {
        (_, true) => parts.push("force_commit".to_string()),
        (true, false) => parts.push("commit".into()),
        (false, false) => {}
    }
    if request.zone != 0 {
        parts.push(format!("zone={}", request.zone));
    }
    parts.extend(request.mark.map(|(value, mask)| format!("mark={}/{mask:#x}", hex(value.into()))));
    parts.extend(request.label.map(|(value, mask)| {
        let ones = if mask == u128::MAX { String::new() } else { format!("/{mask:#x}") };
        format!("label={value:#x}{ones}")
    }));
    parts.extend(request.helper.map(|helper| format!("helper={}", helper.name())));
    parts.extend(request.nat.map(nat));
    if parts.is_empty() { "ct".into() } else { format!("ct({})", parts.join(",")) }
}

fn nat(nat: Nat) -> String {
    let Nat::New(range) = nat else { return "nat".into() };
    let mut text = format!("nat({}", if range.side == Side::Src { "src" } else { "dst" });
    if let Some((low, high)) = range.addresses {
        let address = |address: u128| match (range.is_ipv6, range.ports) {
            (false, _) => ipv4(address),
            (true, Some(_)) => format!("[{}]", ipv6(address)),
            (true, None) => ipv6(address),
        };
        text += &format!("={}", address(low));
        if high != low {
            text += &format!("-{}", address(high));
        }
        if let Some((low, high)) = range.ports {
            text += &format!(":{low}");
            if high != low {
                text += &format!("-{high}");
            }
        }
    }
    for (is_set, name) in
        [(range.is_persistent, ",persistent"), (range.is_hash, ",hash"), (range.is_random, ",random")]
    {
        if is_set {
            text += name;
        }
    }
    text + ")"
}

fn push_vlan(tpid: u16, tci: u16) -> String {
    let tpid = if matches!(tpid, 0 | 0x8100) { String::new() } else { format!("tpid={tpid:#06x},") };
    format!("push_vlan({tpid}vid={},pcp={})", tci & 0xfff, tci >> 13)
}

/// The attribute that a field is part of.
fn header(field: FieldId, context: ActionContext) -> &'static str {
    use FieldId::*;
    match field {
        EthSrc | EthDst => "eth",
        NwSrc | NwDst | NwProto | ArpSha | ArpTha if matches!(context.eth_type, 0x0806 | 0x8035) => "arp",
        NwSrc | NwDst => "ipv4",
        Ipv6Src | Ipv6Dst | Ipv6Label => "ipv6",
        NwTos | NwTtl if context.eth_type == 0x86dd => "ipv6",
        NwTos | NwTtl => "ipv4",
        TpSrc | TpDst => match context.nw_proto {
            6 => "tcp",
            132 => "sctp",
            1 => "icmp",
            58 => "icmpv6",
            _ => "udp",
        },
        ArpSha | ArpTha | NdTarget => "nd",
        Mpls0 => "mpls",
        NshFlags | NshTtl | NshSpi | NshSi | NshC1 | NshC2 | NshC3 | NshC4 => "nsh",
        PktMark => "skb_mark",
        SkbPriority => "skb_priority",
        TunId | TunDst | TunSrc | TunTos | TunTtl => "tunnel",
        other => other.name(),
    }
}

/// `dst=10.0.0.1`, or with a mask behind.
fn member(action: &DpAction, context: ActionContext) -> Option<String> {
    let DpAction::Set { field, value, mask } = action else { return None };
    use FieldId::*;
    let is_icmp = matches!(context.nw_proto, 1 | 58);
    let is_arp = header(*field, context) == "arp";
    let is_ipv6 = context.eth_type == 0x86dd;
    let (name, show): (&str, fn(u128) -> String) = match field {
        EthSrc => ("src", mac),
        EthDst => ("dst", mac),
        NwSrc => (if is_arp { "sip" } else { "src" }, ipv4),
        NwDst => (if is_arp { "tip" } else { "dst" }, ipv4),
        NwProto => ("op", decimal),
        Ipv6Src => ("src", ipv6),
        Ipv6Dst => ("dst", ipv6),
        Ipv6Label => ("label", hex),
        NwTos => (if is_ipv6 { "tclass" } else { "tos" }, hex),
        NwTtl => (if is_ipv6 { "hlimit" } else { "ttl" }, decimal),
        TpSrc => (if is_icmp { "type" } else { "src" }, decimal),
        TpDst => (if is_icmp { "code" } else { "dst" }, decimal),
        ArpSha => (if is_arp { "sha" } else { "sll" }, mac),
        ArpTha => (if is_arp { "tha" } else { "tll" }, mac),
        NdTarget => ("target", ipv6),
        NshFlags => ("flags", decimal),
        NshTtl => ("ttl", decimal),
        NshSpi => ("spi", hex),
        NshSi => ("si", decimal),
        NshC1 => ("c1", hex),
        NshC2 => ("c2", hex),
        NshC3 => ("c3", hex),
        NshC4 => ("c4", hex),
        Mpls0 => {
            // Parts that are not changed are not shown.
            let parts = [("label", 12, 0xf_ffff), ("tc", 9, 7), ("ttl", 0, 0xff), ("bos", 8, 1)];
            let set = parts.iter().filter(|(_, shift, ones)| mask >> shift & ones != 0);
            let shown = set.map(|(name, shift, ones)| {
                let (value, mask) = (value >> shift & ones, mask >> shift & ones);
                format!("{name}={}", masked(decimal(value), mask, *ones, hex))
            });
            return Some(shown.collect::<Vec<_>>().join(","));
        }
        PktMark | SkbPriority => return Some(masked(hex(*value), *mask, field.ones(), hex)),
        _ => (field.name(), hex),
    };
    let show_mask: fn(u128) -> String = if show(0) == "0" { hex } else { show };
    // A label has fewer bits than its place.
    let ones = if *field == Ipv6Label { 0xf_ffff } else { field.ones() };
    Some(format!("{name}={}", masked(show(*value), *mask, ones, show_mask)))
}

fn masked(value: String, mask: u128, ones: u128, show: fn(u128) -> String) -> String {
    if mask == ones { value } else { format!("{value}/{}", show(mask)) }
}

#[cfg(test)]
mod tests {
    use super::super::numbers;
    use super::*;
    use base::{DropReason, PortNo};

    #[test]
    fn actions_look_as_open_vswitch_shows_them() {
        let context = ActionContext {
            eth_type: 0x800,
            nw_proto: 6,
            tags: [(0x88a8, 0x700a), (0x8100, 0x3014)],
            only_looks: false,
        };
        let set = |field: FieldId, value: u128, mask: u128| DpAction::Set { field, value, mask };
        for (list, text) in [
            (vec![], "drop"),
            (vec![DpAction::Drop(DropReason::ActionDrop)], "drop"),
            (vec![DpAction::Output(PortNo(2)), DpAction::Output(PortNo(3))], "2,3"),
            (vec![DpAction::OutputTrunc { port: PortNo(2), max_bytes: 100 }], "trunc(100),2"),
            (
                vec![
                    set(FieldId::NwTtl, 63, 0xff),
                    set(FieldId::NwTos, 0x10, 0xfc),
                    set(FieldId::EthDst, 0x0200_0000_0001, FieldId::EthDst.ones()),
                    DpAction::Output(PortNo(1)),
                ],
                "set(ipv4(ttl=63,tos=0x10/0xfc)),set(eth(dst=02:00:00:00:00:01)),1",
            ),
            (vec![set(FieldId::TpDst, 80, 0xffff)], "set(tcp(dst=80))"),
            (vec![set(FieldId::Mpls0, 3 << 9, 7 << 9)], "set(mpls(tc=3))"),
            (
                vec![set(FieldId::Mpls0, 20 << 12 | 1 << 8 | 63, 0xffff_ffff)],
                "set(mpls(label=20,tc=0,ttl=63,bos=1))",
            ),
            (vec![set(FieldId::PktMark, 5, 0xffff_ffff)], "set(skb_mark(0x5))"),
            (
                vec![DpAction::PopVlan, DpAction::PushVlan { tpid: 0x8100, tci: 0x3005 }],
                "pop_vlan,push_vlan(vid=5,pcp=1)",
            ),
            (vec![DpAction::Clone(vec![DpAction::Recirc(1)])], "clone(recirc(0x1))"),
            (
                vec![DpAction::CheckPktLen {
                    length: 200,
                    greater: vec![DpAction::Output(PortNo(2)), DpAction::Output(PortNo(4))],
                    others: vec![DpAction::Drop(base::DropReason::ActionDrop)],
                }],
                "check_pkt_len(size=200,gt(2,4),le(drop))",
            ),
            (
                vec![
                    set(FieldId::NshFlags, 2, 0xff),
                    set(FieldId::NshSi, 254, 0xff),
                    set(FieldId::NshC1, 0x44332211, 0xffff_ffff),
                ],
                "set(nsh(flags=2,si=254,c1=0x44332211))",
            ),
            (
                vec![
                    DpAction::PushNsh(
                        [0x0f, 0xc2 + 2, 2, 3, 0, 0x12, 0x34, 0xff, 0x10, 0, 10, 4, 0x12, 0x34, 0x56, 0x78]
                            .into(),
                    ),
                    DpAction::PushEth { src: 1, dst: 0x1122_3344_5566, eth_type: 0x894f },
                    DpAction::PopEth { eth_type: 0x894f },
                    DpAction::PopNsh { packet_type: 0 },
                    DpAction::AddMpls { eth_type: 0x8847, lse: 0x140 },
                ],
                "push_nsh(flags=0,ttl=63,mdtype=2,np=3,spi=0x1234,si=255,md2=0x10000a0412345678),\
                 push_eth(src=00:00:00:00:00:01,dst=11:22:33:44:55:66),pop_eth,pop_nsh(),\
                 add_mpls(label=0,tc=0,ttl=64,bos=1,eth_type=0x8847)",
            ),
            // Of a tag some bits are set: the others are the packet's, of whichever tag is the outer one by
            // then.
            (vec![set(FieldId::VlanTci, 5, 0xfff)], "pop_vlan,push_vlan(tpid=0x88a8,vid=5,pcp=3)"),
            (
                vec![DpAction::PopVlan, set(FieldId::VlanTci, 0xe000, 0xe000), DpAction::Output(PortNo(1))],
                "pop_vlan,pop_vlan,push_vlan(vid=20,pcp=7),1",
            ),
            (
                vec![
                    DpAction::PushVlan { tpid: 0x8100, tci: 0x5007 },
                    DpAction::Clone(vec![set(FieldId::VlanTci, 9, 0xfff)]),
                    set(FieldId::VlanTci, 8, 0xfff),
                ],
                "push_vlan(vid=7,pcp=2),clone(pop_vlan,push_vlan(vid=9,pcp=2)),pop_vlan,push_vlan(vid=8,pcp=2)",
            ),
        ] {
            assert_eq!(actions(&list, context, &numbers), text);
        }
    }
}
