//! The switch as workers share it: published state, read without a lock.

use crate::by_hand;
use crate::changelog::ChangeLog;
use crate::features::InUse;
use crate::frozen::Generations;
use crate::refused::Refused;
use crate::topology::{self, History, Topology};
use base::hash::HashKey;
use base::rcu::{Domain, RcuCell, Reader};
use base::{OfPort, PortNo, Version};
use datapath::{Pipeline, PortView};
use flow::Depth;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Ports have 16 bits in the key.
pub(crate) const PORTS_MAX: usize = 1 << 16;

/// The half of the switch that workers share.
pub struct Switch {
    pub(crate) domain: Arc<Domain>,
    pub(crate) secret: HashKey,
    pub(crate) version: AtomicU64,
    pub(crate) history: RcuCell<History>,
    pub(crate) log: Arc<ChangeLog>,
    pub(crate) frozen: RcuCell<Generations>,
    pub(crate) refused: RcuCell<Refused>,
    pub(crate) by_hand: by_hand::Shared,
    /// Optional datapath features that translation uses.
    pub in_use: InUse,
    /// Whether to report the next translation that fails ([`Effect::Failed`]).
    tells_failure: AtomicBool,
    /// How many VLAN tags extraction looks past.
    pub(crate) vlan_limit: AtomicU8,
    /// What workers read about each port that they or the control side have asked for. Reading needs no lock.
    pub(crate) ports: Mutex<BTreeMap<PortNo, Arc<PortView>>>,
}

impl Switch {
    pub(crate) fn new(domain: Arc<Domain>, secret: HashKey) -> Switch {
        let history = vec![(Version(0), Arc::new(Topology::default()))];
        Switch {
            history: RcuCell::new(domain.clone(), history),
            log: Arc::new(ChangeLog::new(domain.clone(), secret)),
            frozen: RcuCell::new(domain.clone(), Generations::default()),
            refused: RcuCell::new(domain.clone(), Refused::default()),
            by_hand: by_hand::Shared::new(domain.clone()),
            in_use: InUse::all(),
            tells_failure: AtomicBool::new(true),
            vlan_limit: AtomicU8::new(2),
            ports: Mutex::default(),
            version: AtomicU64::new(1),
            domain,
            secret,
        }
    }

    /// Requests a report of the next translation that fails, by [`Effect::Failed`]. Only one is reported per
    /// call, so that failing packets fill neither the ring of effects nor a log.
    pub fn ask_for_failure(&self) {
        self.tells_failure.store(true, Ordering::Relaxed);
    }

    /// Makes rules match on this many VLAN tags from the next burst on, 1 or 2 (default 2); what follows is
    /// payload. A flow always matches the Ethernet type, so no flow is applied to frames that were read
    /// differently.
    pub fn set_vlan_limit(&self, tags: u8) {
        self.vlan_limit.store(tags, Ordering::Relaxed);
    }

    /// Whether a failed translation is the one to report.
    #[cold]
    pub(crate) fn takes_failure(&self) -> bool {
        self.tells_failure.load(Ordering::Relaxed) && self.tells_failure.swap(false, Ordering::Relaxed)
    }

    /// Whether a packet can continue at the state with this number.
    pub fn is_frozen(&self, recirc_id: u32, reader: &Reader) -> bool {
        self.frozen.read(reader).find(recirc_id).is_some()
    }

    /// The domain for readers of the switch.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    pub(crate) fn set_port(&self, port: PortNo, of_port: Option<OfPort>, depth: Depth) {
        self.port_view(port).set(of_port.unwrap_or(OfPort::NONE), depth);
    }

    /// Bridges and ports as they are at a version.
    pub fn topology<'g>(&'g self, version: Version, reader: &'g Reader) -> &'g Topology {
        topology::at(self.history.read(reader), version)
    }
}
