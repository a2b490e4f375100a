//! NORMAL beside Open vSwitch's: two bridges joined by a patch cable, ports of random VLAN modes, and frames
//! with no, one, two and three tags. Both switches are changed alike while it runs, and must send the same
//! frames out of the same ports, byte for byte.

use base::{OfPort, PortNo};
use datapath::Config;
use flow::{Action, Match};
use oracle::common::chance::Chance;
use oracle::pipelines::Uncached;
use oracle::rig::Rig;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use switch::control::FlowMod;
use switch::{
    BridgeConfig, BridgeIdx, Control, PortKind, PortSpec, PriorityTags, Switch, VlanColumns, VlanConfig,
    VlanMode,
};
use testkit::stock::Stock;

/// The ports of the datapath: name, bridge, number in the bridge, number in the datapath.
const PORTS: [(&str, usize, OfPort, PortNo); 9] = [
    ("p1", 0, OfPort(1), PortNo(1)),
    ("p2", 0, OfPort(2), PortNo(2)),
    ("p3", 0, OfPort(3), PortNo(3)),
    ("p4", 0, OfPort(4), PortNo(4)),
    ("p5", 1, OfPort(5), PortNo(5)),
    ("p6", 1, OfPort(6), PortNo(6)),
    ("p7", 1, OfPort(7), PortNo(7)),
    ("br0", 0, OfPort::LOCAL, PortNo(100)),
    ("br1", 1, OfPort::LOCAL, PortNo(101)),
];
/// The ends of the cable.
const ENDS: [(&str, PortNo); 2] = [("pa", PortNo(50)), ("pb", PortNo(51))];
const END_NUMBER: OfPort = OfPort(9);
const VLANS: &[u16] = &[0, 10, 20, 30];
/// Hosts, a group, everybody, and destinations that bridges keep for themselves, their neighbours beside
/// them.
const MACS: &[u64] = &[
    0x0200_0000_0001,
    0x0200_0000_0002,
    0x0200_0000_0003,
    0x0200_0000_0004,
    0x0100_5e00_0001,
    0xffff_ffff_ffff,
    0x0180_c200_0000,
    0x0180_c200_000f,
    0x0180_c200_0010,
    0x00e0_2b00_0000,
    0x00e0_2b00_0004,
    0x00e0_2b00_0005,
    0x00e0_2b00_0006,
    0x0100_0c00_0000,
    0x0100_0ccc_cccc,
    0x0100_0ccc_ccc7,
    0x0100_0ccc_ccc8,
    0x0100_0ccc_cccd,
    0x0100_0ccd_cdcd,
    0x0100_0ccc_cccf,
    0x0100_0ccc_ccd0,
];

/// A port's columns.
#[derive(Clone, Default, Debug)]
struct Columns {
    vlan: VlanColumns,
    protected: bool,
}

impl Columns {
    /// Of an end of a cable: what crosses it has no tag with a priority alone and no third one, see
    /// [`frame`].
    fn random_end(chance: &mut Chance) -> Columns {
        let mut columns = Columns::random(chance);
        columns.vlan.priority_tags = PriorityTags::Never;
        if columns.vlan.mode == Some(VlanMode::Dot1qTunnel) {
            columns.vlan.mode = Some(VlanMode::Access);
        }
        columns
    }

    fn random(chance: &mut Chance) -> Columns {
        let some = |chance: &mut Chance| -> Vec<u16> {
            if chance.one_in(2) {
                return vec![];
            }
            (0..chance.below(3) + 1).map(|_| *chance.pick(VLANS)).collect()
        };
        let mode = *chance.pick(&[
            None,
            Some(VlanMode::Access),
            Some(VlanMode::Trunk),
            Some(VlanMode::NativeTagged),
            Some(VlanMode::NativeUntagged),
            Some(VlanMode::Dot1qTunnel),
        ]);
        // A tunnel through VLAN 0 loses its customers' tags in Open vSwitch; nobody has one.
        let tag = match mode {
            Some(VlanMode::Dot1qTunnel) => Some(*chance.pick(&VLANS[1..])),
            _ => (!chance.one_in(4)).then(|| *chance.pick(VLANS)),
        };
        let vlan = VlanColumns {
            mode,
            tag,
            trunks: some(chance),
            cvlans: some(chance),
            qinq_tpid: *chance.pick(&[0x88a8, 0x8100]),
            priority_tags: *chance.pick(&[
                PriorityTags::Never,
                PriorityTags::IfNonzero,
                PriorityTags::Always,
            ]),
        };
        Columns { vlan, protected: chance.one_in(3) }
    }

