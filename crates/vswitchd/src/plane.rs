//! The forwarding plane as the control thread holds it: the writing half of the tables, which readers access
//! by read-copy-update, and the datapath with its workers.
//!
//! It knows neither connections nor rows: code that changes it notifies the requester itself.

use crate::config::DatapathFlags;
use crate::config::wanted::VLAN_LIMIT_DEFAULT;
use base::hash::HashKey;
use base::rcu::Domain;
use base::{OfPort, PortNo};
use datapath::{CacheConfig, Datapath, Pipeline};
use flow::{Depth, Ingress};
use packet::{Pool, PoolConfig};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use switch::control::{Outcome, TableLimits, Turn};
use switch::features::{FEATURES, Feature};
use switch::{BridgeIdx, Control, Effect, SlotStats, Switch};

/// Why the switch could not be set up as asked.
#[derive(Debug)]
pub enum SetupError {
    /// There was no memory for packets.
    Pool(std::io::Error),
    /// The datapath or a worker could not be made.
    Datapath(datapath::DatapathError),
    /// A thread cannot be started.
    Os(std::io::Error),
    /// The NUMA nodes that flags make up make no sense.
    Numa(String),
    /// A port that flags ask for could not be made: its name, and why.
    Port(String, String),
}

impl std::fmt::Display for SetupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SetupError::Pool(e) => write!(f, "no memory for packets ({e}); a smaller --pool-size may fit"),
            SetupError::Datapath(e) => write!(f, "the datapath could not be started: {e}"),
            SetupError::Os(e) => write!(f, "a thread could not be started: {}", host::log::os_text(e)),
            SetupError::Numa(e) => write!(f, "--dummy-numa={e}"),
            SetupError::Port(name, e) => write!(f, "port {name}: {e}"),
        }
    }
}

impl std::error::Error for SetupError {}

/// After this many transactions have overtaken a dump, the dump goes first.
const OVERTAKEN_MAX: u64 = 4;
/// How long after its last turn tables stay unchanged for a dump.
const RESERVED: Duration = Duration::from_millis(100);

/// See the module documentation.
pub(crate) struct ForwardingPlane {
    /// Whether there are dummies (`--enable-dummy`), which the datapath's name shows.
    pub(crate) is_dummy: bool,
    pub(crate) control: Control,
    pub(crate) switch: Arc<Switch>,
    pub(crate) dp: Datapath<Switch>,
    pub(crate) domain: Arc<Domain>,
    /// Counts of packets that the control thread translated itself (packet-outs), by slot.
    pub(crate) own_credits: HashMap<u32, SlotStats>,
    /// The bundle whose packets were translated last: as long as it lives, they are credited to the slots of
    /// rules that it may have removed itself.
    pub(crate) crediting: Crediting,
    /// Requests that change tables wait until then, for a dump that they have kept from ending.
    pub(crate) reserved_until: Option<Instant>,
}

/// What lives until the packets of a bundle are carried out.
pub(crate) type Crediting = Option<Weak<dyn Any + Send + Sync>>;

/// How long a turn of what takes long lasts, before others have theirs.
pub(crate) const TURN: Duration = Duration::from_millis(2);
/// Changes of more steps are made in turns.
pub(crate) const SHORT_STEPS_MAX: usize = 1_000;

