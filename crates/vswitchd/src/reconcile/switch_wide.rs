//! Settings of the switch as a whole.

use crate::config::wanted::{SwitchWide, VLAN_LIMIT_DEFAULT};
use crate::state::Vswitch;

impl Vswitch {
    /// Applies them.
    pub(super) fn set_switch_wide(&mut self, wanted: &SwitchWide) {
        let old = std::mem::replace(&mut self.settings, wanted.clone());
        self.workers.set(&mut self.plane, &wanted.workers);
        if !self.bridges.is_empty() {
            self.workers.tell_rules();
        }
        if old.ct_timeouts_s != wanted.ct_timeouts_s {
            let tracker = self.plane.dp.tracker();
            for zone in old.ct_timeouts_s.keys().chain(wanted.ct_timeouts_s.keys()) {
                tracker.set_zone_timeouts(*zone, wanted.ct_timeouts_s.get(zone).map(Vec::as_slice));
            }
        }
        if old.tls != wanted.tls {
            self.tls.set(wanted.tls.as_ref());
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
        // Set while the switch runs, it is for the next start: rules in force go on.
        if self.awaits_rules && !wanted.flow_restore_wait {
            self.awaits_rules = false;
            // Otherwise controllers that nobody has called yet are given up, and the rules with them.
            let links = self.bridges.values_mut().flat_map(|b| b.control.links.values_mut());
            links.for_each(|link| link.last_admitted = transport::clock::now());
        }
        self.plane.control.set_forwarding(!self.awaits_rules);
    }
}