    /// For `ovs-vsctl set Port`.
    fn settings(&self) -> String {
        let v = &self.vlan;
        let mode = match v.mode {
            None => "[]",
            Some(VlanMode::Access) => "access",
            Some(VlanMode::Trunk) => "trunk",
            Some(VlanMode::NativeTagged) => "native-tagged",
            Some(VlanMode::NativeUntagged) => "native-untagged",
            Some(VlanMode::Dot1qTunnel) => "dot1q-tunnel",
        };
        let tag = v.tag.map_or("[]".to_string(), |t| t.to_string());
        let set = |vlans: &[u16]| {
            let texts: Vec<String> = vlans
                .iter()
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .map(u16::to_string)
                .collect();
            format!("[{}]", texts.join(","))
        };
        let priority = match v.priority_tags {
            PriorityTags::Never => "never",
            PriorityTags::IfNonzero => "if-nonzero",
            PriorityTags::Always => "always",
        };
        let qinq = if v.qinq_tpid == 0x8100 { "802.1q" } else { "802.1ad" };
        format!(
            "vlan_mode={mode} tag={tag} trunks={} cvlans={} protected={} other_config:priority-tags={priority} \
             other_config:qinq-ethtype={qinq}",
            set(&v.trunks),
            set(&v.cvlans),
            self.protected
        )
    }
}

/// Both switches.
struct Pair {
    stock: Stock,
    control: Control,
    bridges: Vec<BridgeIdx>,
    cached: Rig<Switch>,
    plain: Rig<Uncached>,
    columns: BTreeMap<&'static str, Columns>,
    /// What each end's `options:peer` is, for those that are there.
    ends: [Option<&'static str>; 2],
    history: Vec<String>,
    /// `other_config:vlan-limit`.
    vlan_limit: u8,
}

impl Pair {
    fn new() -> Pair {
        let mut stock = Stock::start();
        let capture =
            |stock: &Stock, port: &str| format!("options:tx_pcap={}", stock.capture(port).display());
        let mut setup = "set Open_vSwitch . other_config:vlan-limit=1".to_string();
        for br in ["br0", "br1"] {
            setup += &format!(
                " -- add-br {br} -- set bridge {br} datapath_type=dummy -- set interface {br} {}",
                capture(&stock, br)
            );
        }
        for (name, bridge, number, _) in &PORTS[..7] {
            setup += &format!(
                " -- add-port br{bridge} {name} -- set interface {name} type=dummy ofport_request={} {}",
                number.0,
                capture(&stock, name)
            );
        }
        stock.vsctl(&setup);
        for (name, ..) in &PORTS {
            stock.appctl("netdev-dummy/set-admin-state", &[name, "up"]);
        }
        let domain = base::rcu::Domain::new();
        let (switch, mut control) = Control::new(domain.clone(), base::hash::HashKey::from_seed(3));
        let mut bridges = vec![];
        for br in ["br0", "br1"] {
            let idx = control.add_bridge(BridgeConfig::new(br));
            let normal = vec![Action::Output { port: OfPort::NORMAL, max_len: 0 }];
            control.flow_mod(idx, &FlowMod { priority: 0, ..FlowMod::add(Match::any(), normal) }, 0).unwrap();
            bridges.push(idx);
        }
        for (name, bridge, number, port_no) in PORTS {
            let kind = if number == OfPort::LOCAL { PortKind::Local } else { PortKind::Normal };
            control
                .add_port(bridges[bridge], PortSpec { kind, ..PortSpec::new(port_no, number, name) })
                .unwrap();
        }
        let numbers: Vec<PortNo> = PORTS.iter().map(|p| p.3).collect();
        let cached = Rig::new(switch.clone(), domain.clone(), Config::default(), &numbers);
        let plain = Rig::new(Arc::new(Uncached(switch)), domain, Config::default(), &numbers);
        let columns = PORTS.iter().map(|p| (p.0, Columns::default()));
        let columns = columns.chain(ENDS.iter().map(|e| (e.0, Columns::default()))).collect();
        Pair {
            stock,
            control,
            bridges,
            cached,
            plain,
            columns,
            ends: [None, None],
            history: vec![],
            vlan_limit: 1,
        }
    }

    /// All addresses are forgotten, all ports configured anew.
    fn renew(&mut self, chance: &mut Chance) {
        self.history.clear();
        self.vlan_limit = chance.below(2) as u8 + 1;
        let mut commands = vec![format!("set Open_vSwitch . other_config:vlan-limit={}", self.vlan_limit)];
        for (name, ..) in PORTS {
            commands.push(self.set_port(name, Columns::random(chance)));
        }
        for bridge in 0..2 {
            commands.push(self.set_bridge(bridge, chance));
        }
        self.run(commands);
        for end in 0..2 {
            let commands = self.put_end(end, Some(ENDS[1 - end].0), chance);
            self.run(commands);
        }
        self.stock.appctl("fdb/flush", &[]);
        self.bridges.iter().for_each(|b| self.control.fdb_flush(*b));
    }

