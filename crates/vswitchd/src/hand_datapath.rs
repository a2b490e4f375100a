//! Datapaths besides that of the bridges, which tests create with `dpctl/add-dp`: ports are mere names, and
//! flows are added manually. They have no workers: the control thread forwards the packets of
//! `netdev-dummy/receive` by the first flow that matches, and drops packets that match none. They exist only
//! with `--enable-dummy`.

use crate::odp::{self, ActionContext};
use base::{OfPort, PortNo};
use datapath::DpAction;
use flow::extract::{Ingress, extract};
use flow::{Depth, FieldId, Key};
use ports::{Backing, Driver};
use std::collections::BTreeMap;
use std::fmt::Write;
use switch::by_hand::{HAND_FLOWS_MAX, HandFlow};

/// Most of them.
pub const DATAPATHS_MAX: usize = 8;
/// Most ports of one.
const PORTS_MAX: u32 = 256;
/// Frames that a port keeps for `netdev-dummy/sent`.
const SENT_MAX: usize = 1_024;
/// Maximum total bytes of frames that all ports of a datapath keep.
const SENT_BYTES_MAX: usize = 16 << 20;
/// Longest frame: beyond it no tag is pushed, and the packet is lost.
const FRAME_BYTES_MAX: usize = 65_535;

/// A port.
pub struct Port {
    /// Its name, which no other port of the datapath has.
    pub name: String,
    /// One of the dummies.
    pub driver: &'static Driver,
    /// What was sent there, and not taken yet.
    pub sent: Vec<Vec<u8>>,
}

/// A flow and what it has seen.
pub struct CountedFlow {
    pub flow: HandFlow,
    pub packets: u64,
    pub bytes: u64,
    /// When the last packet came.
    pub used_ms: u64,
}

/// One datapath.
#[derive(Default)]
pub struct HandDatapath {
    pub ports: BTreeMap<u32, Port>,
    pub flows: Vec<CountedFlow>,
    hit: u64,
    missed: u64,
    /// Frames for ports that do not exist, or for which there was no room.
    not_sent: u64,
    /// Bytes of frames that ports keep.
    sent_bytes: usize,
}

/// The row of a type of dummies.
pub fn driver(kind: &str) -> Option<&'static Driver> {
    ports::driver(kind).filter(|driver| driver.backing == Backing::Pretended)
}

impl HandDatapath {
    /// One with the port that all have.
    pub fn new(name: &str) -> HandDatapath {
        let driver = driver(ports::INTERNAL.dummy).expect("a row of the table");
        let own = Port { name: name.into(), driver, sent: Vec::new() };
        HandDatapath { ports: [(0, own)].into(), ..HandDatapath::default() }
    }

    pub fn port_named(&self, name: &str) -> Option<u32> {
        self.ports.iter().find(|(_, port)| port.name == name).map(|(number, _)| *number)
    }

