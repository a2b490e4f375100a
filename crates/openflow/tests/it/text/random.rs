//! Flows at random, drawn from the table of fields: read and printed as the stock tool does, and read back
//! from our own text.

use crate::text::fields::fields;
use crate::text::oracle::{stock, stock_all, through_the_wire};
use flow::Mf;
use flow::mf::{Format, Maskable, Prereq};
use openflow::Version;
use openflow::message::FlowModCommand;
use openflow::text::{PortNames, parse_flow_mod, parse_match, write_match};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// What a flow begins with, and which prerequisites that gives.
const BASES: [(&str, &[Prereq]); 12] = [
    ("", &[Prereq::None]),
    ("ip,", &[Prereq::None, Prereq::Ipv4, Prereq::Ip]),
    ("ipv6,", &[Prereq::None, Prereq::Ipv6, Prereq::Ip]),
    ("arp,", &[Prereq::None, Prereq::Arp]),
    ("mpls,", &[Prereq::None, Prereq::Mpls]),
    ("tcp,", &[Prereq::None, Prereq::Ipv4, Prereq::Ip, Prereq::Tcp]),
    ("udp6,", &[Prereq::None, Prereq::Ipv6, Prereq::Ip, Prereq::Udp]),
    ("icmp,", &[Prereq::None, Prereq::Ipv4, Prereq::Icmpv4]),
    ("icmp6,icmpv6_type=135,icmpv6_code=0,", &[Prereq::Ipv6, Prereq::Nd, Prereq::NdSolicit]),
    ("icmp6,icmpv6_type=136,icmpv6_code=0,", &[Prereq::Ipv6, Prereq::Nd, Prereq::NdAdvert]),
    ("dl_type=0x894f,", &[Prereq::None, Prereq::Nsh]),
    ("dl_vlan=7,", &[Prereq::None, Prereq::Vlan]),
];

fn value_text(mf: Mf, value: u128, mask: u128) -> String {
    let (value, mask) = (value & mf.ones(), mask & mf.ones());
    let masked = mf.row().maskable == Maskable::Arbitrary && mask != mf.ones();
    match mf.row().format {
        Format::Decimal | Format::Hexadecimal if masked => format!("{:#x}/{mask:#x}", value & mask),
        Format::Decimal => format!("{value}"),
        Format::Hexadecimal => format!("{value:#x}"),
        Format::Ethernet => {
            let text = |n: u128| {
                n.to_be_bytes()[10..].iter().map(|b| format!("{b:x}")).collect::<Vec<_>>().join(":")
            };
            if masked { format!("{}/{}", text(value), text(mask)) } else { text(value) }
        }
        Format::Ipv4 => {
            let text = |n: u128| std::net::Ipv4Addr::from_bits(n as u32).to_string();
            if masked { format!("{}/{}", text(value), text(mask)) } else { text(value) }
        }
        Format::Ipv6 => {
            let text = |n: u128| std::net::Ipv6Addr::from_bits(n).to_string();
            // The stock tool takes a mask that begins with a decimal digit for the length of a prefix.
            let mask = mask | 0xffff << 112;
            if masked { format!("{}/{}", text(value), text(mask)) } else { text(value) }
        }
        Format::Port => format!("{}", value % 0xff00),
        Format::Frag => ["no", "yes", "first", "later", "not_later"][(value % 5) as usize].to_string(),
        Format::TunFlags => if value & 1 != 0 { "+oam" } else { "-oam" }.to_string(),
        Format::TcpFlags | Format::CtState | Format::ExtHdr => format!("{value:#x}/{mask:#x}"),
        Format::PacketType => format!("(1,{:#x})", value & 0xffff),
    }
}

/// Masks of the kinds that occur: none, prefixes, few bits, any.
fn masks() -> impl Strategy<Value = u128> {
    prop_oneof![
        3 => Just(u128::MAX),
        2 => (0u32..128).prop_map(|n| u128::MAX << n),
        1 => (0u32..64).prop_map(|n| 0x1_0000_0000_0000_0001u128.rotate_left(n)),
        1 => any::<u128>(),
    ]
}

