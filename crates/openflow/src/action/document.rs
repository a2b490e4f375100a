//! The table of actions for the documentation.

use super::row::{Form, Space};
use super::table::ROWS;
use crate::version::Version;

/// The actions and instructions in a table of Markdown: text, wire forms by version, what it does.
/// docs/openflow.md has it, and a test compares the two.
pub fn actions_table() -> String {
    let mut out = String::from(
        "| action | 1.0 | 1.1 | 1.2 | 1.3 | 1.4 | 1.5 | does |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in ROWS {
        let syntax = row.syntax.replace('|', "\\|");
        out += &format!("| `{syntax}` |");
        for version in Version::ALL {
            // One that is read for the sake of Open vSwitch's errors is not one that the version has.
            let is_said = |f: &Form| f.space != Space::Instruction || f.is_written_in(version);
            let is_in = |f: &&Form| f.is_in(version) && is_said(f);
            let mut forms: Vec<String> = row.forms.iter().filter(is_in).map(number).collect();
            forms.sort();
            let text = if forms.is_empty() { "-".to_string() } else { forms.join(", ") };
            out += &format!(" {text} |");
        }
        out += &format!(" {} |\n", row.summary);
    }
    out
}

fn number(form: &Form) -> String {
    match form.space {
        Space::Standard => form.number.to_string(),
        Space::Instruction => format!("I{}", form.number),
        Space::Nicira => format!("NX {}", form.number),
        Space::Onf => format!("ONF {}", form.number),
    }
}
