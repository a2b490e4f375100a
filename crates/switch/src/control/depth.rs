//! How deep extraction must read, per port: from the rules that a packet from there can meet.
//!
//! For each table it counts how many rules need each depth, and how many lead to each other table. A bridge's
//! depth is the deepest of the tables that can be reached from table 0; bridges connected by patch ports
//! share the deepest. Widening takes effect before the version that needs it is published. Narrowing waits
//! until nothing deeper has been needed for 10 s, so that flows need not be extracted again at every change.
//!
//! A removed rule affects how specific flows are until it is unlinked, which happens once no worker can see
//! it. So it counts until then.

use super::ended::{Ended, Left};
use crate::by_hand::ByHand;
use crate::rule::Rule;
use crate::switch::Switch;
use crate::topology::{BridgeIdx, PortKind, Topology};
use base::Version;
use flow::Depth;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// How long to wait before narrowing.
const NARROWING_MS: u64 = 10_000;

#[derive(Default)]
struct TableDepth {
    counts: [usize; Depth::ALL.len()],
    /// Rules that lead to a table.
    edges: BTreeMap<u8, usize>,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Depths {
    tables: HashMap<(BridgeIdx, u8), TableDepth>,
    /// In force, by bridge.
    in_force: HashMap<BridgeIdx, Depth>,
    /// What the rules ask for.
    wanted: HashMap<BridgeIdx, Depth>,
    /// Since when a smaller depth would suffice.
    narrower_since: Option<Option<u64>>,
    /// A count has changed between 0 and 1.
    changed: bool,
    /// Removed rules that are not unlinked yet, and count until they are.
    vanishing: Ended<Arc<Rule>>,
    /// How many of these each bridge has.
    vanishing_of: HashMap<BridgeIdx, usize>,
}

impl Depths {
    pub fn add(&mut self, rule: &Rule) {
        let table = self.tables.entry((rule.bridge, rule.table_id)).or_default();
        let count = &mut table.counts[rule.depth() as usize];
        *count += 1;
        self.changed |= *count == 1;
        for target in rule.actions.tables.iter() {
            let edges = table.edges.entry(*target).or_default();
            *edges += 1;
            self.changed |= *edges == 1;
        }
    }

    /// A rule was removed; the first version without it is given.
    pub fn end(&mut self, version: Version, rule: Arc<Rule>) {
        *self.vanishing_of.entry(rule.bridge).or_default() += 1;
        self.vanishing.push(version, rule);
    }

    /// Processes at most `max` rules that are unlinked because they ended up to this version.
    pub fn unlink(&mut self, version: Version, max: usize) -> Left {
        let mut vanishing = std::mem::take(&mut self.vanishing);
        let left = vanishing.unlink(version, max, |rule| {
            self.remove(&rule);
            if let Some(count) = self.vanishing_of.get_mut(&rule.bridge) {
                *count -= 1;
            }
        });
        self.vanishing = vanishing;
        left
    }

    /// Whether no removed rule of the bridge counts any more.
    pub fn is_drained(&self, bridge: BridgeIdx) -> bool {
        self.vanishing_of.get(&bridge).is_none_or(|count| *count == 0)
    }

    /// Forgets a bridge. Rules of its own that still count are looked for among those of all bridges.
    pub fn remove_bridge(&mut self, bridge: BridgeIdx) {
        if !self.is_drained(bridge) {
            self.vanishing.retain(|rule| rule.bridge != bridge);
        }
        self.vanishing_of.remove(&bridge);
    }

    pub fn remove(&mut self, rule: &Rule) {
        let Some(table) = self.tables.get_mut(&(rule.bridge, rule.table_id)) else { return };
        let count = &mut table.counts[rule.depth() as usize];
        *count -= 1;
        self.changed |= *count == 0;
        for target in rule.actions.tables.iter() {
            if let Some(edges) = table.edges.get_mut(target) {
                *edges -= 1;
                if *edges == 0 {
                    table.edges.remove(target);
                    self.changed = true;
                }
            }
        }
    }

    /// The counts were restored, so there is no change.
    pub fn forget_changes(&mut self) {
        self.changed = true;
    }

    /// The depth in force for the ports of a bridge.
    pub fn of_bridge(&self, bridge: BridgeIdx) -> Depth {
        self.in_force.get(&bridge).copied().unwrap_or(Depth::Metadata)
    }

