//! Settings of the switch as a whole.

use crate::config::wanted::{Interface, SwitchWide, VLAN_LIMIT_DEFAULT};
use crate::scheduler::Event;
use crate::state::Vswitch;
use host::numa::Topology;
use packet::thread::CpuSet;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;
use transport::Tls;

impl Vswitch {
    /// Makes them what they shall be.
    pub(super) fn set_switch_wide(&mut self, wanted: &SwitchWide) {
        let old = std::mem::replace(&mut self.settings, wanted.clone());
        let limits = |s: &SwitchWide| (s.flow_limit, s.max_idle_ms);
        if old.flow_limit != wanted.flow_limit {
            self.workers.flow_limit_by_hand = None;
        }
        if old.cpus != wanted.cpus || limits(&old) != limits(wanted) {
            self.set_workers();
        }
        self.tell_rules();
        if (old.rxq_policy, old.rxq_isolate) != (wanted.rxq_policy, wanted.rxq_isolate) {
            self.scheduler.note(Event::Policy);
        }
        if old.ct_timeouts_s != wanted.ct_timeouts_s {
            let tracker = self.plane.dp.tracker();
            for zone in old.ct_timeouts_s.keys().chain(wanted.ct_timeouts_s.keys()) {
                tracker.set_zone_timeouts(*zone, wanted.ct_timeouts_s.get(zone).map(Vec::as_slice));
            }
        }
        if old.tls != wanted.tls {
            let files = wanted.tls.clone().map(|files| Arc::new(Tls::new(files)));
            self.tls = files.or_else(|| self.given_tls.clone());
        }
        if old.vlan_limit != wanted.vlan_limit {
            let vlan_limit = wanted.vlan_limit.unwrap_or(VLAN_LIMIT_DEFAULT);
            self.plane.switch.set_vlan_limit(vlan_limit);
            let bridges: Vec<_> = self.plane.control.topology().bridges().cloned().collect();
            for bridge in bridges {
                let config = switch::BridgeConfig { vlan_limit, ..bridge.config.clone() };
                self.plane.control.set_bridge(bridge.idx, config).expect("it is there, looked up above");
            }
        }
        if old.flow_restore_wait != wanted.flow_restore_wait {
            let state =
                if wanted.flow_restore_wait { "nothing is forwarded until it is false" } else { "done" };
            tracing::debug!(target: "bridge", "flow-restore-wait: {state}");
            self.plane.control.set_forwarding(!wanted.flow_restore_wait);
        }
    }

    /// Megaflows per worker, and exact entries.
    pub(crate) fn flow_limit(&self) -> usize {
        self.workers.flow_limit(&self.settings)
    }

    /// Logs how many workers there are, which scripts wait for: once there is a port that they alone poll,
    /// and whenever they change.
    pub(super) fn tell_workers(&mut self) {
        let is_theirs = |i: &Interface| match i.driver() {
            Some(_) if i.is_dummy() => i.dummy_type == Some("dummy-pmd"),
            driver => driver.is_some_and(|driver| driver.is_pmd),
        };
        if !self.devices.ports.values().any(|p| is_theirs(&p.interface)) {
            return;
        }
        self.workers.are_told = true;
        for (node, workers) in self.workers.by_node() {
            tracing::info!(target: "dpif_netdev", "There are {workers} pmd threads on numa node {node}");
        }
    }

    /// From now on one worker on each processor of the mask that is there; those that the switch was started
    /// with where there is none. Their caches are what settings and commands say. [`Self::finish_workers`]
    /// brings it about.
    pub(crate) fn set_workers(&mut self) {
        if !self.workers.topology.is_simulated() {
            self.workers.topology = Topology::of_machine();
        }
        let places = self.workers.choose(self.settings.cpus.as_deref());
        let cpus: Vec<CpuSet> = places.iter().map(|place| place.cpus.clone()).collect();
        if let Some(note) = &self.workers.mask_note {
            tracing::warn!(target: "dpif_netdev", "{note}");
        }
        if let Err(error) = self.plane.dp.begin_workers(&cpus, self.workers.cache(&self.settings)) {
            self.workers.arrived(false);
            tracing::error!(target: "dpif_netdev", "the workers could not be changed: {error}");
        }
    }

    /// Goes on with that. Whether workers are what they shall be, or cannot be.
    pub(crate) fn finish_workers(&mut self) -> bool {
        let Poll::Ready(result) = self.plane.dp.poll_workers(Instant::now()) else { return false };
        if !self.workers.arrived(result.is_ok()) {
            return true;
        }
        match result {
            Ok(()) => {
                for (n, place) in self.workers.places().iter().enumerate() {
                    let (core, node) = (place.core, place.node);
                    let which = match self.plane.dp.worker_cpu(n) {
                        None => "any processor".into(),
                        Some(_) => format!("processor {core}"),
                    };
                    tracing::debug!(target: "dpif_netdev", "worker {n} runs on {which} of NUMA node {node}");
                }
                self.tell_workers();
                self.scheduler.note(Event::Workers);
            }
            Err(error) => tracing::error!(target: "dpif_netdev", "the workers could not be changed: {error}"),
        }
        true
    }
}
