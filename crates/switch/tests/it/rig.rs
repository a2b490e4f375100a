//! A switch with ports, for examples through its public interfaces; and what these examples need.

pub use base::hash::HashKey;
pub use base::rcu::{Domain, Reader};
pub use base::{DropReason, OfPort, PortNo};
pub use datapath::pipeline::FlowView;
pub use datapath::{DpAction, Pipeline, Translation};
pub use flow::action::SubField;
pub use flow::options::{Mapping, MappingError, OptionMatch, Wide};
pub use flow::{Action, Depth, FieldId, Key, Match, Mf};
pub use openflow::{ErrorKind, Version};
pub use std::sync::Arc;
pub use switch::control::{
    Command, FlowMod, FlowModError, Left, OptionError, RemovedReason, RuleEventKind, RuleFilter,
};
pub use switch::{
    BridgeConfig, BridgeIdx, Control, Effect, PortKind, PortSpec, Replaced, RuleFlags, SlotStats, Switch,
    VlanConfig, VlanMode,
};

/// A switch with one bridge and four ports, whose numbers are 101 to 104 in the datapath and 1 to 4 in
/// OpenFlow.
pub struct Rig {
    pub control: Control,
    pub switch: Arc<Switch>,
    pub reader: Reader,
    pub br: BridgeIdx,
}

pub fn rig() -> Rig {
    let domain = Domain::new();
    let (switch, mut control) = Control::new(domain.clone(), HashKey::from_seed(5));
    let br = control.add_bridge(BridgeConfig::new("br0"));
    for n in 1..=4u16 {
        control.add_port(br, PortSpec::new(PortNo(100 + u32::from(n)), OfPort(n), &format!("p{n}"))).unwrap();
    }
    Rig { control, switch, reader: domain.register(), br }
}

pub fn output(port: u16) -> Action {
    Action::Output { port: OfPort(port), max_len: 0 }
}

pub fn packet(port: u32) -> Key {
    let mut key = Key::default();
    key.set(FieldId::DpPort, u128::from(port));
    key.set(FieldId::InPort, u128::from(port - 100));
    key.set(FieldId::EthType, 0x0800);
    key.set(FieldId::EthSrc, 0x0000_0000_0a00 + u128::from(port));
    key.set(FieldId::EthDst, 0x0000_0000_0b00);
    key.set(FieldId::NwSrc, 0x0a00_0001);
    key.set(FieldId::NwDst, 0x0a00_0002);
    key.set(FieldId::NwProto, 17);
    key.set(FieldId::NwTtl, 64);
    key.set(FieldId::TpSrc, 1000);
    key.set(FieldId::TpDst, 2000);
    key
}

impl Rig {
    pub fn add(&mut self, table: u8, priority: i32, m: Match, actions: Vec<Action>) {
        let fm = FlowMod { table_id: table, priority, ..FlowMod::add(m, actions) };
        self.control.flow_mod(self.br, &fm, 0).unwrap();
    }

    pub fn translate(&self, key: &Key) -> Translation<Effect> {
        let mut out = Translation::default();
        self.switch.translate(self.switch.version(), key, &self.reader, &mut out);
        out
    }

    pub fn actions(&self, key: &Key) -> Vec<DpAction> {
        self.translate(key).actions
    }
}

pub fn out(port: u32) -> DpAction {
    DpAction::Output(PortNo(100 + port))
}

pub fn reg(n: u8) -> SubField {
    SubField { field: Mf::Reg(n), offset: 0, count: 32 }
}
