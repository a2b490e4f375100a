//! What is printed is read back as the same: flows with actions of every row of the table, groups and meters,
//! in every version that can say them.
//!
//! The table of rows here is compared with that of docs/openflow.md, so that no action is forgotten; and each
//! row has to have been said in each version that has a form for it.

use flow::mf::{Format, Maskable};
use flow::{Action, FieldId, Mf};
use openflow::message::*;
use openflow::text::{
    MessageStyle, Parsed, PortNames, Protocol, Protocols, message_text, parse_flow_mod, parse_group_mod,
    parse_match, parse_meter_mod, write_actions, write_match,
};
use openflow::{Codec, ErrorKind, Message, Version, VersionSet};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers at random, from a number.
struct Draw {
    state: u64,
    /// Bits were loaded that OpenFlow 1.5 shows as a set_field with a mask, where the reader, like the stock
    /// one, takes none.
    loads_unmaskable: bool,
}

impl Draw {
    fn new(row: usize, case: u32) -> Draw {
        Draw { state: (row as u64) << 32 | u64::from(case), loads_unmaskable: false }
    }

    fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        base::hash::mixed(self.state)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn is(&mut self) -> bool {
        self.below(2) == 0
    }

    /// The text, half of the times.
    fn maybe(&mut self, text: impl FnOnce(&mut Draw) -> String) -> String {
        if self.is() { text(self) } else { String::new() }
    }

    /// A number of so many bits at most: large and small ones.
    fn bits(&mut self, bits: u16) -> u128 {
        let number = u128::from(self.number()) << 64 | u128::from(self.number());
        number >> (128 - bits) >> self.below(bits.into())
    }

    fn port(&mut self) -> String {
        match self.below(12) {
            0 => self.one(&["LOCAL", "IN_PORT", "NORMAL", "FLOOD", "ALL", "CONTROLLER"]).to_string(),
            _ => (1 + self.below(0xfeff)).to_string(),
        }
    }

    /// A field that holds with the match: to read, or to write.
    fn field(&mut self, known: &flow::Match, written: bool) -> Mf {
        let is_apt = |mf: &Mf| {
            // Those of experimenters cannot be in each action, and a port of 32 bits in none.
            let is_short = mf.wire(0).is_some_and(|wire| wire.class != 0xffff) && *mf != Mf::InPortOxm;
            known.has_prereq(*mf)
                && !matches!(mf, Mf::TunMetadata(_))
                && (is_short || !written)
                && (mf.row().writable || !written)
                && mf.wires().next().is_some()
        };
        let apt: Vec<Mf> = Mf::all().filter(is_apt).collect();
        self.one(&apt)
    }

    /// Bits of a field, and how many: at most so many.
    fn bits_of(&mut self, field: Mf, most: u16) -> (String, u16) {
        let width = field.bits();
        let count = 1 + self.below(width.min(most).into()) as u16;
        let from = self.below((width - count + 1).into());
        let name = if self.is() { field.wire_name().unwrap_or(field.name()) } else { field.name() };
        match count {
            _ if count == width => (format!("{name}[]"), count),
            1 => (format!("{name}[{from}]"), count),
            _ => (format!("{name}[{from}..{}]", from + u64::from(count) - 1), count),
        }
    }

    fn read(&mut self, known: &flow::Match, most: u16) -> (String, u16) {
        let field = self.field(known, false);
        self.bits_of(field, most)
    }

    fn written(&mut self, known: &flow::Match, most: u16) -> (String, u16) {
        let field = self.field(known, true);
        self.bits_of(field, most)
    }

    /// Bits of a register that hold a number of a port.
    fn register(&mut self, bits: u16) -> String {
        format!("NXM_NX_REG{}[{}..{}]", self.below(16), 3, 2 + bits)
    }

    fn hex(&mut self, bytes: u64, between: &str) -> String {
        let bytes: Vec<String> = (0..bytes).map(|_| format!("{:02x}", self.below(256))).collect();
        bytes.join(between)
    }