impl ForwardingPlane {
    /// The datapath's name as `dpctl` shows it, without its type.
    pub fn short_name(&self) -> &'static str {
        if self.is_dummy { "ovs-dummy" } else { "ovs-netdev" }
    }

    /// The datapath's type as `dpctl` shows it.
    pub fn type_name(&self) -> &'static str {
        if self.is_dummy { "dummy" } else { "netdev" }
    }

    /// The datapath's name as `dpctl` shows it.
    pub fn name(&self) -> String {
        format!("{}@{}", self.type_name(), self.short_name())
    }

    /// Whether the datapath has that name.
    pub fn is_named(&self, text: &str) -> bool {
        text == self.name() || text == self.short_name()
    }

    /// Logs what the datapath can do, as Open vSwitch's does once it has found out.
    pub fn tell_features(&self) {
        // There is one way to do either, as `dpif-netdev/miniflow-parser-get` and `dpif-impl-get` show.
        tracing::info!(target: "dpif_netdev_extract", "Default MFEX Extract implementation is scalar.");
        tracing::info!(target: "dpif_netdev_impl", "Default DPIF implementation is dpif_scalar.");
        let name = self.name();
        for told in FEATURES.iter().filter_map(Feature::told) {
            tracing::info!(target: "ofproto_dpif", "{name}: {told}");
        }
    }

    /// Without bridges, ports and workers.
    pub fn new(flags: &DatapathFlags, cache: CacheConfig) -> Result<ForwardingPlane, SetupError> {
        let pool = Pool::new(PoolConfig {
            chunks: flags.pool_packets,
            chunk_bytes: flags.pool_packet_bytes,
            ..PoolConfig::default()
        })
        .map_err(SetupError::Pool)?;
        pool.limit_bursts(flags.rx_burst);
        let domain = Domain::new();
        let (switch, control) = Control::new(domain.clone(), HashKey::random());
        switch.set_vlan_limit(VLAN_LIMIT_DEFAULT);
        let datapath_config = datapath::Config { cache, ..datapath::Config::default() };

        let dp = Datapath::new(pool, switch.clone(), domain.clone(), datapath_config)
            .map_err(SetupError::Datapath)?;
        Ok(ForwardingPlane {
            is_dummy: false,
            control,
            switch,
            dp,
            domain,
            own_credits: HashMap::new(),
            crediting: None,
            reserved_until: None,
        })
    }

    /// Keeps tables unchanged for a moment if so many transactions have begun since a dump was requested
    /// (when the count was `asked_at`) that a stream of them might prevent it from ever ending.
    pub(crate) fn reserve_tables(&mut self, asked_at: u64, now: Instant) {
        if self.control.transactions() - asked_at >= OVERTAKEN_MAX {
            self.reserved_until = Some(now + RESERVED);
        }
    }

    /// Does a turn of the current changes of tables; returns the result once they are complete.
    pub(crate) fn go_on_changing(&mut self, until: Instant) -> Option<Outcome> {
        loop {
            let turn = self.control.go_on(&mut || Instant::now() >= until);
            // So that workers wait for no memory when they count what they see for the first time.
            self.dp.reserve_slots(self.control.slot_count());
            match turn {
                Turn::Done(outcome) => return Some(outcome),
                Turn::Ready => {}
                Turn::More => return None,
            }
        }
    }

    /// The present time on the clock of rules and counters.
    pub(crate) fn now_ms(&self) -> u64 {
        self.dp.now_ms()
    }

    /// A port's configuration in the switch.
    pub(crate) fn port_spec(&self, port: PortNo) -> Option<&switch::PortSpec> {
        Some(&self.control.topology().port(port)?.spec)
    }

    /// The counts of a slot up to the last fold.
    pub(crate) fn slot(&self, slot: u32) -> SlotStats {
        total(&self.dp, &self.own_credits, slot)
    }

    /// Does a turn of expiring rules as of a moment, by the counts of slots. Returns whether there is more to
    /// expire.
    pub(crate) fn expire(&mut self, as_of_ms: u64) -> bool {
        let (dp, own) = (&self.dp, &self.own_credits);
        self.control.expire(as_of_ms, &|slot| total(dp, own, slot))
    }

    /// Before `wanted` rules are added: what is full and evicts learns which rules were used of late.
    pub(crate) fn note_use(&mut self, bridge: BridgeIdx, wanted: usize) {
        let (dp, own) = (&self.dp, &self.own_credits);
        self.control.note_use(bridge, wanted, &|slot| total(dp, own, slot));
    }

    /// Applies the effects of translations.
    pub(crate) fn apply(&mut self, effects: &[Effect]) {
        let (now_ms, dp, own) = (self.dp.now_ms(), &self.dp, &self.own_credits);
        self.control.apply_with(effects, now_ms, &|slot| total(dp, own, slot));
        self.dp.reserve_slots(self.control.slot_count());
    }

    /// Does a turn of setting a table's limit. Returns whether it is complete.
    pub(crate) fn limit_table(
        &mut self,
        bridge: BridgeIdx,
        table_id: u8,
        limits: &TableLimits,
        until: Instant,
    ) -> bool {
        let (now_ms, dp, own) = (self.dp.now_ms(), &self.dp, &self.own_credits);
        let (slots, mut is_over) = (|slot| total(dp, own, slot), || Instant::now() >= until);
        self.control.set_table_limits(bridge, table_id, limits, now_ms, &slots, &mut is_over)
    }

    /// The counts of a rule up to the last fold. It inherits the last use of the rules that it replaced.
    pub(crate) fn counted(&self, slot: u32) -> SlotStats {
        let before = self.control.predecessors(slot).map(|slot| self.slot(slot).last_used_ms);
        let own = self.slot(slot);
        SlotStats { last_used_ms: before.fold(own.last_used_ms, u64::max), ..own }
    }

    /// Whether this bridge is still there. Another may have its number by now.
    pub(crate) fn is_there(&self, bridge: BridgeIdx, name: &str) -> bool {
        self.control.topology().bridge(bridge).is_some_and(|b| b.config.name == name)
    }

    /// Changes what the switch does with a port.
    pub(crate) fn update_port(&mut self, port_no: PortNo, change: impl FnOnce(&mut switch::PortSpec)) {
        if let Some(mut spec) = self.port_spec(port_no).cloned() {
            change(&mut spec);
            self.control.modify_port(spec).expect("its numbers stay");
        }
    }

    /// Seconds and nanoseconds since a moment on the datapath's clock.
    pub(crate) fn since(&self, then_ms: u64) -> (u32, u32) {
        let ms = self.now_ms().saturating_sub(then_ms);
        ((ms / 1000) as u32, (ms % 1000) as u32 * 1_000_000)
    }

    /// How the control thread reads a packet as if it came from this port: completely.
    pub(crate) fn ingress(&self, in_port: OfPort, dp_port: PortNo) -> Ingress {
        Ingress::new(in_port, dp_port, Depth::Everything).with_vlan_limit(self.switch.vlan_limit())
    }
}

fn total(dp: &Datapath<Switch>, own_credits: &HashMap<u32, SlotStats>, slot: u32) -> SlotStats {
    let totals = dp.slot(slot);
    let own = own_credits.get(&slot).copied().unwrap_or_default();
    SlotStats {
        packets: totals.packets + own.packets,
        bytes: totals.bytes + own.bytes,
        last_used_ms: totals.last_used_ms.max(own.last_used_ms),
    }
}
