//! A small switch to test limits on: one bridge, ports 1 to 4 of the same numbers, rules as the test wants
//! them.

use crate::flood::Flood;
use crate::frames::build;
use crate::rig::pool;
use base::hash::HashKey;
use base::rcu::Domain;
use base::{OfPort, PortNo};
use datapath::{Config, Datapath, Event, SteppedWorker};
use flow::{Action, FieldId, Key, Match};
use std::sync::Arc;
use switch::control::FlowMod;
use switch::{BridgeConfig, BridgeIdx, Control, PortSpec, Switch};

/// See the module documentation.
pub struct Home {
    /// First, so that its packets are back in the pool before the datapath goes.
    pub worker: SteppedWorker<Switch>,
    /// Its other half.
    pub dp: Datapath<Switch>,
    /// The switch's control side.
    pub control: Control,
    /// The bridge.
    pub bridge: BridgeIdx,
    /// Ports 1 to 4.
    pub floods: Vec<Arc<Flood>>,
}

/// Turns in a millisecond of stopped time: a worker that is saturated has no more.
const TURNS_PER_MS: u32 = 16;

/// An untagged IPv4/UDP frame of 60 bytes.
pub fn udp_frame() -> Vec<u8> {
    let mut key = Key::default();
    let fields: [(FieldId, u128); 9] = [
        (FieldId::EthDst, 0x0200_0000_0002),
        (FieldId::EthSrc, 0x0200_0000_0001),
        (FieldId::EthType, 0x800),
        (FieldId::NwSrc, 0x0a00_0001),
        (FieldId::NwDst, 0x0a00_0002),
        (FieldId::NwProto, 17),
        (FieldId::NwTtl, 64),
        (FieldId::TpSrc, 1000),
        (FieldId::TpDst, 2000),
    ];
    fields.into_iter().for_each(|(f, v)| key.set(f, v));
    build(&key, &[], 0)
}

/// A UDP frame between two of many addresses, with a number at its end.
pub fn numbered_frame(source: u64, destination: u64, number: u64) -> Vec<u8> {
    let mut frame = udp_frame();
    frame[26..30].copy_from_slice(&(0x0b00_0000 + source as u32).to_be_bytes());
    frame[30..34].copy_from_slice(&(0x0a00_0000 + destination as u32).to_be_bytes());
    let end = frame.len() - 8;
    frame[end..].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Output to a port.
pub fn output(port: u16) -> Action {
    Action::Output { port: OfPort(port), max_len: 128 }
}

/// One switch with one bridge and its ports, which are no rig's yet.
pub fn bridge_of(ports: &[u16]) -> (Arc<Domain>, Arc<Switch>, Control, BridgeIdx) {
    let domain = Domain::new();
    let (switch, mut control) = Control::new(domain.clone(), HashKey::from_seed(7));
    let bridge = control.add_bridge(BridgeConfig::new("br0"));
    for &p in ports {
        control.add_port(bridge, PortSpec::new(PortNo(p.into()), OfPort(p), "p")).expect("a port");
    }
    (domain, switch, control, bridge)
}

impl Home {
    /// A home with this configuration and one flow per port.
    pub fn new(config: Config) -> Home {
        let (domain, switch, control, bridge) = bridge_of(&[1, 2, 3, 4]);
        let mut dp = Datapath::new(pool(), switch, domain, config).expect("a datapath");
        dp.reserve_slots(4096);
        let worker = dp.stepped_worker().expect("a worker");
        let mut floods = vec![];
        for no in (1..=4).map(PortNo) {
            let (flood, port) = Flood::new(no, udp_frame(), 1);
            dp.add_port(no, port).expect("a port");
            floods.push(flood);
        }
        Home { worker, dp, control, bridge, floods }
    }

    /// Adds a rule to table 0.
    pub fn rule(&mut self, priority: i32, matching: Match, actions: Vec<Action>) {
        let fm = FlowMod { priority, ..FlowMod::add(matching, actions) };
        self.control.flow_mod(self.bridge, &fm, 0).expect("a rule");
    }

    /// Receives bursts at a port (1 to 4) and takes turns until they have left.
    pub fn flood(&mut self, port: usize, bursts: u64) {
        self.floods[port - 1].set_bursts(bursts);
        while self.floods[port - 1].bursts_left() > 0 {
            self.worker.turn();
        }
    }

    /// Folds all counters.
    pub fn settle(&mut self) {
        while self.worker.turn() {}
    }

    /// Takes turns for so long. Stopped time is moved by a millisecond after every few.
    pub fn turn_for(&mut self, ms: u64) {
        if base::clock::stopped_tsc() != u64::MAX {
            for _ in 0..ms {
                base::clock::warp(1);
                (0..TURNS_PER_MS).for_each(|_| _ = self.worker.turn());
            }
            return;
        }
        let end = self.dp.now_ms() + ms;
        while self.dp.now_ms() < end {
            self.worker.turn();
        }
    }

    /// The control thread looks at what the worker tells.
    pub fn pump(&mut self) {
        let now_ms = self.dp.now_ms();
        for event in self.dp.events(usize::MAX) {
            match event {
                Event::Effect(effect) => self.control.apply(&[effect], now_ms),
                Event::PacketIn(packet_in) => self.dp.free(packet_in.packet),
                Event::PortGone(port) => panic!("port {port} cannot be gone"),
            }
        }
    }

    /// Packets of the only rule with this priority.
    pub fn rule_packets(&self, priority: i32) -> u64 {
        let rules = self.control.rules(self.bridge, &switch::control::RuleFilter::default());
        let rule = rules.iter().find(|r| r.priority == priority).expect("the rule");
        self.dp.slot(rule.slot).packets
    }
}