fn matches() -> impl Strategy<Value = String> {
    let field = (any::<prop::sample::Index>(), any::<u128>(), masks());
    (0..BASES.len(), prop::collection::vec(field, 0..6)).prop_map(|(base, picks)| {
        let (text, prereqs) = BASES[base];
        let fields: Vec<Mf> = Mf::all().filter(|mf| can_match(*mf, prereqs)).collect();
        let mut seen = Vec::new();
        let mut out = text.to_string();
        for (index, value, mask) in picks {
            let mf = fields[index.index(fields.len())];
            // Registers lie in each other, and what an earlier base said is not to be unsaid.
            if mask & mf.ones() == 0 || seen.contains(&mf.row().field) {
                continue;
            }
            seen.push(mf.row().field);
            out += &format!("{}={},", mf.name(), value_text(mf, value, mask));
        }
        out
    })
}

fn can_match(mf: Mf, prereqs: &[Prereq]) -> bool {
    let excluded = matches!(
        mf,
        Mf::RecircId | Mf::SkbPriority | Mf::TunTtl | Mf::TunTos | Mf::TunMetadata(_) | Mf::Ipv6ExtHdr
            | Mf::PacketType | Mf::EthType | Mf::InPortOxm | Mf::NwProto | Mf::VlanTci | Mf::VlanVid | Mf::DlVlan
            | Mf::DlVlanPcp | Mf::CtState | Mf::Icmpv6Type | Mf::Icmpv6Code | Mf::XReg(_) | Mf::XxReg(_)
            | Mf::NwTos | Mf::IpDscp | Mf::MplsTtl | Mf::NdReserved | Mf::DpHash
            // The stock tool writes these in part, or only beside others.
            | Mf::TunGtpuFlags | Mf::TunGtpuMsgtype | Mf::NshC1 | Mf::NshC2 | Mf::NshC3 | Mf::NshC4
            | Mf::TunGbpFlags | Mf::TunErspanIdx | Mf::TunErspanVer | Mf::TunErspanDir | Mf::TunErspanHwid
    );
    !excluded && (prereqs.contains(&mf.row().prereq) || mf.row().prereq == Prereq::Ethernet)
}

/// Values of any size and with any prerequisites or none: most of them wrong.
fn odd_matches() -> impl Strategy<Value = String> {
    let numbers = fields().filter(|mf| matches!(mf.row().format, Format::Decimal | Format::Hexadecimal));
    let excluded = |mf: &Mf| {
        // Without a bit for the tag these are said in other ways by each version, and the stock tool writes
        // these others in part, or only beside others.
        matches!(
            mf,
            Mf::VlanTci
                | Mf::VlanVid
                | Mf::DlVlan
                | Mf::NshC1
                | Mf::NshC2
                | Mf::NshC3
                | Mf::NshC4
                | Mf::TunErspanIdx
                | Mf::TunErspanDir
                | Mf::TunErspanHwid
                | Mf::RecircId
        )
    };
    let numbers: Vec<Mf> = numbers.filter(|mf| !excluded(mf)).collect();
    let pick = (prop::sample::select(numbers), any::<u128>(), 0u32..12, masks(), any::<bool>());
    (0..BASES.len(), pick).prop_map(|(base, (mf, value, beyond, mask, masked))| {
        // Up to so many bits more than the field has.
        let bits = (u32::from(mf.row().bits) + beyond).min(128);
        let (value, mask) = (value >> (128 - bits), mask & (u128::MAX >> (128 - bits)));
        let mask = if masked { format!("/{mask:#x}") } else { String::new() };
        format!("{}{}={value:#x}{mask}", BASES[base].0, mf.name())
    })
}

#[test]
fn odd_matches_are_refused_or_said_as_the_stock_tool_says_them() {
    let mut runner = TestRunner::deterministic();
    let (mut refused, mut said) = (0, 0);
    for _ in 0..testkit::cases("openflow::odd_text_against_stock", 400) {
        let flow = format!("{},actions=drop", odd_matches().new_tree(&mut runner).unwrap().current());
        for version in [Version::V10, Version::V13] {
            let parsed = parse_flow_mod(&flow, FlowModCommand::Add, PortNames::none());
            let ours = parsed.map_err(|e| e.message).and_then(|parsed| through_the_wire(version, parsed));
            // More is refused than by the stock tool: what it cuts off, and what it leaves out of a rule.
            let Ok(ours) = ours else {
                refused += 1;
                continue;
            };
            said += 1;
            assert_eq!(Ok(ours), stock(version, &flow), "{version} {flow}");
        }
    }
    assert!(refused > 0 && said > 0, "{refused} {said}");
}

