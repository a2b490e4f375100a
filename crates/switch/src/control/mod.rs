//! The writer's half of the switch: everything that changes what workers see.
//!
//! There is one [`Control`] per switch, owned by one thread. Its methods have taken effect when they return:
//! the new version is published, and every burst that a worker begins from then on sees it. A method that
//! changes several things (a flow-mod that deletes a thousand rules, a batch) publishes one version. Long
//! changes can be made in turns instead ([`Control::begin`]), and also take effect as one version.
//!
//! The owner's duties, each with its method:
//! - call [`Control::tick`] about ten times a second: it frees what no worker sees any more, narrows
//!   extraction, and begins new generations of recirculation ids;
//! - call [`Control::expire`] about ten times a second, with the counters;
//! - take [`Control::take_removals`]; when the counters of the removed rule are final (all workers have
//!   folded the flows that used it), send the flow-removed and return the rule with
//!   [`Control::removal_done`];
//! - take [`Control::take_retired_slots`]; when no worker can credit them any more, clear them and return
//!   them with [`Control::recycle_slots`];
//! - pass in the effects of translations ([`Control::apply_with`]).
//!
//! Files, those that use others first:
//! - operations: `ports` has bridges and ports; `transaction` makes changes in many turns, `batch` publishes
//!   them or takes them back; `flow_mod` changes rules, `overlap` finds rules that a new one overlaps,
//!   `walk` those that loose commands select; `limits` evicts rules of full tables; `groups` changes groups,
//!   `meters` meters; `options` has tables of tunnel options; `macs` remembers and forgets addresses;
//!   `effects` applies what packets teach; `expiry` ends rules and addresses whose time has come; `dump`
//!   collects statistics;
//! - `state` has versions, garbage and the counters' slots;
//! - what the state consists of: `change` has the types of a transaction; `store` the rules of a table,
//!   `eviction` their order, `cookies` those of a cookie, `timers` their deadlines; `numbered` groups and
//!   meters; `mac_records` addresses; `learning` counts what rules learn; `depth` determines how deep
//!   extraction must read; `events` records what happens to rules; `ended` has what waits to be freed;
//!   `action_lists` shares lists; `validate` checks them.

mod action_lists;
mod batch;
mod change;
mod cookies;
mod depth;
mod dump;
mod effects;
mod ended;
mod events;
mod eviction;
mod expiry;
mod flow_mod;
mod groups;
mod headway;
mod learning;
mod limits;
mod mac_records;
mod macs;
mod meters;
mod numbered;
mod options;
mod overlap;
mod ports;
mod state;
mod store;
mod timers;
mod transaction;
mod validate;
mod walk;

pub use crate::flow_mod::{Command, FlowMod, FlowModError, TABLE_ALL, TABLE_HIDDEN};
pub use change::{AsChange, Change, Changes, Consequences, Due, Outcome, PacketOut, Translated, Turn};
pub use dump::{Cursor, RuleFilter, TableStats};
pub use ended::Left;
pub use events::{Removal, RemovedReason, RuleEvent, RuleEventKind, RuleEvents};
pub use eviction::TableLimits;
pub use mac_records::FdbStats;
pub use macs::{FdbEntry, NoSuchPort, Replaced};
pub use meters::{BANDS_MAX, METERS_MAX};
pub use options::OptionError;
pub use ports::PortError;
pub use state::Control;
