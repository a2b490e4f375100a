//! Shared by the tests through guests: their options, a turn, a row, the rules.

use crate::measure::frames::addresses;
use crate::measure::p2p::Peer;
use crate::measure::trial::Common;
use crate::result::account::Account;
use crate::stats::median;
use crate::units::count;
use base::PortNo;
use flow::{Action, FieldId, Match};
use switch::control::FlowMod;

/// The share of its time that a switch must be busy for its throughput to be its own.
const BUSY_MIN: f64 = 0.95;
/// Descriptors of the guest's rings, in all switches.
pub const RING_SIZE: usize = 256;
/// Ports, in both switches.
pub const SOURCE: PortNo = PortNo(1);
pub const GUEST: PortNo = PortNo(2);
pub const SINK: PortNo = PortNo(3);

/// What loops packets back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestKind {
    /// `dpdk-testpmd` with a virtio-user device.
    Testpmd,
    /// `crosspoint guest`.
    Builtin,
}

/// The packets' way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From a source to the guest, back, and to a sink.
    Loopback,
    /// From one guest to another.
    GuestToGuest,
}

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Frame sizes in bytes, frame check sequence included.
    #[arg(long, value_delimiter = ',', default_value = "64,1518", value_parser = clap::value_parser!(u16).range(64..=1518))]
    pub sizes: Vec<u16>,
    /// Numbers of flows; k and m stand for thousands and millions.
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "10,1k,10k")]
    pub flows: Vec<usize>,
    /// The guest. On the way from guest to guest, and where a rate is looked for, both guests are the
    /// benchmark's own.
    #[arg(long, value_enum, default_value = "testpmd")]
    pub guest: GuestKind,
    /// The packets' way.
    #[arg(long, value_enum, default_value = "loopback")]
    pub path: Way,
    /// Look for the highest rate at which no more than this share of the packets is lost (0: none), by
    /// halving.
    #[arg(long, value_parser = share)]
    pub loss: Option<f64>,
    /// Measure another switch beside ours, in turns.
    #[arg(long, value_enum)]
    pub peer: Option<Peer>,
    #[command(flatten)]
    pub common: Common,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| format!("{text}: expected a share from 0 to below 1"))
}

#[derive(serde::Serialize, Clone)]
pub struct Row {
    pub switch: &'static str,
    pub path: Way,
    pub guest: GuestKind,
    /// The loss that was allowed; none if wire speed was offered.
    pub loss_allowed: Option<f64>,
    pub size: u16,
    pub flows: usize,
    pub queues: u32,
    /// Busy cycles for each packet delivered; null if none was.
    pub cycles_per_packet: f64,
    pub packets_per_cpu_second: f64,
    pub mpps: f64,
    /// The same of each turn.
    pub raw_mpps: Vec<f64>,
    /// Share of the offered packets that were not delivered; null if none was offered. With a source in
    /// memory, packets in flight when a turn begins and ends (at most as many as the guest's two rings hold)
    /// are counted at one end only: if next to nothing is lost in a short turn, this may be slightly below 0.
    pub loss: f64,
    /// Lookups that no cache answered, of the packets that the switch received.
    pub miss_ratio: f64,
    /// Share of a processor.
    pub cpu_switch: f64,
    pub cpu_guest: f64,
    /// The guest, or the tester, was the limit: `mpps` is no figure of the switch's.
    pub void: bool,
    pub runs: u32,
    pub raw: Vec<f64>,
    /// The fate of every packet of all turns.
    pub account: Account,
}

/// One turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    pub seconds: f64,
    /// Packets delivered in these seconds.
    pub delivered: u64,
    /// Whether the packets were offered at the rate that was wanted. That of a search also says whether the
    /// switch was what set the rate.
    pub is_full: bool,
    /// Packets offered, and those of them that were delivered, sooner or later.
    pub offered: u64,
    pub arrived: u64,
    pub lost: Lost,
    /// Packets of `arrived` that were in flight when the turn began.
    pub from_before: u64,
    pub cpu_s: f64,
    /// Share of its CPU time.
    pub busy: f64,
    /// Lookups that no cache answered, of the packets that the switch received.
    pub miss_ratio: f64,
    pub guest_cpu_s: f64,
}

/// Between two readings of the packets received and of those that no cache knew.
pub fn miss_ratio(now: (u64, u64), before: (u64, u64)) -> f64 {
    (now.1 - before.1) as f64 / (now.0 - before.0).max(1) as f64
}

/// Who lost packets of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost {
    /// The tester, whose ring was full when they were due.
    pub not_sent: u64,
    /// The switch, at ports whose rings were full.
    pub at_ports: u64,
    /// A guest, which got them and did not send them back, or not before the turn's end.
    pub in_guest: u64,
}

impl Turn {
    pub fn mpps(&self) -> f64 {
        self.delivered as f64 / self.seconds / 1e6
    }

    /// Not a number if there were no packets.
    pub fn cycles_per_packet(&self) -> f64 {
        match self.delivered {
            0 => f64::NAN,
            packets => self.cpu_s * self.busy * base::clock::tsc_hz() as f64 / packets as f64,
        }
    }