    fn run(&mut self, commands: Vec<String>) {
        let text = commands.join(" -- ");
        self.stock.vsctl(&text);
        self.history.push(text);
    }

    /// Changes our port, and says the command that does the same to theirs.
    fn set_port(&mut self, name: &'static str, columns: Columns) -> String {
        let port_no = PORTS.iter().find(|p| p.0 == name).map(|p| p.3);
        let port_no = port_no.or(ENDS.iter().find(|e| e.0 == name).map(|e| e.1)).unwrap();
        let mut spec = self.control.topology().port(port_no).unwrap().spec.clone();
        spec.vlan = VlanConfig::new(&columns.vlan);
        spec.protected = columns.protected;
        self.control.modify_port(spec).unwrap();
        let command = format!("set port {name} {}", columns.settings());
        self.columns.insert(name, columns);
        command
    }

    fn set_bridge(&mut self, bridge: usize, chance: &mut Chance) -> String {
        let flood_vlans: Vec<u16> = if chance.one_in(3) { vec![*chance.pick(VLANS)] } else { vec![] };
        let forward_bpdu = chance.one_in(3);
        let mut config = self.control.topology().bridge(self.bridges[bridge]).unwrap().config.clone();
        config.forward_bpdu = forward_bpdu;
        config.vlan_limit = self.vlan_limit;
        config.flood_vlans = flood_vlans.iter().copied().collect();
        self.control.set_bridge(self.bridges[bridge], config).unwrap();
        let texts: Vec<String> = flood_vlans.iter().map(u16::to_string).collect();
        format!(
            "set bridge br{bridge} flood_vlans=[{}] other_config:forward-bpdu={forward_bpdu}",
            texts.join(",")
        )
    }

    /// Puts an end of the cable, which may be there already, or takes it away.
    fn put_end(&mut self, end: usize, peer: Option<&'static str>, chance: &mut Chance) -> Vec<String> {
        let (name, port_no) = ENDS[end];
        let there = self.ends[end].is_some();
        self.ends[end] = peer;
        let Some(peer) = peer else {
            if there {
                self.control.remove_port(port_no).unwrap();
            }
            return vec![format!("--if-exists del-port br{end} {name}")];
        };
        let mut commands = vec![];
        let far = ENDS.iter().find(|e| e.0 == peer).map(|e| e.1);
        let kind = PortKind::Patch { peer: far };
        if there {
            let mut spec = self.control.topology().port(port_no).unwrap().spec.clone();
            spec.kind = kind;
            self.control.modify_port(spec).unwrap();
        } else {
            let spec = PortSpec { kind, ..PortSpec::new(port_no, END_NUMBER, name) };
            self.control.add_port(self.bridges[end], spec).unwrap();
            commands.push(format!("add-port br{end} {name}"));
        }
        commands.push(format!("set interface {name} type=patch options:peer={peer} ofport_request=9"));
        if !there {
            let columns = if chance.one_in(2) { Columns::default() } else { Columns::random_end(chance) };
            commands.push(self.set_port(name, columns));
        }
        commands
    }

    fn change(&mut self, chance: &mut Chance) {
        let commands = match chance.below(6) {
            0..=2 => {
                let name = PORTS[chance.below(9) as usize].0;
                vec![self.set_port(name, Columns::random(chance))]
            }
            3 => vec![self.set_bridge(chance.below(2) as usize, chance)],
            _ => {
                let end = chance.below(2) as usize;
                let peer =
                    *chance.pick(&[None, Some("nobody"), Some(ENDS[1 - end].0), Some(ENDS[1 - end].0)]);
                self.put_end(end, peer, chance)
            }
        };
        self.run(commands);
    }

