//! Bridges, ports and interfaces looked up by name, in the rows including the transaction's changes.

use super::command::{Context, Stop};
use super::model::{Bridge, Interface, Model, Port};
use ovsdb::{Datum, Uuid};

impl Context<'_> {
    /// The model of the rows, including the transaction's changes.
    pub fn model(&mut self) -> Result<&Model, Stop> {
        if self.model.is_none() {
            let model = self.build_model()?;
            self.model = Some(model);
        }
        Ok(self.model.as_ref().expect("it was just built"))
    }

    fn build_model(&mut self) -> Result<Model, Stop> {
        let mut model = Model::default();
        let mut real = Vec::new();
        for bridge in self.kept("Open_vSwitch", self.root, "bridges", "Bridge")? {
            let name = self.string("Bridge", bridge, "name")?;
            if model.bridges.contains_key(&name) {
                self.warn("vsctl", format!("{name}: database contains duplicate bridge name"));
                continue;
            }
            model.bridges.insert(name.clone(), Bridge { row: bridge, fake: None, vlan: 0 });
            real.push((name, bridge));
        }
        for (parent, row) in &real {
            for port in self.kept("Bridge", *row, "ports", "Port")? {
                let Some(vlan) = self.fake_bridge_vlan(port)? else { continue };
                let name = self.string("Port", port, "name")?;
                if let Some(other) = model.child_on(parent, vlan) {
                    let text = format!(
                        "{parent}: bridge has multiple VLAN bridges ({other} and {name}) for VLAN {vlan}, but only one is allowed"
                    );
                    self.warn("vsctl", text);
                }
                model.bridges.entry(name).or_insert(Bridge {
                    row: *row,
                    fake: Some((parent.clone(), port)),
                    vlan,
                });
            }
        }
        for (bridge, row) in &real {
            for port in self.kept("Bridge", *row, "ports", "Port")? {
                self.add_to_model(&mut model, bridge, port)?;
            }
        }
        Ok(model)
    }

    /// The rows of `to` that a column refers to, without those that were destroyed in this call, though the
    /// database keeps them as long as the column refers to them.
    fn kept(&self, table: &str, row: Uuid, column: &str, to: &str) -> Result<Vec<Uuid>, Stop> {
        let to = self.table_idx(to)?;
        let mut rows = self.references(table, row, column)?;
        rows.retain(|row| self.txn.row(to, *row).is_some());
        Ok(rows)
    }

    /// The VLAN of a port that makes a fake bridge.
    fn fake_bridge_vlan(&self, port: Uuid) -> Result<Option<i64>, Stop> {
        let is_fake = self.get("Port", port, "fake_bridge")?.as_bool() == Some(true);
        let tag = self.get("Port", port, "tag")?.as_integer();
        Ok(tag.filter(|tag| is_fake && (0..=4095).contains(tag)))
    }

    /// Adds a port of the real bridge `parent` to the bridge that it belongs to.
    pub(super) fn add_to_model(&mut self, model: &mut Model, parent: &str, port: Uuid) -> Result<(), Stop> {
        let name = self.string("Port", port, "name")?;
        if model.bridges.contains_key(&name) {
            return Ok(()); // a bridge's own port
        }
        let tag = self.get("Port", port, "tag")?.as_integer();
        let bridge = tag.and_then(|tag| model.child_on(parent, tag)).unwrap_or(parent).to_owned();
        if let Some(other) = model.ports.get(&name) {
            let text = match other.row == port {
                true => format!("{name}: port is in multiple bridges ({parent} and {})", other.bridge),
                false => format!("{name}: database contains duplicate port name"),
            };
            self.warn("vsctl", text);
            return Ok(());
        }
        model.ports.insert(name.clone(), Port { row: port, bridge });
        for interface in self.kept("Port", port, "interfaces", "Interface")? {
            let interface_name = self.string("Interface", interface, "name")?;
            if let Some(other) = model.interfaces.get(&interface_name) {
                let text = match other.row == interface {
                    true => format!(
                        "{interface_name}: interface is in multiple ports ({} and {name})",
                        other.port
                    ),
                    false => format!("{interface_name}: database contains duplicate interface name"),
                };
                self.warn("vsctl", text);
                continue;
            }
            model.interfaces.insert(interface_name, Interface { row: interface, port: name.clone() });
        }
        Ok(())
    }

    /// The bridge called `name`.
    pub fn bridge(&mut self, name: &str) -> Result<Bridge, Stop> {
        let bridge = self.model()?.bridges.get(name).cloned();
        let bridge = bridge.ok_or_else(|| Stop::Fatal(format!("no bridge named {name}")))?;
        let root = self.root;
        self.verify("Open_vSwitch", root, "bridges")?;
        Ok(bridge)
    }

    /// The bridge called `name`, which must be a real one.
    pub fn real_bridge(&mut self, name: &str) -> Result<Bridge, Stop> {
        let bridge = self.bridge(name)?;
        match bridge.fake {
            None => Ok(bridge),
            Some(_) => Err(Stop::Fatal(format!("{name} is a fake bridge"))),
        }
    }

    /// The port called `name`.
    pub fn port(&mut self, name: &str) -> Result<Port, Stop> {
        let port = self.model()?.ports.get(name).cloned();
        self.verify_ports()?;
        port.ok_or_else(|| Stop::Fatal(format!("no port named {name}")))
    }

    /// The interface called `name`.
    pub fn interface(&mut self, name: &str) -> Result<Interface, Stop> {
        let interface = self.model()?.interfaces.get(name).cloned();
        self.verify_ports()?;
        interface.ok_or_else(|| Stop::Fatal(format!("no interface named {name}")))
    }

    /// The transaction relies on which bridges there are, and on their ports. Names are unique by the schema,
    /// so that interfaces need not be looked at.
    pub fn verify_ports(&mut self) -> Result<(), Stop> {
        if std::mem::replace(&mut self.ports_verified, true) {
            return Ok(());
        }
        let root = self.root;
        self.verify("Open_vSwitch", root, "bridges")?;
        let (table, column) = self.column_idx("Bridge", "ports")?;
        let bridges: Vec<Uuid> = self.txn.table(table).iter().map(ovsdb::Row::uuid).collect();
        bridges.into_iter().for_each(|bridge| self.txn.verify(table, bridge, column));
        Ok(())
    }

    /// An error, which begins with `what`, where a bridge, a port or an interface is called `name` already.
    pub fn check_conflicts(&mut self, name: &str, what: &str) -> Result<(), Stop> {
        let model = self.model()?;
        let conflict = if model.bridges.contains_key(name) {
            Some(format!("{what} because a bridge named {name} already exists"))
        } else if let Some(port) = model.ports.get(name) {
            Some(format!("{what} because a port named {name} already exists on bridge {}", port.bridge))
        } else if let Some(interface) = model.interfaces.get(name) {
            let bridge = &model.ports[&interface.port].bridge;
            Some(format!("{what} because an interface named {name} already exists on bridge {bridge}"))
        } else {
            None
        };
        self.verify_ports()?;
        conflict.map_or(Ok(()), |text| Err(Stop::Fatal(text)))
    }

    /// Takes a port and its interfaces away.
    pub fn delete_port(&mut self, bridge_row: Uuid, port: Uuid) -> Result<(), Stop> {
        self.remove("Bridge", bridge_row, "ports", Datum::scalar(port))?;
        for interface in self.references("Port", port, "interfaces")? {
            self.delete("Interface", interface)?;
        }
        self.delete("Port", port)?;
        self.model = None;
        Ok(())
    }
}
