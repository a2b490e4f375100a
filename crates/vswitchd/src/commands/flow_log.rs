//! What Open vSwitch's datapath logs at `dbg`, and its tests look for: new flows and misses under
//! `dpif_netdev`; under `dpif`, changed flows, and repeatedly all flows, as its revalidators do.
//!
//! A flow may appear at any time, for example through a cable from another dummy. So the log remembers what
//! it has seen, and checks again in between.

use super::actions;
use super::waits::{counters, for_all_flows, wait_for};
use crate::logged_flows::{Change, FlowText};
use crate::odp;
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

/// How long `revalidator/wait` waits for the end of what workers send: under a flood there is none.
const EVENTS_WAIT: Duration = Duration::from_secs(1);

/// Changes take effect at once. What remains to wait for is that what workers have sent is handled and that
/// flows are logged, if they are.
pub fn wait(vswitch: &mut Vswitch, _: &[String]) -> Result<String, String> {
    vswitch.begin(async |shared| {
        wait_for(EVENTS_WAIT, || (!shared.borrow_mut().handle_events()).then_some(())).await;
        log_dump(&shared).await;
        Ok(String::new())
    });
    Ok(String::new())
}

/// Logs new and changed flows, whatever caused them, while `dpif_netdev` logs at `dbg`.
pub(crate) async fn watch(shared: Shared) {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        if let Err(error) = log_new_flows(&shared).await {
            tracing::debug!(target: "dpif_netdev", "cannot list new flows: {error}");
        }
    }
}

/// Logs flows that are new or changed since the last call. The first call while the log is on records the
/// starting point.
pub(super) async fn log_new_flows(shared: &Shared) -> Result<(), String> {
    if !logs_flows() {
        shared.borrow_mut().commands.logged_flows.forget();
        return Ok(());
    }
    let look = shared.borrow_mut().commands.logged_flows.begin();
    let flows = flow_texts(shared).await?;
    let mut vswitch = shared.borrow_mut();
    for (ufid, FlowText { key, whole, actions }, change) in vswitch.commands.logged_flows.end(look, flows) {
        match change {
            Change::New => tracing::debug!(target: "dpif_netdev", "flow_add: {key}, actions:{actions}"),
            Change::Actions => {
                let name = vswitch.plane.name();
                tracing::debug!(target: "dpif", "{name}: put[modify] {ufid} {whole}, actions:{actions}");
            }
        }
    }
    Ok(())
}

/// Logs all flows again and again while `dpif` logs at `dbg`, as the revalidators of Open vSwitch do, whose
/// tests look for it.
pub(crate) async fn log_dumps(shared: Shared) {
    loop {
        tokio::time::sleep(DUMP_INTERVAL).await;
        if logs_dumps() {
            counters(&shared).await;
            log_dump(&shared).await;
        }
    }
}

/// Logs all flows, where `dpif` logs at `dbg`. Their counters are as of the last fold.
pub(super) async fn log_dump(shared: &Shared) {
    if !logs_dumps() {
        return;
    }
    let see = |vswitch: &Vswitch, _, flows: &[DumpedFlow]| {
        for flow in flows {
            let (ufid, shown) =
                (odp::ufid(&flow.key, &flow.mask), odp::flow(&flow.key, &flow.mask, &odp::numbers, true));
            let (packets, bytes) = flow.since_made();
            let ago = vswitch.plane.now_ms().saturating_sub(flow.used_ms);
            let used =
                if packets == 0 { "never".into() } else { format!("{}.{:03}s", ago / 1000, ago % 1000) };
            let actions = actions::text(&vswitch.plane, &flow.actions, &flow.key, &odp::numbers);
            tracing::debug!(
                target: "dpif",
                "{}: flow_dump {ufid} {shown}, packets:{packets}, bytes:{bytes}, used:{used}, \
                 actions:{actions}",
                vswitch.plane.name()
            );
        }
    };
    if let Err(error) = for_all_flows(shared, see).await {
        tracing::debug!(target: "dpif", "flows were not dumped: {error}");
    }
}

fn logs_dumps() -> bool {
    tracing::event_enabled!(target: "dpif", tracing::Level::DEBUG)
}

/// Whether new flows are logged.
fn logs_flows() -> bool {
    tracing::event_enabled!(target: "dpif_netdev", tracing::Level::DEBUG)
}

/// All cached flows by unique id.
async fn flow_texts(shared: &Shared) -> Result<HashMap<String, FlowText>, String> {
    let mut texts = HashMap::new();
    let see = |vswitch: &Vswitch, _, flows: &[DumpedFlow]| {
        for flow in flows {
            let text = |is_whole| odp::flow(&flow.key, &flow.mask, &odp::numbers, is_whole);
            let actions = actions::text(&vswitch.plane, &flow.actions, &flow.key, &odp::numbers);
            let shown = FlowText { key: text(false), whole: text(true), actions };
            texts.insert(odp::ufid(&flow.key, &flow.mask), shown);
        }
    };
    for_all_flows(shared, see).await?;
    Ok(texts)
}

/// Number of packets so far whose flow was not cached.
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