    /// A value as the field is written.
    fn value(&mut self, mf: Mf) -> String {
        let (value, mask) = (self.bits(mf.bits()), self.bits(mf.bits()));
        let masked = mf.row().maskable == Maskable::Arbitrary && self.is() && mask != 0;
        let value = if masked { value & mask } else { value };
        let text = |n: u128| match mf.row().format {
            Format::Ethernet => {
                n.to_be_bytes()[10..].iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
            }
            Format::Ipv4 => std::net::Ipv4Addr::from_bits(n as u32).to_string(),
            Format::Ipv6 => std::net::Ipv6Addr::from_bits(n).to_string(),
            Format::PacketType => format!("(1,{:#x})", n & 0xffff),
            _ => format!("{n:#x}"),
        };
        // A mask that begins with a decimal digit is the length of a prefix.
        match masked && !matches!(mf.row().format, Format::Ipv6 | Format::Port) {
            true => format!("{}/{}", text(value), text(mask)),
            false => text(value),
        }
    }
}

/// An action in text, for a match.
type Say = fn(&mut Draw, &flow::Match) -> String;

/// The rows by the first words of docs/openflow.md, with a match that they need.
const ROWS: [(&str, &str, Say); 54] = [
    ("output:PORT", "", |d, _| format!("output:{}", d.port())),
    ("output:FIELD[A..B]", "", |d, m| format!("output:{}", d.read(m, 16).0)),
    ("output(port=PORT", "", |d, _| {
        format!("output(port={},max_len={})", 1 + d.below(0xfeff), 14 + d.bits(31))
    }),
    ("controller(max_len=BYTES", "", |d, _| {
        let reason = d.one(&["no_match", "action", "invalid_ttl"]);
        let mut text = format!("controller(max_len={},reason={reason}", d.bits(16));
        text += &d.maybe(|d| format!(",id={}", d.bits(16)));
        text += &d.maybe(|d| {
            let bytes = d.below(20);
            format!(",userdata={}", d.hex(bytes, "."))
        });
        text += &d.maybe(|d| format!(",meter_id={}", 1 + d.bits(31)));
        text += &d.maybe(|_| ",pause".into());
        text + ")"
    }),
    ("enqueue:PORT:QUEUE", "", |d, _| format!("enqueue:{}:{}", 1 + d.below(0xfeff), d.bits(32))),
    ("bundle(FIELDS", "", |d, _| {
        let members: Vec<String> = (0..d.below(4)).map(|_| (1 + d.below(0xfeff)).to_string()).collect();
        let (fields, basis) = (d.one(&HASHES), d.bits(16));
        let algorithm = d.one(&["hrw", "active_backup"]);
        let (load, target) = if d.is() { ("", "".into()) } else { ("_load", d.register(16) + ",") };
        format!("bundle{load}({fields},{basis},{algorithm},ofport,{target}members:{})", members.join(","))
    }),
    ("group:GROUP", "", |d, _| format!("group:{}", d.below(0xffff_ff00))),
    ("push_vlan:ETHERTYPE", "ip,", |d, _| format!("push_vlan:{}", d.one(&["0x8100", "0x88a8"]))),
    ("pop_vlan", "dl_vlan=7,", |d, _| d.one(&["pop_vlan", "strip_vlan"]).into()),
    ("mod_vlan_vid:VLAN", "", |d, _| format!("mod_vlan_vid:{}", d.bits(12))),
    ("mod_vlan_pcp:PRIORITY", "", |d, _| format!("mod_vlan_pcp:{}", d.bits(3))),
    ("push_mpls:ETHERTYPE", "ip,", |d, _| format!("push_mpls:{}", d.one(&["0x8847", "0x8848"]))),
    ("pop_mpls:ETHERTYPE", "mpls,", |d, _| format!("pop_mpls:{:#x}", 0x600 + d.below(0xfa00))),
    ("set_mpls_label:LABEL", "mpls,", |d, _| format!("set_mpls_label({})", d.bits(20))),
    ("set_mpls_tc:TC", "mpls,", |d, _| format!("set_mpls_tc({})", d.bits(3))),
    ("set_mpls_ttl:TTL", "mpls,", |d, _| format!("set_mpls_ttl({})", d.bits(8))),
    ("dec_mpls_ttl", "mpls,", |_, _| "dec_mpls_ttl".into()),
    ("load:VALUE->FIELD[A..B]", "tcp,", |d, m| {
        let field = d.field(m, true);
        d.loads_unmaskable |= field.row().maskable == Maskable::No;
        let (target, bits) = d.bits_of(field, 64);
        format!("load:{:#x}->{target}", d.bits(bits))
    }),
    ("set_field:VALUE/MASK->FIELD", "tcp,", |d, m| {
        let field = d.field(m, true);
        match d.below(4) {
            0 => format!("mod_dl_{}:{}", d.one(&["src", "dst"]), d.hex(6, ":")),
            1 => format!(
                "mod_nw_{}:{}",
                d.one(&["src", "dst"]),
                d.value(Mf::TunSrc).split('/').next().unwrap()
            ),
            _ => format!("set_field:{}->{}", d.value(field), field.name()),
        }
    }),
    ("set_field:VALUE/MASK->tun_metadataN", "", |d, _| {
        if d.is() {
            return format!("load:{:#x}->NXM_NX_TUN_METADATA{}[8..39]", d.bits(32), d.below(64));
        }
        let mask = d.maybe(|d| format!("/{:#x}", d.bits(128) | 0xff));
        format!("set_field:{:#x}{mask}->tun_metadata{}", d.bits(8), d.below(64))
    }),
    ("move:FIELD[A..B]->FIELD[C..D]", "tcp,", |d, m| {
        loop {
            let (target, bits) = d.written(m, 128);
            let source = d.field(m, false);
            if source.bits() < bits {
                continue;
            }
            let from = d.below((source.bits() - bits + 1).into());
            return format!("move:{}[{from}..{}]->{target}", source.name(), from + u64::from(bits) - 1);
        }
    }),
    ("mod_tp_src:PORT", "tcp,", |d, _| format!("mod_tp_src:{}", d.bits(16))),
    ("mod_tp_dst:PORT", "tcp,", |d, _| format!("mod_tp_dst:{}", d.bits(16))),
    ("mod_nw_ttl:TTL", "ip,", |d, _| format!("mod_nw_ttl:{}", d.bits(8))),
    ("dec_ttl", "ip,", |d, _| match d.below(3) {
        0 => "dec_ttl".into(),
        1 => format!("dec_ttl({})", d.bits(16)),
        _ => format!("dec_ttl({},{})", d.bits(16), d.bits(16)),
    }),
    ("encap(HEADER(md_type=N", "", |d, _| match d.below(4) {
        0 => d.one(&["encap(ethernet)", "encap(mpls)", "encap(mpls_mc)"]).into(),
        1 => d.one(&["encap(nsh)", "encap(nsh(md_type=1))", "encap(nsh(md_type=2))"]).into(),
        _ => {
            let bytes = 4 * d.below(5);
            let (class, kind) = (d.bits(16), d.bits(8));
            format!("encap(nsh(md_type=2,tlv({class:#x},{kind},0x{})))", d.hex(1 + bytes, ""))
        }
    }),
    ("decap(packet_type(ns=NAMESPACE", "", |d, _| match d.is() {
        true => "decap()".into(),
        false => format!("decap(packet_type(ns=1,type={:#x}))", d.bits(16)),
    }),
    ("dec_nsh_ttl", "dl_type=0x894f,", |_, _| "dec_nsh_ttl".into()),
    ("check_pkt_larger(BYTES)->FIELD[BIT]", "", |d, m| {
        format!("check_pkt_larger({})->{}", d.bits(16), d.written(m, 1).0)
    }),
    ("delete_field:FIELD", "", |d, _| format!("delete_field:tun_metadata{}", d.below(64))),
    ("multipath(FIELDS", "", |d, _| {
        let (fields, basis) = (d.one(&HASHES), d.bits(16));
        let algorithm = d.one(&["modulo_n", "hash_threshold", "hrw", "iter_hash"]);
        let (links, arg, target) = (1 + d.below(0x1_0000), d.bits(32), d.register(16));
        format!("multipath({fields},{basis},{algorithm},{links},{arg},{target})")
    }),
    ("set_tunnel:ID", "", |d, _| match d.is() {
        true => format!("set_tunnel:{:#x}", d.bits(32)),
        false => format!("set_tunnel64:{:#x}", d.bits(64)),
    }),
    ("set_queue:QUEUE", "", |d, _| format!("set_queue:{}", d.bits(32))),
    ("pop_queue", "", |_, _| "pop_queue".into()),
    ("push:FIELD[A..B]", "tcp,", |d, m| format!("push:{}", d.read(m, 128).0)),
    ("pop:FIELD[A..B]", "tcp,", |d, m| format!("pop:{}", d.written(m, 128).0)),
    ("resubmit:PORT", "", |d, m| match d.below(if m.has_prereq(Mf::CtNwSrc) { 5 } else { 3 }) {
        0 => format!("resubmit:{}", 1 + d.below(0xfeff)),
        1 => format!("resubmit(,{})", d.below(255)),
        2 => format!("resubmit({},{})", 1 + d.below(0xfeff), d.below(255)),
        3 => format!("resubmit(,{},ct)", d.below(255)),
        _ => format!("resubmit({},{},ct)", 1 + d.below(0xfeff), d.below(255)),
    }),
    ("clone(ACTION", "tcp,", |d, m| format!("clone({})", nested(d, m, "clone"))),
    ("ct(commit", "tcp,", |d, _| {
        let mut parts = Vec::new();
        if d.is() {
            parts.push("commit".to_string());
            parts.extend(d.is().then(|| "force".to_string()));
            parts.extend(d.is().then(|| format!("exec({})", of_connection(d))));
        }
        parts.extend(d.is().then(|| format!("table={}", d.below(255))));
        let zone = if d.is() { d.bits(16).to_string() } else { d.register(16) };
        parts.extend(d.is().then(|| format!("zone={zone}")));
        parts.extend(d.is().then(|| format!("alg={}", d.one(&["ftp", "tftp"]))));
        format!("ct({})", parts.join(","))
    }),
    ("nat(src|dst=ADDRESS-ADDRESS:PORT-PORT", "tcp,", |d, _| {
        let side = d.one(&["src", "dst"]);
        let addresses = match d.below(4) {
            0 => String::new(),
            1 => "=10.1.0.1".into(),
            _ => format!("=10.1.0.1-10.1.0.{}", 2 + d.below(200)),
        };
        let ports = if addresses.is_empty() {
            String::new()
        } else {
            d.maybe(|d| format!(":{}-{}", 1 + d.below(1000), 1001 + d.below(60_000)))
        };
        let mut how = String::new();
        if !addresses.is_empty() {
            how += &d.maybe(|_| ",persistent".into());
            how += d.one(&["", ",hash", ",random"]);
        }
        match d.below(8) {
            0 => "ct(nat)".into(),
            _ => format!("ct(commit,nat({side}{addresses}{ports}{how}))"),
        }
    }),
    ("ct_clear", "", |_, _| "ct_clear".into()),
    ("learn(table=TABLE", "tcp,", learn),
    ("fin_timeout(idle_timeout=SECONDS", "tcp,", |d, _| {
        let mut parts = d.maybe(|d| format!("idle_timeout={}", 1 + d.below(0xffff)));
        parts += &d.maybe(|d| format!(",hard_timeout={}", 1 + d.below(0xffff)));
        format!("fin_timeout({})", parts.trim_start_matches(','))
    }),
    ("sample(probability=N", "", |d, _| {
        let mut text = format!("sample(probability={},collector_set_id={}", 1 + d.below(0xffff), d.bits(32));
        text += &format!(",obs_domain_id={},obs_point_id={}", d.bits(32), d.bits(32));
        text += &d.maybe(|d| format!(",sampling_port={}", 1 + d.below(0xfeff)));
        text += d.one(&["", ",ingress", ",egress"]);
        text + ")"
    }),
    ("conjunction(ID", "", |d, _| {
        let clauses = 2 + d.below(63);
        format!("conjunction({},{}/{clauses})", d.bits(32), 1 + d.below(clauses))
    }),
    ("exit", "", |_, _| "exit".into()),
    ("note:HEX", "", |d, _| {
        let bytes = 1 + d.below(20);
        format!("note:{}", d.hex(bytes, "."))
    }),
    ("debug_recirc", "", |_, _| "debug_recirc".into()),
    ("debug_slow", "", |_, _| "debug_slow".into()),
    ("meter:METER", "", |d, _| format!("meter:{}", 1 + d.below(0xffff_0000))),
    ("clear_actions", "", |_, _| "clear_actions".into()),
    ("write_actions(ACTION", "tcp,", |d, m| format!("write_actions({})", nested(d, m, "write_actions"))),
    ("write_metadata:VALUE/MASK", "", |d, _| {
        let mask = d.maybe(|d| format!("/{:#x}", d.bits(64)));
        format!("write_metadata:{:#x}{mask}", d.bits(64))
    }),
    ("goto_table:TABLE", "", |d, _| format!("goto_table:{}", 1 + d.below(254))),
];

