//! Which asynchronous messages a controller wants.

use crate::message::AsyncConfig;
use crate::text::put;

const PACKET_IN: [&str; 6] = ["no_match", "action", "invalid_ttl", "action_set", "group", "packet_out"];
const PORT_STATUS: [&str; 3] = ["add", "delete", "modify"];
const FLOW_REMOVED: [&str; 6] = ["idle", "hard", "delete", "group_delete", "meter_delete", "eviction"];
const ROLE_STATUS: [&str; 3] = ["primary_request", "configuration_changed", "experimenter_data_changed"];
const TABLE_STATUS: [&str; 5] = ["", "", "", "vacancy_down", "vacancy_up"];
const REQUEST_FORWARD: [&str; 2] = ["group_mod_request", "meter_mod_request"];

pub(super) fn write(out: &mut String, config: &AsyncConfig) {
    for (i, who) in ["primary", "secondary"].into_iter().enumerate() {
        put!(out, "\n {who}:\n");
        let rows: [(&str, u32, &[&str]); 6] = [
            ("PACKET_IN", config.packet_in[i], &PACKET_IN),
            ("PORT_STATUS", config.port_status[i], &PORT_STATUS),
            ("FLOW_REMOVED", config.flow_removed[i], &FLOW_REMOVED),
            ("ROLE_STATUS", config.role_status[i], &ROLE_STATUS),
            ("TABLE_STATUS", config.table_status[i], &TABLE_STATUS),
            ("REQUESTFORWARD", config.request_forward[i], &REQUEST_FORWARD),
        ];
        for (name, mask, reasons) in rows {
            put!(out, "{name:>16}:");
            let known = reasons.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 != 0);
            let before = out.len();
            known.for_each(|(_, reason)| put!(out, " {reason}"));
            out.push_str(if out.len() == before { " (off)\n" } else { "\n" });
        }
    }
}
