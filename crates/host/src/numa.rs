//! Which processors there are, and on which NUMA node each is; and where workers run.
//!
//! Read from sysfs, whenever workers are placed: processors come and go. A processor in no node is on node 0,
//! which is also all that a machine without such nodes has. For tests a topology can be made up
//! (`--dummy-numa`): its processors, called cores, have numbers and nodes, and no worker is bound to any.
//!
//! Source: Linux, Documentation/admin-guide/mm/numaperf.rst and cputopology.rst; ovs-vswitchd(8),
//! --dummy-numa, as the stock program takes it.

use packet::thread::CpuSet;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Nodes have numbers below this.
const NODES_MAX: i64 = 128;
/// Where the kernel describes processors and nodes.
const SYSFS: &str = "/sys/devices/system";

/// See the module documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// The node of each processor, by its number. There is one at least.
    nodes: BTreeMap<usize, usize>,
    is_simulated: bool,
}

/// Where a worker runs, and its id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerPlace {
    /// Its `core_id`: the processor that it is pinned to, or one of those on which it may run.
    pub core: usize,
    /// Its `numa_id`.
    pub node: usize,
    /// Where its thread may run.
    pub cpus: CpuSet,
}

impl Topology {
    /// The machine's.
    pub fn of_machine() -> Topology {
        Topology::read(Path::new(SYSFS))
    }

    fn read(sysfs: &Path) -> Topology {
        let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let mut online = cpu_list(&text(&sysfs.join("cpu/online")));
        if online.is_empty() {
            online = (0..std::thread::available_parallelism().map_or(1, usize::from)).collect();
        }
        let mut nodes: BTreeMap<usize, usize> = online.iter().map(|cpu| (*cpu, 0)).collect();
        let entries = std::fs::read_dir(sysfs.join("node")).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok());
            let Some(node) = number else { continue };
            for cpu in cpu_list(&text(&entry.path().join("cpulist"))) {
                nodes.entry(cpu).and_modify(|its| *its = node);
            }
        }
        Topology { nodes, is_simulated: false }
    }

    /// Parses `--dummy-numa`: the node of each core, separated by commas. A number that is not a valid node
    /// means no core.
    pub fn simulated(list: &str) -> Result<Topology, String> {
        let wrong = || {
            format!(
                "{list}: expected the NUMA node of each processor (below {NODES_MAX}), with commas between"
            )
        };
        let mut nodes = BTreeMap::new();
        for item in list.split(',').filter(|item| !item.is_empty()) {
            let node: i64 = item.trim().parse().map_err(|_| wrong())?;
            match usize::try_from(node) {
                Ok(known) if node < NODES_MAX => drop(nodes.insert(nodes.len(), known)),
                _ => tracing::warn!(target: "ovs_numa", "Invalid numa node {node}"),
            }
        }
        if nodes.is_empty() { Err(wrong()) } else { Ok(Topology { nodes, is_simulated: true }) }
    }

    /// Whether it was given by an option rather than read from the machine.
    pub fn is_simulated(&self) -> bool {
        self.is_simulated
    }

    /// Whether there is such a processor.
    pub fn contains(&self, cpu: usize) -> bool {
        self.nodes.contains_key(&cpu)
    }

    /// The processors of each node that has any.
    fn by_node(&self) -> BTreeMap<usize, Vec<usize>> {
        let mut by_node: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (&cpu, &node) in &self.nodes {
            by_node.entry(node).or_default().push(cpu);
        }
        by_node
    }

    /// What was found, for the log.
    pub fn tell(&self) {
        let by_node = self.by_node();
        for (node, cpus) in &by_node {
            tracing::info!(target: "ovs_numa", "Discovered {} CPU cores on NUMA node {node}", cpus.len());
        }
        tracing::info!(
            target: "ovs_numa",
            "Discovered {} NUMA nodes and {} CPU cores",
            by_node.len(),
            self.nodes.len()
        );
    }

    /// One worker on each of these processors, which are there.
    pub fn pinned(&self, cpus: &[usize]) -> Vec<WorkerPlace> {
        let cpus: BTreeSet<usize> = cpus.iter().copied().collect();
        let place = |cpu: usize| {
            let node = self.nodes.get(&cpu).copied().unwrap_or(0);
            let cpus = if self.is_simulated { CpuSet::all() } else { CpuSet::from(Some(cpu)) };
            WorkerPlace { core: cpu, node, cpus }
        };
        cpus.into_iter().map(place).collect()
    }

    /// This many unpinned workers, distributed over all nodes; by default one on each node. Each runs on any
    /// processor of its node.
    pub fn unpinned(&self, count: Option<usize>) -> Vec<WorkerPlace> {
        let by_node = self.by_node();
        let is_bound = !self.is_simulated && by_node.len() > 1;
        // Workers beyond the number of a node's processors have ids that no processor has.
        let mut beyond = self.nodes.keys().next_back().map_or(0, |last| last + 1)..;
        let mut places: Vec<WorkerPlace> = Vec::new();
        let lap = by_node.len().max(1);
        for (n, (&node, cpus)) in by_node.iter().cycle().take(count.unwrap_or(lap)).enumerate() {
            let core = cpus.get(n / lap).copied().or_else(|| beyond.next()).unwrap_or(n);
            let cpus = if is_bound { CpuSet::of(cpus.clone()) } else { CpuSet::all() };
            places.push(WorkerPlace { core, node, cpus });
        }
        places.sort_by_key(|place| place.core);
        places
    }
}