const HASHES: [&str; 7] =
    ["eth_src", "symmetric_l4", "symmetric_l3l4", "symmetric_l3l4+udp", "nw_src", "nw_dst", "symmetric_l3"];

/// A few actions of rows that may stand within another.
fn nested(draw: &mut Draw, known: &flow::Match, within: &str) -> String {
    let apt = |(name, base, _): &&(&str, &str, Say)| {
        let needs_other = !base.is_empty() && *base != "tcp," && *base != "ip,";
        let never = ["nat", "conjunction", "meter", "clear_", "write_", "goto_", "clone", "enqueue"];
        let in_lists = [
            "output:FIELD",
            "resubmit",
            "learn",
            "ct",
            "exit",
            "note",
            "fin_",
            "mod_vlan",
            "push_m",
            "encap",
        ];
        let other = never.iter().chain(in_lists.iter().filter(|_| within == "write_actions"));
        !needs_other && !other.into_iter().any(|prefix| name.starts_with(prefix))
    };
    let rows: Vec<_> = ROWS.iter().filter(apt).collect();
    let count = 1 + draw.below(3);
    let all: Vec<String> = (0..count).map(|_| (draw.one(&rows).2)(draw, known)).collect();
    all.join(",")
}

/// What may be done to a connection.
fn of_connection(draw: &mut Draw) -> String {
    let field = draw.one(&[Mf::CtMark, Mf::CtLabel]);
    match draw.below(3) {
        0 => format!("move:NXM_NX_REG{}[]->NXM_NX_CT_MARK[]", draw.below(16)),
        1 => format!("load:{:#x}->NXM_NX_CT_LABEL[64..127]", draw.bits(64)),
        _ => format!("set_field:{}->{}", draw.value(field), field.name()),
    }
}