fn actions() -> impl Strategy<Value = String> {
    let subfield = (0u8..16, 0u16..31).prop_map(|(reg, bit)| format!("NXM_NX_REG{reg}[{}..{bit}]", bit / 2));
    let one = prop_oneof![
        (1u16..0xfeff).prop_map(|p| format!("output:{p}")),
        prop::sample::select(vec![
            "LOCAL",
            "FLOOD",
            "NORMAL",
            "in_port",
            "ALL",
            "exit",
            "pop_queue",
            "ct_clear"
        ])
        .prop_map(str::to_string),
        any::<u16>().prop_map(|n| format!("controller:{n}")),
        (any::<u16>(), any::<u16>()).prop_map(|(n, id)| format!("controller(max_len={n},id={id})")),
        any::<[u8; 6]>().prop_map(|a| format!("mod_dl_src:{}", a.map(|b| format!("{b:02x}")).join(":"))),
        (any::<u32>(), 0u8..16).prop_map(|(v, r)| format!("set_field:{v:#x}->reg{r}")),
        any::<u64>().prop_map(|v| format!("set_field:{v}->metadata")),
        any::<u64>().prop_map(|v| format!("set_tunnel:{v:#x}")),
        any::<u32>().prop_map(|v| format!("set_queue:{v}")),
        (1u16..0xfeff, 0u8..255).prop_map(|(p, t)| format!("resubmit({p},{t})")),
        (1u16..0xfeff).prop_map(|p| format!("resubmit:{p}")),
        (subfield.clone(), Just(())).prop_map(|(s, ())| format!("load:0->{s}")),
        subfield.clone().prop_map(|s| format!("push:{s},pop:{s}")),
        subfield.prop_map(|s| format!("move:{s}->{s}")),
        any::<[u8; 6]>().prop_map(|a| format!("note:{}", a.map(|b| format!("{b:02x}")).join("."))),
    ];
    let conjunction = (any::<u32>(), 1u8..4).prop_map(|(id, k)| format!("conjunction({id},{k}/4)"));
    let list = |one: BoxedStrategy<String>| prop::collection::vec(one, 0..5).prop_map(|all| all.join(","));
    prop_oneof![9 => list(one.boxed()), 1 => list(conjunction.boxed())]
}

fn flows() -> impl Strategy<Value = String> {
    (matches(), actions(), any::<u16>(), any::<u64>())
        .prop_map(|(m, a, priority, cookie)| format!("priority={priority},cookie={cookie},{m}actions={a}"))
}

#[test]
fn random_flows_are_read_and_written_as_the_stock_tool_does() {
    let mut runner = TestRunner::deterministic();
    let count = testkit::cases("openflow::text_against_stock", 2_000);
    // A register in each makes all take the extension's encoding in OpenFlow 1.0.
    let flows: Vec<String> = (0..count)
        .map(|i| format!("reg15={:#x},{}", i + 1, flows().new_tree(&mut runner).unwrap().current()))
        .collect();
    for version in [Version::V10, Version::V13] {
        let stock = stock_all(version, &flows);
        assert_eq!(stock.len(), flows.len());
        // What the stock tool encodes and cannot decode again is no example.
        for (flow, stock) in flows.iter().zip(stock).filter(|(_, stock)| !stock.starts_with("***")) {
            let parsed = parse_flow_mod(flow, FlowModCommand::Add, PortNames::none());
            let ours = parsed.map_err(|e| e.message).and_then(|parsed| through_the_wire(version, parsed));
            assert_eq!(ours.as_deref(), Ok(stock.as_str()), "{version} {flow}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::cases("openflow::text_round_trip", 512)))]

    #[test]
    fn what_is_written_is_read_back_as_the_same(text in matches(), priority: u16) {
        let m = parse_match(&text, PortNames::none()).unwrap();
        let mut written = String::new();
        write_match(&mut written, &m, priority, PortNames::none());
        let flow = format!("{written} actions=drop");
        let back = parse_flow_mod(&flow, FlowModCommand::Add, PortNames::none()).map_err(|e| e.message);
        let back = back.unwrap_or_else(|e| panic!("{e}: {written} from {text}")).flow_mod;
        prop_assert_eq!(&back.matching, &m, "{} from {}", written, text);
        prop_assert_eq!(back.priority, priority);
    }

    #[test]
    fn no_text_makes_the_readers_panic(text in "[a-z0-9_=:(),/.>\\[\\]+| -]{0,60}", any in ".{0,40}") {
        for text in [&text, &any] {
            let _ = parse_flow_mod(text, FlowModCommand::Delete, PortNames::none());
            let _ = parse_flow_mod(&format!("actions={text}"), FlowModCommand::Add, PortNames::none());
        }
    }
}