    /// One frame through both. Open vSwitch may obey a change a moment after it was said to be in force: its
    /// threads translate by themselves. So it gets a frame again if its first copies went other ways than
    /// ours.
    fn receive(&mut self, port: (&str, PortNo), frame: &[u8]) -> Result<(), String> {
        self.plain.receive(port.1, vec![frame.to_vec()]);
        self.plain.settle();
        self.plain.events();
        self.cached.receive(port.1, vec![frame.to_vec()]);
        self.cached.settle();
        let (effects, _) = self.cached.events();
        self.control.apply(&effects, 0);
        let ours = [self.plain.take_sent(), self.cached.take_sent()];
        let mut differs = self.differs_from_stock(port.0, frame, &ours);
        for pause in [100, 1000] {
            if differs.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(pause));
            differs = self.differs_from_stock(port.0, frame, &ours);
        }
        differs.map_err(|why| {
            let (bridge, number) = PORTS.iter().find(|p| p.0 == port.0).map(|p| (p.1, p.2)).unwrap();
            let hex: String = frame.iter().map(|b| format!("{b:02x}")).collect();
            let (bridge, in_port) = (format!("br{bridge}"), format!("in_port={}", number.0));
            let trace = self.stock.appctl("ofproto/trace", &[&bridge, &in_port, &hex]);
            let trace = trace.replace("\\n", "\n");
            let history = self.history.join("\n");
            format!("{} receives {frame:02x?};\n{why}, after\n{history}\nA trace made later: {trace}", port.0)
        })
    }

    /// The frame through Open vSwitch, whose ports must send what ours have sent without and with caches.
    fn differs_from_stock(
        &mut self,
        port: &str,
        frame: &[u8],
        [plain, cached]: &[BTreeMap<PortNo, Vec<Vec<u8>>>; 2],
    ) -> Result<(), String> {
        self.stock.receive(port, frame);
        let mut why = Ok(());
        for (name, _, _, port_no) in PORTS {
            let theirs = self.stock.take_sent(name);
            let access = VlanConfig::new(&self.columns[name].vlan).mode == VlanMode::Access;
            for (what, ours) in [("without caches", &plain[&port_no]), ("with caches", &cached[&port_no])] {
                if why.is_ok() && *ours != theirs && !(access && lost_a_tag(ours, &theirs)) {
                    why = Err(format!(
                        "{name} sends\n{theirs:02x?}\nwith Open vSwitch and\n{ours:02x?}\nwith Crosspoint {what}"
                    ));
                }
            }
        }
        why
    }
}

/// A frame that comes in at a port. Left out is where Crosspoint keeps a tag that Open vSwitch loses: one
/// with a priority alone behind another, one behind a tag with a priority alone, and one that comes to lie
/// behind two others. What crosses a cable has one tag at most: of two, one is lost at an access port, or the
/// whole frame behind the cable.
fn frame(chance: &mut Chance, at: &Columns, vlan_limit: u8, cable: bool) -> Vec<u8> {
    let tunnel = VlanConfig::new(&at.vlan).mode == VlanMode::Dot1qTunnel;
    let dst = if chance.one_in(3) { *chance.pick(MACS) } else { *chance.pick(&MACS[..6]) };
    let mut frame = dst.to_be_bytes()[2..].to_vec();
    frame.extend(&chance.pick(&MACS[..4]).to_be_bytes()[2..]);
    let most = match (tunnel, cable) {
        (true, true) => 0,
        (true, false) if vlan_limit == 2 => 1,
        (false, true) => 1,
        _ => 3,
    };
    let count = most.min(*chance.pick(&[0, 0, 1, 1, 1, 2, 2, 3]));
    for i in 0..count {
        let tpid: u16 = *chance.pick(&[0x8100, 0x8100, 0x88a8]);
        frame.extend(tpid.to_be_bytes());
        let vlans = if i > 0 || tunnel || count > 1 && vlan_limit == 2 { &VLANS[1..] } else { VLANS };
        frame.extend((*chance.pick(vlans) | *chance.pick(&[0, 0, 3 << 13])).to_be_bytes());
    }
    frame.extend([0x88, 0xb5]);
    frame.resize(64, chance.below(256) as u8);
    frame
}

/// Whether theirs is ours but for one tag. What goes to an access port because its address was learned there
/// may come from a tunnel, with a customer's tag: Open vSwitch sends it without.
fn lost_a_tag(ours: &[Vec<u8>], theirs: &[Vec<u8>]) -> bool {
    let ([ours], [theirs]) = (ours, theirs) else { return false };
    [12, 16].iter().any(|at| [&ours[..*at], &ours[at + 4..]].concat() == *theirs)
}

#[test]
fn every_vlan_mode_forwards_as_open_vswitch_does_while_ports_cables_and_bridges_change() {
    let mut pair = Pair::new();
    for seed in 0..u64::from(testkit::cases("stock_normal", 60)) {
        let chance = &mut Chance::new(seed);
        pair.renew(chance);
        for _ in 0..6 {
            for _ in 0..8 {
                let port = *chance.pick(&PORTS);
                let cable = pair.ends == [Some("pb"), Some("pa")];
                let frame = frame(chance, &pair.columns[port.0], pair.vlan_limit, cable);
                pair.receive((port.0, port.3), &frame).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            }
            pair.change(chance);
        }
    }
}