fn learn(d: &mut Draw, m: &flow::Match) -> String {
    let mut parts = vec![format!("table={}", d.below(255))];
    for key in ["idle_timeout", "hard_timeout", "fin_idle_timeout", "fin_hard_timeout", "priority", "cookie"]
    {
        parts.extend(d.is().then(|| format!("{key}={}", d.bits(16))));
    }
    parts.extend(d.is().then(|| "send_flow_rem".into()));
    parts.extend(d.is().then(|| "delete_learned".into()));
    if d.is() {
        parts.push(format!("limit={}", 1 + d.bits(31)));
        parts.extend(d.is().then(|| format!("result_dst={}", d.written(m, 1).0)));
    }
    parts.push("eth_type=0x800,nw_proto=6".into());
    for _ in 0..d.below(4) {
        parts.push(match d.below(5) {
            0 => d.written(m, 128).0,
            1 => {
                let (bits, count) = d.written(m, 64);
                format!("{bits}={:#x}", d.bits(count))
            }
            2 => {
                let bits = d.one(&["NXM_OF_TCP_SRC[]=NXM_OF_TCP_DST[]", "NXM_OF_IP_SRC[]=NXM_OF_IP_DST[]"]);
                bits.to_string()
            }
            3 => {
                let (target, bits) = d.written(m, 64);
                format!("load:{:#x}->{target}", d.bits(bits))
            }
            _ => format!("output:{}", d.written(m, 16).0),
        });
    }
    format!("learn({})", parts.join(","))
}