    /// The depth that the tables reachable from table 0 need.
    fn reachable(&self, bridge: BridgeIdx) -> Depth {
        let mut depth = Depth::Metadata;
        let mut seen = [false; 256];
        let mut todo = vec![0u8];
        while let Some(id) = todo.pop() {
            if std::mem::replace(&mut seen[usize::from(id)], true) {
                continue;
            }
            let Some(table) = self.tables.get(&(bridge, id)) else { continue };
            if let Some(deepest) = table.counts.iter().rposition(|n| *n > 0) {
                depth = depth.max(Depth::ALL[deepest]);
            }
            todo.extend(table.edges.keys());
        }
        depth
    }

    /// Computes the depths again if counts have changed, or ports and settings, which give them a meaning.
    pub fn recompute(&mut self, topology: &Topology, topology_changed: bool, by_hand: &ByHand) {
        if !self.changed && !topology_changed {
            return;
        }
        self.changed = false;
        let mut wanted: HashMap<BridgeIdx, Depth> = HashMap::new();
        for bridge in topology.bridges() {
            let mut depth = self.reachable(bridge.idx).max(by_hand.depth());
            // A packet-in includes the whole packet; and if a table miss continues in the next table, no rule
            // shows that.
            if bridge.config.miss_to_controller || !bridge.config.table_misses.is_empty() {
                depth = Depth::Everything;
            }
            // To distinguish spanning tree packets.
            let tells = |p: &crate::topology::Port| p.spec.config.no_recv != p.spec.config.no_recv_stp;
            if bridge.ports().any(tells) {
                depth = depth.max(Depth::Ethernet);
            }
            // A packet that gets a queue's DSCP needs its own DSCP back for other ports.
            if bridge.ports().any(|p| !p.spec.queue_dscp.is_empty()) {
                depth = depth.max(Depth::Network);
            }
            wanted.insert(bridge.idx, depth);
        }
        // Along patch ports until nothing changes: at most as many rounds as there are bridges.
        for _ in topology.bridges() {
            let mut changed = false;
            for port in topology.ports.iter().flatten() {
                let PortKind::Patch { peer: Some(peer) } = port.spec.kind else { continue };
                let Some(far) = topology.port(peer).and_then(|p| wanted.get(&p.bridge).copied()) else {
                    continue;
                };
                let near = wanted.entry(port.bridge).or_insert(Depth::Metadata);
                if *near < far {
                    *near = far;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        self.in_force.retain(|b, _| wanted.contains_key(b));
        self.tables.retain(|(b, _), _| wanted.contains_key(b));
        self.wanted = wanted;
        let narrower = |d: &Depths| d.wanted.iter().any(|(b, w)| d.of_bridge(*b) > *w);
        self.narrower_since = narrower(self).then_some(None);
    }

    /// Widens to the depth that the coming version needs, before it is published.
    pub fn widen(&mut self, topology: &Topology, switch: &Switch) {
        let deeper: Vec<(BridgeIdx, Depth)> =
            (self.wanted.iter()).filter(|(b, w)| self.of_bridge(**b) < **w).map(|(b, w)| (*b, *w)).collect();
        for (bridge, depth) in deeper {
            self.enforce(bridge, depth, topology, switch);
        }
    }

    /// Reduces the depth if the extra depth has not been needed for long.
    pub fn narrow(&mut self, now_ms: u64, topology: &Topology, switch: &Switch) {
        match self.narrower_since {
            Some(None) => self.narrower_since = Some(Some(now_ms)),
            Some(Some(since)) if now_ms >= since + NARROWING_MS => {
                self.narrower_since = None;
                let wanted: Vec<_> = self.wanted.iter().map(|(b, w)| (*b, *w)).collect();
                for (bridge, depth) in wanted {
                    self.enforce(bridge, depth, topology, switch);
                }
            }
            _ => {}
        }
    }

    fn enforce(&mut self, bridge: BridgeIdx, depth: Depth, topology: &Topology, switch: &Switch) {
        self.in_force.insert(bridge, depth);
        let Some(found) = topology.bridge(bridge) else { return };
        for port in found.ports() {
            switch.set_port(port.spec.port_no, Some(port.spec.of_port), depth);
        }
    }
}
