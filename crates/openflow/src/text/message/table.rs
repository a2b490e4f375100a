//! The configuration of tables in words.

use super::words::bit_names;
use crate::message::TableMod;
use crate::text::put;
use crate::version::Version;

/// The configuration of a table, on two lines as in a table description.
pub(super) fn table_desc(out: &mut String, m: &TableMod) {
    let on = |bit: u32| if m.config & bit == 0 { "off" } else { "on" };
    put!(out, "   eviction={} eviction_flags={}\n", on(TableMod::EVICTION), eviction_flags(m));
    put!(out, "   vacancy={}", on(TableMod::VACANCY_EVENTS));
    if let Some(v) = m.vacancy.filter(|_| m.config & TableMod::VACANCY_EVENTS != 0) {
        put!(out, " vacancy_down={}% vacancy_up={}% vacancy={}%", v.down, v.up, v.now);
    }
    out.push('\n');
}

fn eviction_flags(m: &TableMod) -> String {
    match m.eviction_flags {
        None => "(default)".to_string(),
        Some(flags) => bit_names(flags, &[(1, "OTHER"), (2, "IMPORTANCE"), (4, "LIFETIME")], "|"),
    }
}

/// The configuration of a table: handling of misses (1.1, 1.2), eviction and vacancy events (1.4 and later).
pub(super) fn table_config(out: &mut String, m: &TableMod, version: Version) {
    match version {
        Version::V11 | Version::V12 => {
            let name = ["controller", "continue", "drop"].get(m.config as usize).unwrap_or(&"Unknown");
            put!(out, ", flow_miss_config={name}");
        }
        Version::V10 | Version::V13 => {}
        _ => {
            let eviction = m.config & TableMod::EVICTION != 0;
            put!(out, ", eviction={}", if eviction { "on" } else { "off" });
            let flags = m.eviction_flags.unwrap_or(0);
            if eviction && flags != 0 {
                put!(out, " eviction_flags={}", eviction_flags(m));
            }
            match m.vacancy {
                Some(vacancy) if m.config & TableMod::VACANCY_EVENTS != 0 => {
                    put!(out, ", vacancy=on vacancy_down={}% vacancy_up={}%", vacancy.down, vacancy.up);
                }
                _ => out.push_str(", vacancy=off"),
            }
        }
    }
}
