//! Manual pages in roff, with the macros of man(7).
//!
//! Source: groff_man(7), groff_man_style(7).

use host::manual::{Entry, Manual};
use host::program;
use std::fmt::Write;

/// The section of a page: user commands 1, administration 8, where Open vSwitch has the pages of the same
/// names.
pub fn section(name: &str) -> u8 {
    if name.starts_with("ovs-") && name != "ovs-pcap" { 8 } else { 1 }
}

/// The page of the program `name`. `called` is how it is called, which for a subcommand is two words.
pub fn roff(manual: &Manual, name: &str, called: &str) -> String {
    let manual = manual.clone().resolved(called);
    let section = section(name);
    let mut out = format!(
        ".TH {} {section} \"\" \"Crosspoint {}\" \"Crosspoint Manual\"\n.ad l\n.nh\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n",
        quoted(&name.to_uppercase()),
        program::VERSION,
        escaped(name),
        escaped(&manual.brief)
    );
    for (idx, usage) in manual.usage.iter().enumerate() {
        let _ = write!(
            out,
            "{}.B {}\n{}\n",
            if idx == 0 { "" } else { ".br\n" },
            escaped(called),
            escaped(usage)
        );
    }
    if !manual.about.is_empty() {
        out += ".SH DESCRIPTION\n";
        for (idx, paragraph) in manual.about.lines().enumerate() {
            let _ = writeln!(out, "{}{}", if idx == 0 { "" } else { ".PP\n" }, escaped(paragraph));
        }
    }
    lists(&mut out, "COMMANDS", manual.commands.iter().map(|group| (&group.title, &group.rows)));
    let options: Vec<(String, Vec<Entry>)> = manual
        .options
        .iter()
        .map(|group| {
            let rows = group.rows.iter().map(|flag| Entry { usage: flag.usage(), what: flag.help.clone() });
            (group.title.clone(), rows.collect())
        })
        .collect();
    lists(&mut out, "OPTIONS", options.iter().map(|(title, rows)| (title, rows)));
    lists(&mut out, "NOTES", manual.terms.iter().map(|group| (&group.title, &group.rows)));
    if !manual.examples.is_empty() {
        out += ".SH EXAMPLES\n";
        for example in &manual.examples {
            let _ = write!(
                out,
                ".PP\n{}\n.PP\n.in +4n\n.EX\n{}\n.EE\n.in\n",
                escaped(&example.what),
                escaped(&example.usage)
            );
        }
    }
    out += ".SH SEE ALSO\n.BR crosspoint (1)\n";
    out
}

fn lists<'a>(out: &mut String, heading: &str, groups: impl Iterator<Item = (&'a String, &'a Vec<Entry>)>) {
    let groups: Vec<_> = groups.filter(|(_, rows)| !rows.is_empty()).collect();
    if groups.is_empty() {
        return;
    }
    let _ = writeln!(out, ".SH {heading}");
    for (title, rows) in &groups {
        // A heading that only repeats the section's says nothing.
        if !title.eq_ignore_ascii_case(heading) {
            let _ = writeln!(out, ".SS {}", escaped(title));
        }
        for row in *rows {
            let _ = write!(out, ".TP\n.B {}\n{}\n", escaped(&row.usage), escaped(&row.what));
        }
    }
}

/// A text that roff shows as it is: no escapes, no requests, dashes that can be copied, and lists of options
/// that may break.
fn escaped(text: &str) -> String {
    let text = text
        .trim()
        .replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('"', "\\(dq")
        .replace("][", "]\\:[")
        .replace('^', "\\(ha")
        .replace('~', "\\(ti");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_as_it_is() {
        assert_eq!(escaped("--a \\ 'b'"), "\\-\\-a \\e 'b'");
        assert_eq!(escaped(".b"), "\\&.b");
        let manual = Manual::new("does it", &["[X]"]).examples(&[("prog", "does it")]);
        let page = roff(&manual, "ovs-prog", "ovs-prog");
        assert!(page.starts_with(".TH \"OVS-PROG\" 8 "), "{page}");
        assert!(page.contains("\n.SH EXAMPLES\n"), "{page}");
    }
}
