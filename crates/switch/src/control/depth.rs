//! How deep extraction must read, per port: from the rules that a packet from there can meet.
//!
//! Counted per table: how many rules ask for each depth, and how many lead to each other table. A bridge's
//! depth is the deepest of the tables that can be reached from table 0; bridges that patch cables connect
//! share the deepest. Widening is in force before the version that needs it is published; narrowing waits
//! until nothing deeper has been needed for 10 s, so that flows need not be extracted anew at each turn.
//!
//! A rule that is gone goes on deciding how specific flows are until it is unlinked, which takes as long as a
//! worker may see it. So it counts until then.

use super::{Inner, Left};
use crate::rule::Rule;
use crate::topology::{BridgeIdx, PortKind};
use base::Version;
use flow::Depth;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Narrowing waits so long.
const NARROWING_MS: u64 = 10_000;

#[derive(Default)]
struct TableDepth {
    counts: [usize; Depth::ALL.len()],
    /// Rules that lead to a table.
    edges: BTreeMap<u8, usize>,
}

/// See the module's text.
#[derive(Default)]
pub(super) struct Depths {
    tables: HashMap<(BridgeIdx, u8), TableDepth>,
    /// In force, by bridge.
    in_force: HashMap<BridgeIdx, Depth>,
    /// What the rules ask for.
    wanted: HashMap<BridgeIdx, Depth>,
    /// Since when less would do.
    narrower_since: Option<Option<u64>>,
    /// Something was counted from 0 to 1 or back.
    changed: bool,
    /// Rules that are gone and not unlinked yet, with the first version without them, oldest first.
    vanishing: VecDeque<(Version, Arc<Rule>)>,
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

    /// From this version on the rule is gone; it counts until it is unlinked.
    pub fn vanish(&mut self, rule: Arc<Rule>, version: Version) {
        self.vanishing.push_back((version, rule));
    }

    /// What has vanished up to this version is unlinked: looks at `max` rules of it.
    pub fn unlinked(&mut self, version: Version, max: usize) -> Left {
        for _ in 0..max {
            let Some((_, rule)) = self.vanishing.pop_front_if(|(since, _)| *since <= version) else {
                return Left::Nothing;
            };
            self.remove(&rule);
        }
        Left::More
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

    /// What was counted was taken back.
    pub fn forget_changes(&mut self) {
        self.changed = true;
    }

    /// The depth in force for the ports of a bridge.
    pub fn of_bridge(&self, bridge: BridgeIdx) -> Depth {
        self.in_force.get(&bridge).copied().unwrap_or(Depth::Metadata)
    }

    /// What the tables reachable from table 0 ask for.
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
}

impl Inner {
    /// Ports or settings changed: counts stay, but what they mean may not.
    pub(super) fn recompute_depths(&mut self) {
        if !self.depths.changed && !self.topology_changed {
            return;
        }
        self.depths.changed = false;
        let bridges: Vec<BridgeIdx> = self.topology.bridges().map(|b| b.idx).collect();
        let mut wanted: HashMap<BridgeIdx, Depth> = HashMap::new();
        for bridge in self.topology.bridges() {
            let mut depth = self.depths.reachable(bridge.idx).max(self.by_hand.depth());
            // A packet-in has all of a packet; and what goes on to the next table is of no rule's doing.
            if bridge.config.miss_to_controller || !bridge.config.table_misses.is_empty() {
                depth = Depth::Everything;
            }
            // To tell spanning tree from the rest.
            let tells = |p: &crate::topology::Port| p.spec.config.no_recv != p.spec.config.no_recv_stp;
            if bridge.ports().any(tells) {
                depth = depth.max(Depth::Ethernet);
            }
            // A packet that is marked gets its own DSCP back for other ports.
            if bridge.ports().any(|p| !p.spec.queue_dscp.is_empty()) {
                depth = depth.max(Depth::Network);
            }
            wanted.insert(bridge.idx, depth);
        }
        // Along cables until nothing changes any more: at most as often as there are bridges.
        for _ in &bridges {
            let mut changed = false;
            for port in self.topology.ports.iter().flatten() {
                let PortKind::Patch { peer: Some(peer) } = port.spec.kind else { continue };
                let Some(far) = self.topology.port(peer).and_then(|p| wanted.get(&p.bridge).copied()) else {
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
        self.depths.in_force.retain(|b, _| wanted.contains_key(b));
        self.depths.tables.retain(|(b, _), _| wanted.contains_key(b));
        self.depths.vanishing.retain(|(_, rule)| wanted.contains_key(&rule.bridge));
        self.depths.wanted = wanted;
        let narrower = |d: &Depths| d.wanted.iter().any(|(b, w)| d.of_bridge(*b) > *w);
        self.depths.narrower_since = narrower(&self.depths).then_some(None);
    }

    /// Before the coming version is published: as deep as it needs.
    pub(super) fn widen(&mut self) {
        let deeper: Vec<(BridgeIdx, Depth)> = (self.depths.wanted.iter())
            .filter(|(b, w)| self.depths.of_bridge(**b) < **w)
            .map(|(b, w)| (*b, *w))
            .collect();
        for (bridge, depth) in deeper {
            self.enforce(bridge, depth);
        }
    }

    /// Gives up depth that nobody has needed for long.
    pub(super) fn narrow(&mut self, now_ms: u64) {
        self.recompute_depths();
        match self.depths.narrower_since {
            Some(None) => self.depths.narrower_since = Some(Some(now_ms)),
            Some(Some(since)) if now_ms >= since + NARROWING_MS => {
                self.depths.narrower_since = None;
                let wanted: Vec<_> = self.depths.wanted.iter().map(|(b, w)| (*b, *w)).collect();
                for (bridge, depth) in wanted {
                    self.enforce(bridge, depth);
                }
            }
            _ => {}
        }
    }

    fn enforce(&mut self, bridge: BridgeIdx, depth: Depth) {
        self.depths.in_force.insert(bridge, depth);
        let Some(found) = self.topology.bridge(bridge) else { return };
        for port in found.ports() {
            self.switch.set_port(port.spec.port_no, Some(port.spec.of_port), depth);
        }
    }
}