/// What actions do, the same for all that are equivalent: bits that are set in a row are one effect.
#[derive(PartialEq, Debug)]
enum Effect {
    Sets(Vec<(FieldId, u128, u128)>),
    Does(Action),
}

/// Appends the effects of actions before which `tagged` says whether there is a tag.
fn effects(actions: &[Action], tagged: &mut bool, out: &mut Vec<Effect>) {
    let set = |out: &mut Vec<Effect>, field: Mf, value: u128, mask: u128| {
        let mut bits = flow::Match::any();
        bits.set_mf(field, value, mask);
        if !matches!(out.last(), Some(Effect::Sets(_))) {
            out.push(Effect::Sets(Vec::new()));
        }
        let Some(Effect::Sets(sets)) = out.last_mut() else { unreachable!() };
        for &id in FieldId::ALL {
            let (value, mask) = (bits.key.get(id), bits.mask.get(id));
            match sets.iter_mut().find(|(other, ..)| *other == id) {
                _ if mask == 0 => {}
                Some((_, before, set)) => (*before, *set) = (*before & !mask | value, *set | mask),
                None => sets.push((id, value, mask)),
            }
        }
        sets.sort();
    };
    for action in actions {
        let does = |out: &mut Vec<Effect>, action: Action| out.push(Effect::Does(action));
        match action {
            Action::SetField { field, value, mask } => set(out, *field, *value, *mask),
            Action::Load { target, value, .. } => {
                let mask = u128::MAX >> (128 - target.count) << target.offset;
                set(out, target.field, u128::from(*value) << target.offset, mask);
            }
            Action::SetTpSrc(port) => set(out, Mf::TcpSrc, (*port).into(), 0xffff),
            Action::SetTpDst(port) => set(out, Mf::TcpDst, (*port).into(), 0xffff),
            Action::SetNwTtl(ttl) => set(out, Mf::NwTtl, (*ttl).into(), 0xff),
            Action::SetMplsLabel(label) => set(out, Mf::MplsLabel, (*label).into(), 0xf_ffff),
            Action::SetMplsTc(tc) => set(out, Mf::MplsTc, (*tc).into(), 7),
            Action::SetMplsTtl(ttl) => set(out, Mf::MplsTtl, (*ttl).into(), 0xff),
            Action::SetTunnel { id, .. } => set(out, Mf::TunId, (*id).into(), u64::MAX.into()),
            Action::SetVlanVid { vid, push_vlan_if_needed } => {
                if *push_vlan_if_needed && !*tagged {
                    does(out, Action::PushVlan(0x8100));
                }
                *tagged = true;
                set(out, Mf::VlanVid, u128::from(0x1000 | *vid), 0x1fff);
            }
            Action::SetVlanPcp { pcp, push_vlan_if_needed } => {
                if *push_vlan_if_needed && !*tagged {
                    does(out, Action::PushVlan(0x8100));
                }
                *tagged = true;
                set(out, Mf::DlVlanPcp, (*pcp).into(), 7);
            }
            Action::Enqueue { port, queue } => {
                does(out, Action::SetQueue(*queue));
                does(out, Action::Output { port: *port, max_len: 0 });
                does(out, Action::PopQueue);
            }
            Action::GotoTable(table) => {
                does(out, Action::Resubmit { in_port: None, table: Some(*table), ct: false });
            }
            Action::Clone(nested) | Action::WriteActions(nested) => {
                does(out, Action::Clone(Vec::new()));
                effects(nested, &mut false, out);
                does(out, Action::Clone(Vec::new()));
            }
            Action::Ct(ct) => {
                does(out, Action::Ct(Box::new(flow::action::Ct { actions: Vec::new(), ..(**ct).clone() })));
                effects(&ct.actions, &mut false, out);
            }
            Action::PushVlan(_) => {
                *tagged = true;
                does(out, action.clone());
            }
            other => does(out, other.clone()),
        }
    }
}

