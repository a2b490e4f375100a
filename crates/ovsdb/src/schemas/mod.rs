//! The built-in schemas: `Open_vSwitch`, the switch's configuration, and `_Server`, in which a server lists
//! its databases. Both are texts in [a notation of our own](compact).
//!
//! Their names, types, constraints, versions and checksums are those of Open vSwitch 3.1, so that clients,
//! and `ovsdb-tool needs-conversion`, see no difference. Later 3.x releases added columns for connection
//! tracking limits and local sampling (`CT_Zone.limit`, `Datapath.ct_zone_default_limit`,
//! `Flow_Sample_Collector_Set.local_group_id`); clients ask before they use those.

mod compact;

use std::sync::{Arc, LazyLock};

use crate::schema::Schema;

static OPEN_VSWITCH: LazyLock<Arc<Schema>> = LazyLock::new(|| built_in(include_str!("open_vswitch.txt")));
static SERVER: LazyLock<Arc<Schema>> = LazyLock::new(|| built_in(include_str!("server.txt")));

fn built_in(text: &str) -> Arc<Schema> {
    // A test reads both; they are part of the program.
    Arc::new(compact::schema(text).expect("the built-in schemas are well-formed"))
}

impl Schema {
    /// The schema `Open_vSwitch`, version 8.3.1.
    pub fn open_vswitch() -> Arc<Schema> {
        Arc::clone(&OPEN_VSWITCH)
    }

    /// The schema `_Server`, version 1.2.0.
    pub fn server() -> Arc<Schema> {
        Arc::clone(&SERVER)
    }
}
