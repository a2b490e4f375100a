//! The values of single columns: names, datapath ids, versions, files, VLANs.

use super::row::{Checked, RowRef};
use openflow::{Version, VersionSet};
use ovsdb::Datum;
use std::net::{IpAddr, SocketAddrV4};
use std::path::PathBuf;
use switch::{PriorityTags, VlanConfig, VlanMode, VlanSet};
use transport::{ActiveTarget, Bootstrap, Host, OVSDB_PORT, TlsFiles};

/// Longest name of a bridge: its own interface is, or could be, a kernel device.
pub(super) const BRIDGE_NAME_BYTES_MAX: usize = 15;

pub(super) fn is_bridge_name(name: &str) -> bool {
    let fits = (1..=BRIDGE_NAME_BYTES_MAX).contains(&name.len());
    fits && !name.starts_with('.') && name.chars().all(|c| c.is_ascii_graphic() && c != '/')
}

/// Whether a datapath id consists of zeros, whatever its length.
pub(super) fn is_zero(text: &str) -> bool {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b == b'0')
}

/// The column `protocols`. Versions that the switch does not implement are dropped, with a complaint. If none
/// is left, the bridge speaks none: a restriction never enables an excluded version.
pub(super) fn protocols(row: &RowRef<'_>, wrong: &mut Vec<String>) -> Option<VersionSet> {
    let names: Vec<&str> = row.get("protocols")?.as_set().iter().filter_map(|a| a.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let (mut spoken, mut others) = (VersionSet(0), VersionSet(0));
    for name in &names {
        match Version::from_name(name) {
            Some(version) if VersionSet::SUPPORTED.contains(version) => spoken = spoken.with(version),
            unknown => {
                others = unknown.map_or(others, |version| others.with(version));
                wrong.push(format!("protocols: {name} is not spoken"));
            }
        }
    }
    if spoken == VersionSet(0) {
        wrong.push("protocols: no supported version, so no connection is made".into());
        return Some(others);
    }
    Some(spoken)
}

/// Which interface of a port with several is used, as long as there are no bonds: using all of them would
/// create a loop. The one named as primary, or else the first by name.
pub(super) fn active_member(row: &RowRef<'_>, members: &[RowRef<'_>]) -> Option<String> {
    let names = members.iter().filter_map(|member| member.text("name"));
    let primary = row.value("other_config", "bond-primary");
    let first = names.clone().find(|name| Some(*name) == primary).or_else(|| names.min());
    first.filter(|_| members.len() > 1).map(String::from)
}

/// The files that a row of table SSL names.
pub(super) fn tls_files(row: &RowRef<'_>) -> TlsFiles {
    let path = |column: &str| row.text(column).filter(|p| !p.is_empty()).map(PathBuf::from);
    TlsFiles {
        private_key: path("private_key"),
        certificate: path("certificate"),
        ca_cert: path("ca_cert"),
        bootstrap: match row.get("bootstrap_ca_cert").and_then(Datum::as_bool) {
            Some(true) => Bootstrap::of_database(),
            _ => Bootstrap::No,
        },
        ..TlsFiles::default()
    }
}

/// The address of a manager that is reached through the bridges: one to connect to, with an IPv4 address.
pub(super) fn in_band_address(row: &RowRef<'_>) -> Option<SocketAddrV4> {
    if row.text("connection_mode") == Some("out-of-band") {
        return None;
    }
    match ActiveTarget::parse(row.text("target")?, OVSDB_PORT).ok()? {
        ActiveTarget::Tcp(Host::Address(IpAddr::V4(ip), _), port)
        | ActiveTarget::Ssl(Host::Address(IpAddr::V4(ip), _), port) => Some(SocketAddrV4::new(ip, port)),
        _ => None,
    }
}

/// A port's part in VLANs.
pub(super) fn vlans(row: &RowRef<'_>, c: &mut Checked<'_>, old: &VlanConfig) -> VlanConfig {
    let tag = row.integer("tag").and_then(|t| u16::try_from(t).ok());
    let set = |column: &str| {
        let set: VlanSet = row.integers(column).filter_map(|v| u16::try_from(v).ok()).collect();
        (!set.is_empty()).then_some(set)
    };
    let trunks = set("trunks");
    let mode = match (row.text("vlan_mode"), tag) {
        (Some("access"), _) => VlanMode::Access,
        (Some("native-tagged"), _) => VlanMode::NativeTagged,
        (Some("native-untagged"), _) => VlanMode::NativeUntagged,
        (Some("dot1q-tunnel"), _) => VlanMode::Dot1qTunnel,
        (None, Some(_)) => VlanMode::Access,
        _ => VlanMode::Trunk,
    };
    if mode == VlanMode::Access && trunks.is_some() {
        c.wrong.push("trunks is ignored for an access port".into());
    }
    if mode == VlanMode::Trunk && tag.is_some() {
        c.wrong.push("tag is ignored for a trunk port".into());
    }
    VlanConfig {
        mode,
        tag: if mode == VlanMode::Trunk { 0 } else { tag.unwrap_or(0) },
        trunks: if mode == VlanMode::Access { None } else { trunks },
        cvlans: if mode == VlanMode::Dot1qTunnel { set("cvlans") } else { None },
        qinq_tpid: c
            .parsed("qinq-ethtype", "802.1ad or 802.1q", Some(old.qinq_tpid), |v| match v {
                "802.1ad" => Some(0x88a8),
                "802.1q" => Some(0x8100),
                _ => None,
            })
            .unwrap_or(0x88a8),
        priority_tags: c
            .parsed("priority-tags", "always, if-nonzero or never", Some(old.priority_tags), |v| match v {
                "always" | "true" => Some(PriorityTags::Always),
                "if-nonzero" => Some(PriorityTags::IfNonzero),
                "never" | "false" => Some(PriorityTags::Never),
                _ => None,
            })
            .unwrap_or_default(),
    }
}