    /// Share of the offered packets that were not delivered; not a number if none was offered.
    pub fn loss(&self) -> f64 {
        1.0 - self.arrived as f64 / self.offered as f64
    }
}

pub fn row(switch: &'static str, args: &Args, size: u16, flows: usize, turns: &[Turn]) -> Row {
    let of = |f: &dyn Fn(&Turn) -> f64| median(&turns.iter().map(f).collect::<Vec<_>>());
    let cycles_per_packet = of(&Turn::cycles_per_packet);
    let busy = of(&|t| t.busy * t.cpu_s / t.seconds);
    let is_own = args.path == Way::GuestToGuest || args.loss.is_some();
    Row {
        switch,
        path: args.path,
        guest: if is_own { GuestKind::Builtin } else { args.guest },
        loss_allowed: args.loss,
        size,
        flows,
        queues: 1,
        cycles_per_packet,
        packets_per_cpu_second: base::clock::tsc_hz() as f64 / cycles_per_packet,
        mpps: of(&Turn::mpps),
        raw_mpps: turns.iter().map(Turn::mpps).collect(),
        loss: of(&Turn::loss),
        miss_ratio: of(&|t| t.miss_ratio),
        cpu_switch: busy,
        cpu_guest: of(&|t| t.guest_cpu_s / t.seconds),
        // A switch that loses nothing need not be busy.
        void: match args.loss {
            Some(_) => turns.iter().any(|turn| !turn.is_full),
            None => of(&|t| t.busy) < BUSY_MIN,
        },
        runs: turns.len() as u32,
        raw: turns.iter().map(Turn::cycles_per_packet).collect(),
        account: account(turns),
    }
}

fn account(turns: &[Turn]) -> Account {
    let sum = |f: fn(&Turn) -> u64| turns.iter().map(f).sum::<u64>();
    let lost = [
        ("switch: no room in a guest's ring", sum(|t| t.lost.at_ports)),
        ("guest: not sent back", sum(|t| t.lost.in_guest)),
    ];
    let dropped = lost.into_iter().filter(|(_, n)| *n > 0).map(|(who, n)| (who.to_string(), n));
    Account {
        offered: sum(|t| t.offered),
        not_sent: sum(|t| t.lost.not_sent),
        received: sum(|t| t.arrived.saturating_sub(t.from_before)),
        foreign: sum(|t| t.from_before),
        dropped: dropped.collect(),
        copies: 1,
        ..Account::default()
    }
}

/// One rule for each flow and direction: to the guest, and what the guest sends to `back`.
pub fn rules(flows: usize, back: Option<PortNo>) -> Vec<FlowMod> {
    let rule = |n: usize, in_port: PortNo, out: PortNo| {
        let (src, dst) = addresses(n);
        let fields = Match::any()
            .with(FieldId::InPort, in_port.0.into())
            .with(FieldId::EthType, 0x0800)
            .with(FieldId::NwSrc, src.to_bits().into())
            .with(FieldId::NwDst, dst.to_bits().into());
        FlowMod::add(fields, vec![Action::Output { port: base::OfPort(out.0 as u16), max_len: 0 }])
    };
    let of_flow = |n: usize| {
        let there = rule(n, SOURCE, GUEST);
        std::iter::once(there).chain(back.map(|back| rule(n, GUEST, back)))
    };
    (0..flows).flat_map(of_flow).collect()
}

/// The same in the syntax of `ovs-ofctl`.
pub fn rules_text(flows: usize, back: Option<PortNo>) -> String {
    let rule = |n: usize, in_port: PortNo, out: PortNo| {
        let (src, dst) = addresses(n);
        format!("ip,in_port={},nw_src={src},nw_dst={dst},actions=output:{}\n", in_port.0, out.0)
    };
    let of_flow = |n: usize| {
        let there = rule(n, SOURCE, GUEST);
        there + &back.map(|back| rule(n, GUEST, back)).unwrap_or_default()
    };
    (0..flows).map(of_flow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_without_packets_has_no_cost_of_one_and_no_share_that_was_lost() {
        let some = Turn {
            seconds: 1.0,
            is_full: true,
            delivered: 90,
            offered: 100,
            arrived: 95,
            cpu_s: 1.0,
            busy: 1.0,
            guest_cpu_s: 1.0,
            lost: Lost { not_sent: 1, at_ports: 2, in_guest: 3 },
            miss_ratio: 0.0,
            from_before: 2,
        };
        let account = account(&[some, some]);
        assert_eq!(
            (account.lost(), account.unexplained(), account.foreign),
            (14, 2, 4),
            "{}",
            account.text()
        );
        assert_eq!(some.cycles_per_packet(), base::clock::tsc_hz() as f64 / 90.0);
        assert!((some.loss() - 0.05).abs() < 1e-9);
        let none = Turn { delivered: 0, offered: 0, arrived: 0, busy: 0.0, ..some };
        let json = serde_json::to_value([none.cycles_per_packet(), none.loss()]).unwrap();
        assert_eq!(json, serde_json::json!([null, null]));
    }
}