/// The numbers in a list such as `0-3,8`. Invalid parts are left out.
pub fn cpu_list(text: &str) -> BTreeSet<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(online: &str, nodes: &[(&str, &str)]) -> Topology {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("cpu")).unwrap();
        std::fs::write(dir.path().join("cpu/online"), online).unwrap();
        for (name, cpus) in nodes {
            std::fs::create_dir_all(dir.path().join("node").join(name)).unwrap();
            std::fs::write(dir.path().join("node").join(name).join("cpulist"), cpus).unwrap();
        }
        Topology::read(dir.path())
    }

    fn of(places: &[WorkerPlace]) -> Vec<(usize, usize)> {
        places.iter().map(|place| (place.node, place.core)).collect()
    }

    #[test]
    fn a_machine_of_two_nodes_has_a_worker_on_each_and_it_stays_there() {
        let topology = machine(
            "0-3,6\n",
            &[("node0", "0-1\n"), ("node1", "2-3,5-6\n"), ("node2", "\n"), ("possible", "0-1")],
        );
        let default = topology.unpinned(None);
        assert_eq!(of(&default), [(0, 0), (1, 2)]);
        // Processor 5 is off line, node 2 has memory alone.
        assert_eq!(default[1].cpus, CpuSet::of(vec![2, 3, 6]));
        assert!(topology.contains(6) && !topology.contains(5));
        assert_eq!(of(&topology.unpinned(Some(5))), [(0, 0), (0, 1), (1, 2), (1, 3), (0, 7)]);
        let pinned = topology.pinned(&[6, 0]);
        assert_eq!(of(&pinned), [(0, 0), (1, 6)]);
        assert_eq!(pinned[1].cpus.single(), Some(6));
    }

    #[test]
    fn a_machine_without_nodes_has_one_and_its_worker_runs_anywhere() {
        let topology = machine("0-1\n", &[]);
        assert_eq!(topology.unpinned(None), [WorkerPlace { core: 0, node: 0, cpus: CpuSet::all() }]);
        assert_eq!(of(&topology.unpinned(Some(3))), [(0, 0), (0, 1), (0, 2)]);
        // The system reports no processors: as many as the process may use.
        assert!(machine("", &[]).contains(0));
    }

    #[test]
    fn a_topology_made_up_binds_no_thread() {
        let topology = Topology::simulated("1,0,,-1,7,70000,1").unwrap();
        // The third and fourth core are those behind what stands for none.
        assert_eq!(of(&topology.unpinned(None)), [(1, 0), (0, 1), (7, 2)]);
        assert_eq!(of(&topology.pinned(&[3, 2])), [(7, 2), (1, 3)]);
        let places = topology.pinned(&[3]).into_iter().chain(topology.unpinned(Some(9)));
        assert!(places.map(|place| place.cpus).all(|cpus| cpus == CpuSet::all()));
        for wrong in ["", ",", "-1", "0;1", "a"] {
            assert!(Topology::simulated(wrong).is_err(), "{wrong}");
        }
    }
}