    /// Adds a port, with a free number if none is requested.
    pub fn add_port(
        &mut self,
        name: &str,
        driver: &'static Driver,
        number: Option<u32>,
    ) -> Result<(), &'static str> {
        let free = || (1..PORTS_MAX).find(|number| !self.ports.contains_key(number));
        let number = number.or_else(free).filter(|number| *number < PORTS_MAX);
        let number = number.ok_or("No space left on device")?;
        if self.port_named(name).is_some() || self.ports.contains_key(&number) {
            return Err("File exists");
        }
        self.ports.insert(number, Port { name: name.into(), driver, sent: Vec::new() });
        Ok(())
    }

    /// Whether Open vSwitch would have a worker with flows of its own for one of its ports.
    pub fn has_worker(&self) -> bool {
        self.ports.values().any(|port| port.driver.is_pmd)
    }

    /// Adds a flow, or gives one other actions.
    pub fn put(&mut self, flow: HandFlow, may_add: bool, may_modify: bool) -> Result<(), &'static str> {
        let is_full = self.flows.len() == HAND_FLOWS_MAX;
        match self.flows.iter_mut().find(|f| f.flow.key == flow.key && f.flow.mask == flow.mask) {
            Some(old) if may_modify => old.flow.actions = flow.actions,
            Some(_) => return Err("File exists"),
            None if !may_add => return Err("No such file or directory"),
            None if is_full => return Err("No space left on device"),
            None => self.flows.push(CountedFlow { flow, packets: 0, bytes: 0, used_ms: 0 }),
        }
        Ok(())
    }

    pub fn del(&mut self, flow: &HandFlow) -> Result<(), &'static str> {
        let is_it = |f: &CountedFlow| f.flow.key == flow.key && f.flow.mask == flow.mask;
        let at = self.flows.iter().position(is_it).ok_or("No such file or directory")?;
        self.flows.remove(at);
        Ok(())
    }

    /// A packet from a port.
    pub fn receive(&mut self, number: u32, frame: &[u8], now_ms: u64) {
        let mut key = Key::default();
        let ingress = Ingress::new(OfPort::NONE, PortNo(number), Depth::Everything);
        if extract(frame, frame.len(), &ingress, &mut key).is_none() {
            self.missed += 1;
            return;
        }
        // A bridge's own number of the port is no matter here.
        key.set(FieldId::InPort, 0);
        let Some(found) = self.flows.iter_mut().find(|f| key.equal_under(&f.flow.key, &f.flow.mask)) else {
            self.missed += 1;
            return;
        };
        self.hit += 1;
        found.packets += 1;
        found.bytes += frame.len() as u64;
        found.used_ms = now_ms;
        let mut frame = frame.to_vec();
        for action in found.flow.actions.clone() {
            match action {
                DpAction::Output(to) => self.send(to, &frame),
                DpAction::OutputTrunc { port, max_bytes } => {
                    self.send(port, &frame[..frame.len().min(max_bytes as usize)]);
                }
                DpAction::PushVlan { .. } if frame.len() + 4 > FRAME_BYTES_MAX => {
                    self.not_sent += 1;
                    return;
                }
                DpAction::PushVlan { tpid, tci } => {
                    let tag = [tpid.to_be_bytes(), (tci & !0x1000).to_be_bytes()].concat();
                    frame.splice(12..12, tag);
                }
                DpAction::PopVlan
                    if matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8]) && frame.len() >= 18 =>
                {
                    frame.drain(12..16);
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, to: PortNo, frame: &[u8]) {
        let has_room = self.sent_bytes + frame.len() <= SENT_BYTES_MAX;
        match self.ports.get_mut(&to.0).filter(|port| has_room && port.sent.len() < SENT_MAX) {
            Some(port) => {
                self.sent_bytes += frame.len();
                port.sent.push(frame.to_vec());
            }
            None => self.not_sent += 1,
        }
    }

    /// Frames sent to a port since the last call.
    pub fn take_sent(&mut self, number: u32) -> Vec<Vec<u8>> {
        let sent = self.ports.get_mut(&number).map(|port| std::mem::take(&mut port.sent)).unwrap_or_default();
        self.sent_bytes -= sent.iter().map(Vec::len).sum::<usize>();
        sent
    }

    /// Takes a port away, and what it kept.
    pub fn remove_port(&mut self, number: u32) {
        self.take_sent(number);
        self.ports.remove(&number);
    }

    /// `dpctl/show`.
    pub fn show(&self, name: &str) -> String {
        let mut text = format!(
            "dummy@{name}:\n  lookups: hit:{} missed:{} lost:{}\n  flows: {}\n",
            self.hit,
            self.missed,
            self.missed + self.not_sent,
            self.flows.len()
        );
        for (number, port) in &self.ports {
            let queues = ": configured_rx_queues=1, configured_tx_queues=1, \
                          requested_rx_queues=1, requested_tx_queues=1";
            let queues = if port.driver.is_pmd { queues } else { "" };
            let _ = writeln!(text, "  port {number}: {} ({}{queues})", port.name, port.driver.kind);
        }
        text
    }
}

/// A flow's line in a dump.
pub fn line(f: &CountedFlow, names: odp::PortNames<'_>, verbose: bool, now_ms: u64) -> String {
    let ufid = if verbose { format!("{}, ", odp::ufid(&f.flow.key, &f.flow.mask)) } else { String::new() };
    let ago = now_ms.saturating_sub(f.used_ms);
    let used = match f.packets {
        0 => "never".to_string(),
        _ => format!("{}.{:03}s", ago / 1000, ago % 1000),
    };
    let dp = if verbose { "dp:ovs, " } else { "" };
    let shown = odp::hand_flow(&f.flow.key, &f.flow.mask, names, verbose);
    let actions = odp::actions(&f.flow.actions, ActionContext::of(&f.flow.key), names);
    format!("{ufid}{shown}, packets:{}, bytes:{}, used:{used}, {dp}actions:{actions}\n", f.packets, f.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_flow_makes_of_frames_is_bounded() {
        let mut dp = HandDatapath::new("dp");
        dp.add_port("p", driver("dummy").unwrap(), Some(1)).unwrap();
        let ports = |name: &str| (name == "p").then_some(PortNo(1));
        let put = |dp: &mut HandDatapath, actions: &str| {
            let (key, mask) = odp::read_flow("in_port(1)", &ports).unwrap();
            let actions = odp::read_actions(actions, &ports).unwrap();
            dp.put(HandFlow { key, mask, actions }, true, true).unwrap();
        };
        put(&mut dp, &("push_vlan(vid=1),".repeat(20_000) + "p"));
        dp.receive(1, &[2; 60], 0);
        assert!(dp.take_sent(1).is_empty(), "longer than any frame");
        put(&mut dp, &"p,".repeat(2_000));
        dp.receive(1, &[2; 60_000], 0);
        let kept = dp.take_sent(1);
        assert_eq!(kept.len(), SENT_BYTES_MAX / 60_000);
        dp.receive(1, &[2; 60], 0);
        assert_eq!(dp.take_sent(1).len(), SENT_MAX, "there is room again");
        dp.receive(1, &[2; 60_000], 0);
        dp.remove_port(1);
        assert_eq!(dp.sent_bytes, 0);
    }
}
