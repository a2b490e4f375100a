//! The tables of messages, statistics, extensions and fields for the documentation.

use super::header::{Codec, HEADER_LEN};
use super::kind::{Kind, StatsKind};
use super::matching::is_of_pipeline;
use super::names::{EXPERIMENTERS, EXPERIMENTERS_STATS, kind_name, stats_name};
use crate::error::{ErrorKind, ErrorVendor};
use crate::version::Version;
use flow::Mf;
use flow::mf::Maskable;

/// The header of a table with a column for each version.
const BY_VERSION: &str = "| 1.0 | 1.1 | 1.2 | 1.3 | 1.4 | 1.5 |\n|---|---|---|---|---|---|---|\n";

/// The messages in a table of Markdown, by type and then those of extensions: names, and numbers by version.
/// docs/openflow.md has it, and a test compares the two.
pub fn messages_table() -> String {
    let mut out = format!("| message {BY_VERSION}");
    for kind in Kind::all() {
        let name = match kind {
            Kind::Experimenter => "OFPT_EXPERIMENTER (OFPT_VENDOR)",
            Kind::StatsRequest => "OFPT_MULTIPART_REQUEST (OFPT_STATS_REQUEST)",
            Kind::StatsReply => "OFPT_MULTIPART_REPLY (OFPT_STATS_REPLY)",
            named => kind_name(named),
        };
        row(&mut out, name, |version| kind.to_wire(version).map(|number| number.to_string()));
    }
    for (vendor, subtype, name) in EXPERIMENTERS {
        let is_known = |version| {
            let kind = Kind::Experimenter.to_wire(version)?;
            let body = [vendor.to_be_bytes(), subtype.to_be_bytes()].concat();
            is_known(version, kind, &body).then(|| extension(name, subtype))
        };
        row(&mut out, name, is_known);
    }
    out
}

/// Likewise the types of statistics (multipart messages).
pub fn statistics_table() -> String {
    let mut out = format!("| statistics {BY_VERSION}");
    for kind in StatsKind::all().filter(|kind| *kind != StatsKind::Experimenter) {
        row(&mut out, stats_name(kind), |version| kind.to_wire(version).map(|number| number.to_string()));
    }
    for (vendor, subtype, name) in EXPERIMENTERS_STATS {
        let is_known = |version| {
            let kind = Kind::StatsRequest.to_wire(version)?;
            let mut body = StatsKind::Experimenter.to_wire(version)?.to_be_bytes().to_vec();
            body.resize(if version == Version::V10 { 4 } else { 8 }, 0);
            body.extend([vendor.to_be_bytes(), subtype.to_be_bytes()].concat());
            is_known(version, kind, &body).then(|| extension(name, subtype))
        };
        row(&mut out, name, is_known);
    }
    out
}

/// Likewise the errors, with the numbers of type and code.
pub fn errors_table() -> String {
    let mut out = format!("| error {BY_VERSION}");
    for kind in ErrorKind::ALL {
        row(&mut out, kind.name(), |version| {
            let number = kind.number(version)?;
            let (vendor, kind, code) = (number.vendor, number.error_type, number.code);
            Some(match vendor {
                0 => format!("{kind}, {code}"),
                // From 1.2 on, experimenters' errors have only a type.
                _ if version >= Version::V12 => format!("{} {kind}", experimenter(vendor)),
                _ => format!("{} {kind}, {code}", experimenter(vendor)),
            })
        });
    }
    out
}

fn experimenter(vendor: u32) -> &'static str {
    if vendor == ErrorVendor::Nicira as u32 { "NX" } else { "ONF" }
}

fn row(out: &mut String, name: &str, number: impl Fn(Version) -> Option<String>) {
    *out += &format!("| `{name}` |");
    for version in Version::ALL {
        *out += &format!(" {} |", number(version).unwrap_or_else(|| "-".into()));
    }
    out.push('\n');
}

fn extension(name: &str, subtype: u32) -> String {
    format!("{} {subtype}", if name.starts_with("NX") { "NX" } else { "ONF" })
}

/// Whether the decoder knows a message that ends after its type: then it reports missing bytes, or is
/// complete.
fn is_known(version: Version, kind: u8, body: &[u8]) -> bool {
    use ErrorKind::*;
    let mut bytes = vec![version as u8, kind];
    bytes.extend(((HEADER_LEN + body.len()) as u16).to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    let unknown = [OFPBRC_BAD_TYPE, OFPBRC_BAD_SUBTYPE, OFPBRC_BAD_VENDOR, OFPBRC_BAD_STAT];
    !Codec::new(version).decode(&bytes).is_err_and(|error| unknown.contains(&error))
}

/// The fields, with their names on the wire and since which version each is in use.
pub fn fields_table() -> String {
    let mut out = String::from(
        "| field | bits | mask | writable | packet-out 1.5 | `ofp_match` 1.0 | on the wire | means |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let families = [Mf::Reg(0), Mf::XReg(0), Mf::XxReg(0), Mf::TunMetadata(0)];
    for field in Mf::simple().chain(families) {
        let known = field.row();
        let number = if field.family().is_some() { "N" } else { "" };
        let names: Vec<String> = std::iter::once(&known.name)
            .chain(known.aliases)
            .map(|name| format!("`{name}{number}`"))
            .collect();
        let wires: Vec<String> = known
            .wires
            .iter()
            .flatten()
            .map(|wire| match wire.since {
                0 => format!("`{}{number}`", wire.name),
                since => format!("`{}{number}` (1.{since})", wire.name),
            })
            .collect();
        let wires = if wires.is_empty() { "-".to_string() } else { wires.join(", ") };
        let yes = |is: bool| if is { "yes" } else { "-" };
        out += &format!(
            "| {} | {} | {} | {} | {} | {} | {wires} | {} |\n",
            names.join(", "),
            field.bits(),
            yes(known.maskable != Maskable::No),
            yes(known.writable),
            yes(is_of_pipeline(field)),
            yes(known.of10),
            known.doc,
        );
    }
    out
}