/// Encodes and decodes; `None` for what the reader leaves to the switch.
fn through_the_wire(parsed: &Parsed, protocol: Protocol) -> Option<FlowMod> {
    let codec =
        Codec { flow_mod_table_id: protocol.has_table_id_extension(), ..Codec::new(protocol.version()) };
    let said = Message::FlowMod(Box::new(parsed.clone().in_protocol(protocol)));
    let bytes = codec.encode(1, &said).unwrap_or_else(|e| panic!("{protocol:?} {said:?}: {e}"));
    match codec.decode(&bytes) {
        Ok((_, Message::FlowMod(flow_mod))) => Some(*flow_mod),
        Err(error) if is_left_to_the_switch(error) => None,
        // It is sent although this version has no such action.
        Err(ErrorKind::OFPBAC_BAD_VENDOR_TYPE) if protocol.version() < Version::V13 => None,
        other => panic!("{protocol:?} {said:?}: {other:?}"),
    }
}

/// What no action set holds, and values that a field does not, the reader takes all the same, as the stock
/// one does.
fn is_left_to_the_switch(error: ErrorKind) -> bool {
    matches!(error, ErrorKind::OFPBAC_BAD_TYPE | ErrorKind::OFPBAC_BAD_SET_ARGUMENT)
}

/// The rows of the document: up to the first comma or semicolon.
fn documented() -> Vec<(String, Vec<bool>)> {
    let table = openflow::actions_table();
    let row = |line: &str| {
        let line = line.replace("\\|", "\u{1}");
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`').split([',', ';']).next().unwrap().replace('\u{1}', "|");
        (name, cells[2..8].iter().map(|cell| *cell != "-").collect())
    };
    table.lines().skip(2).map(row).collect()
}

fn read(text: &str) -> Result<Parsed, String> {
    parse_flow_mod(text, FlowModCommand::Add, PortNames::none()).map_err(|error| error.message)
}

#[test]
fn flows_of_every_action_are_read_back_as_what_was_printed() {
    let documented = documented();
    let names: Vec<&str> = documented.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ROWS.map(|(name, ..)| name), "a row for each action of the table");
    let cases = testkit::cases("openflow::printed_flows", 120);
    let mut said: BTreeMap<(&str, Version), u32> = BTreeMap::new();
    let (mut wrong, mut lost, mut left_out) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (i, (name, base, say)) in ROWS.into_iter().enumerate() {
        for case in 0..cases {
            let mut draw = Draw::new(i, case);
            let base = if base.is_empty() {
                draw.one(&["", "tcp,ct_state=+trk,", "dl_vlan=7,", "icmp6,"])
            } else {
                base
            };
            let known = parse_match(base, PortNames::none()).unwrap();
            let mut actions = say(&mut draw, &known);
            actions += &draw.maybe(|draw| format!(",output:{}", 1 + draw.below(0xfeff)));
            let flow = format!("table=0,priority={},{base}actions={actions}", draw.bits(16));
            // What the reader refuses nobody can say.
            let Ok(parsed) = read(&flow) else { continue };
            for protocol in parsed.protocols.iter() {
                let version = protocol.version();
                if draw.loads_unmaskable && version == Version::V15 {
                    continue;
                }
                let Some(flow_mod) = through_the_wire(&parsed, protocol) else { continue };
                *said.entry((name, version)).or_default() += 1;
                let of = |actions: &[Action]| {
                    let mut out = Vec::new();
                    effects(actions, &mut base.starts_with("dl_vlan"), &mut out);
                    out
                };
                let (wanted, received) = (of(&parsed.flow_mod.actions), of(&flow_mod.actions));
                match openflow::left_out(version, &parsed.flow_mod.actions) {
                    Some(name) => _ = left_out.insert((name, version)),
                    None if wanted == received => {}
                    None => lost.push(format!("{protocol:?} {flow}\n  {wanted:?}\n  {received:?}")),
                }
                let mut printed = String::from("table=0,");
                write_match(&mut printed, &flow_mod.matching, flow_mod.priority, PortNames::none());
                printed.push_str(" actions=");
                write_actions(&mut printed, &flow_mod.actions, version, PortNames::none());
                // In OpenFlow 1.1 a set_field is shown that the text cannot say there.
                let back = read(&printed).map(|parsed| through_the_wire(&parsed, protocol));
                if back != Ok(Some(flow_mod.clone())) {
                    let actions = (flow_mod.actions, back.map(|back| back.map(|back| back.actions)));
                    wrong.push(format!("{protocol:?} {flow}\n  {printed}\n  {actions:?}"));
                }
            }
        }
    }
    let shown = lost.iter().step_by(lost.len().div_ceil(40).max(1)).cloned().collect::<Vec<_>>().join("\n");
    assert!(lost.is_empty(), "{} do something else on the wire:\n{shown}", lost.len());
    let unsaid = ["clear_actions", "write_actions"].map(|name| (name, Version::V10));
    assert_eq!(left_out, unsaid.into(), "what a version cannot say, and the client warns of");
    let (count, shown) = (wrong.len(), wrong.iter().take(40).cloned().collect::<Vec<_>>().join("\n"));
    assert!(wrong.is_empty(), "{count} differ:\n{shown}");
    for (name, versions) in &documented {
        let unsaid = |(i, has): (usize, &bool)| *has && !said.contains_key(&(name.as_str(), Version::ALL[i]));
        let unsaid: Vec<usize> = versions.iter().enumerate().filter(|v| unsaid(*v)).map(|(i, _)| i).collect();
        assert!(unsaid.is_empty(), "{name} was not said in OpenFlow 1.{unsaid:?}");
    }
}

#[test]
fn groups_are_read_back_as_what_was_printed() {
    let known = parse_match("tcp,", PortNames::none()).unwrap();
    let mut said: BTreeMap<Version, u32> = BTreeMap::new();
    for case in 0..testkit::cases("openflow::printed_groups", 600) {
        let draw = &mut Draw::new(1000, case);
        let kind = draw.one(&["all", "select", "indirect", "ff"]);
        let mut text = format!("group_id={},type={kind}", draw.below(0xffff_ff00));
        if kind == "select" && draw.is() {
            text += &format!(",selection_method={}", draw.one(&["hash", "dp_hash"]));
            text += &draw.maybe(|draw| format!(",selection_method_param={}", draw.bits(64)));
            if text.contains("=hash") {
                text += draw.one(&["", ",fields=ip_src", ",fields(ip_src=255.255.0.0,tcp_dst,eth_src)"]);
            }
        }
        for id in 0..if kind == "indirect" { 1 } else { draw.below(4) } {
            text += ",bucket=";
            text += &draw.maybe(|_| format!("bucket_id:{},", 7 * id));
            if kind == "select" {
                text += &draw.maybe(|draw| format!("weight:{},", draw.bits(16)));
            }
            text += &match kind {
                "ff" if draw.is() => format!("watch_port:{},", 1 + draw.below(0xfeff)),
                "ff" => format!("watch_group:{},", draw.below(0xffff_ff00)),
                _ => String::new(),
            };
            text += &format!("actions={}", nested(draw, &known, "write_actions"));
        }
        let read = |text: &str| parse_group_mod(text, GroupCommand::Add, PortNames::none());
        let Ok((parsed, protocols)) = read(&text) else { continue };
        for version in Version::ALL.into_iter().filter(|&v| !protocols.intersect(of_version(v)).is_empty()) {
            if draw.loads_unmaskable && version == Version::V15 {
                continue;
            }
            let codec = Codec::new(version);
            let bytes = codec.encode(1, &Message::GroupMod(Box::new(parsed.clone()))).unwrap();
            let message = match codec.decode(&bytes) {
                Ok((_, message)) => message,
                Err(error) if is_left_to_the_switch(error) => continue,
                Err(error) => panic!("{version} {text}: {error:?}"),
            };
            let style = MessageStyle { version, ports: PortNames::none(), verbosity: 0 };
            let printed = message_text(1, &message, style);
            let (_, group) = printed.split_once(" ADD ").expect("the command");
            let (back, _) = read(group).unwrap_or_else(|e| panic!("{}: {version} {group}", e.message));
            let bytes = codec.encode(1, &Message::GroupMod(Box::new(back))).unwrap();
            assert_eq!(codec.decode(&bytes).unwrap().1, message, "{version} {text}\n{group}");
            *said.entry(version).or_default() += 1;
        }
    }
    assert!(Version::ALL.iter().all(|version| said[version] > 100), "{said:?}");
}

fn of_version(version: Version) -> Protocols {
    Protocols::of_versions(VersionSet::only(version))
}

#[test]
fn meters_are_read_back_as_what_was_printed() {
    for case in 0..testkit::cases("openflow::printed_meters", 200) {
        let draw = &mut Draw::new(2000, case);
        let id = draw.one(&["controller", "slowpath", "1", "77", "4294901760"]);
        let burst = draw.is();
        let mut text = format!("meter={id} {}", draw.one(&["kbps", "pktps"]));
        text += if burst { " burst" } else { "" };
        text += &draw.maybe(|_| " stats".into());
        text += " bands=";
        for _ in 0..1 + draw.below(4) {
            let kind = draw.one(&["drop", "dscp_remark"]);
            text += &format!("type={kind} rate={} ", 1 + draw.below(0xffff_ffff));
            text +=
                &if burst { format!("burst_size={} ", 1 + draw.below(0xffff_ffff)) } else { String::new() };
            text +=
                &if kind == "drop" { String::new() } else { format!("prec_level={} ", 1 + draw.below(255)) };
        }
        let read = |text: &str| parse_meter_mod(text, MeterCommand::Add).map_err(|e| e.message).unwrap();
        for version in [Version::V13, Version::V14, Version::V15] {
            let codec = Codec::new(version);
            let bytes = codec.encode(1, &Message::MeterMod(read(&text))).unwrap();
            let (_, message) = codec.decode(&bytes).unwrap();
            let style = MessageStyle { version, ports: PortNames::none(), verbosity: 0 };
            let printed = message_text(1, &message, style);
            let (_, meter) = printed.split_once(" ADD ").expect("the command");
            assert_eq!(Message::MeterMod(read(meter)), message, "{version} {text}\n{meter}");
        }
    }
}
