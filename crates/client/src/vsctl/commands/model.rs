//! Bridges, ports and interfaces by name, as `vsctl` sees them: a fake bridge is a bridge, and its ports are
//! its own, though in the database they are its parent's.
//!
//! Source: ovs-vsctl(8), "Linux VLAN Bridging Compatibility".

use std::collections::BTreeMap;

use ovsdb::Uuid;

/// A bridge, real or fake.
#[derive(Clone, Debug)]
pub struct Bridge {
    /// Its row in the table Bridge; for a fake bridge, its parent's.
    pub row: Uuid,
    /// For a fake bridge: its parent's name, and its own port.
    pub fake: Option<(String, Uuid)>,
    /// 0 for a real bridge.
    pub vlan: i64,
}

/// A port that is not a bridge's own.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its row.
    pub row: Uuid,
    /// The bridge, real or fake, that has it.
    pub bridge: String,
}

/// An interface of such a port.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its row.
    pub row: Uuid,
    /// The port that has it.
    pub port: String,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// By name.
    pub bridges: BTreeMap<String, Bridge>,
    /// By name.
    pub ports: BTreeMap<String, Port>,
    /// By name.
    pub interfaces: BTreeMap<String, Interface>,
}

impl Model {
    /// The fake bridge on `vlan` of the bridge called `parent`.
    pub fn child_on(&self, parent: &str, vlan: i64) -> Option<&str> {
        let is_child = |bridge: &Bridge| {
            bridge.vlan == vlan && bridge.fake.as_ref().is_some_and(|(name, _)| name == parent)
        };
        self.bridges.iter().find(|(_, bridge)| is_child(bridge)).map(|(name, _)| name.as_str())
    }

    /// The interfaces of a port, by name.
    pub fn interfaces_of<'a>(&'a self, port: &'a str) -> impl Iterator<Item = (&'a str, Uuid)> {
        self.interfaces
            .iter()
            .filter(move |(_, interface)| interface.port == port)
            .map(|(name, interface)| (name.as_str(), interface.row))
    }
}
