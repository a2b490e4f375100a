//! What Open vSwitch's datapath logs at `dbg`, and its tests look for: new flows and misses under
//! `dpif_netdev`, and under `dpif` all flows again and again, as its revalidators do.
//!
//! A flow may come at any time, as by a cable from another dummy. So the log goes by what it has seen, and
//! looks again in between.

use super::datapath::for_all_flows;
use super::waits::counters;
use crate::odp::{self, ActionContext};
use crate::state::{Shared, Vswitch};
use base::{OfPort, PortNo};
use datapath::DumpedFlow;
use flow::Key;
use flow::extract::extract;
use std::collections::HashMap;
use std::time::Duration;

/// How often all flows are logged where `dpif` logs that much.
const DUMP_INTERVAL: Duration = Duration::from_millis(500);
/// How often the log looks for new flows where `dpif_netdev` logs that much.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Logs new flows while `dpif_netdev` logs at `dbg`, whoever caused them.
pub(crate) async fn watch(shared: Shared) {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        if let Err(error) = log_new_flows(&shared).await {
            tracing::warn!(target: "dpif_netdev", "new flows were not looked for: {error}");
        }
    }
}

/// Logs the flows that are new since the last call. The first call while the log is on sees where it begins.
pub(super) async fn log_new_flows(shared: &Shared) -> Result<(), String> {
    if !logs_flows() {
        shared.borrow_mut().commands.logged_flows = None;
        return Ok(());
    }
    let now = flow_texts(shared).await?;
    let mut vswitch = shared.borrow_mut();
    if let Some(before) = &vswitch.commands.logged_flows {
        let mut new: Vec<_> = now.iter().filter(|(key, _)| !before.contains(*key)).collect();
        new.sort();
        for (key, actions) in new {
            tracing::debug!(target: "dpif_netdev", "flow_add: {key}, actions:{actions}");
        }
    }
    vswitch.commands.logged_flows = Some(now.into_keys().collect());
    Ok(())
}

/// Logs all flows again and again while `dpif` logs at `dbg`, as the revalidators of Open vSwitch do, whose
/// tests look for it.
pub(crate) async fn log_dumps(shared: Shared) {
    loop {
        tokio::time::sleep(DUMP_INTERVAL).await;
        if !tracing::event_enabled!(target: "dpif", tracing::Level::DEBUG) {
            continue;
        }
        counters(&shared).await;
        let see = |vswitch: &Vswitch, _, flows: &[DumpedFlow]| {
            for flow in flows {
                let (ufid, shown) =
                    (odp::ufid(&flow.key, &flow.mask), odp::flow(&flow.key, &flow.mask, &odp::numbers, true));
                let (packets, bytes) = flow.since_made();
                let ago = vswitch.plane.now_ms().saturating_sub(flow.used_ms);
                let used =
                    if packets == 0 { "never".into() } else { format!("{}.{:03}s", ago / 1000, ago % 1000) };
                let actions = odp::actions(&flow.actions, ActionContext::of(&flow.key), &odp::numbers);
                tracing::debug!(
                    target: "dpif",
                    "{}: flow_dump {ufid} {shown}, packets:{packets}, bytes:{bytes}, used:{used}, \
                     actions:{actions}",
                    vswitch.plane.name()
                );
            }
        };
        if let Err(error) = for_all_flows(&shared, see).await {
            tracing::warn!(target: "dpif", "flows were not dumped: {error}");
        }
    }
}

/// Whether new flows are logged.
fn logs_flows() -> bool {
    tracing::event_enabled!(target: "dpif_netdev", tracing::Level::DEBUG)
}

/// The actions of all cached flows by their keys.
async fn flow_texts(shared: &Shared) -> Result<HashMap<String, String>, String> {
    let mut texts = HashMap::new();
    let see = |_: &Vswitch, _, flows: &[DumpedFlow]| {
        for flow in flows {
            let key = odp::flow(&flow.key, &flow.mask, &odp::numbers, false);
            texts.insert(key, odp::actions(&flow.actions, ActionContext::of(&flow.key), &odp::numbers));
        }
    };
    for_all_flows(shared, see).await?;
    Ok(texts)
}

/// Packets so far whose flow was not cached.
pub(super) fn misses(vswitch: &Vswitch) -> u64 {
    (0..vswitch.plane.dp.workers()).map(|n| vswitch.plane.dp.worker_stats(n).misses.get()).sum()
}

impl Vswitch {
    /// Logs a packet that was a miss, as Open vSwitch does. Its tests look for that.
    pub(super) fn log_miss(&self, port_no: PortNo, frame: &[u8], before: u64) {
        if misses(self) == before || !logs_flows() {
            return;
        }
        let mut key = Key::default();
        let of_port = self.devices.ports.get(&port_no).map_or(OfPort::NONE, |p| p.of_port);
        let ingress = self.plane.ingress(of_port, port_no);
        if extract(frame, frame.len(), &ingress, &mut key).is_none() {
            return;
        }
        let flow = odp::packet(&key, &odp::numbers);
        let name = self.plane.name();
        tracing::debug!(target: "dpif_netdev", has_lines = true, "{name}: miss upcall:\n{flow}");
    }
}
