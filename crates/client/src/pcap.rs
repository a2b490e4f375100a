//! `ovs-pcap`: the frames of a capture file, one line of hexadecimal digits each, which scripts compare.

use host::getopt::{Opt, Order, flag};
use host::manual::Manual;
use host::program;
use host::usage::{Usage, fail};
use std::process::ExitCode;

const OPTIONS: &[Opt] =
    &[flag("help").short('h').help("show this help"), flag("version").short('V').help("show the version")];

/// Runs it with the arguments that follow its name.
pub fn run(args: &[String]) -> ExitCode {
    let help = manual().help(program::name());
    let usage = Usage { tables: &[OPTIONS], order: Order::Anywhere, help, version: &[] };
    let parsed = match usage.parse(args) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let [path] = &parsed.words[..] else {
        return fail("exactly one argument is required: a capture file; use --help for help");
    };
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return fail(&format!("{path}: {error}")),
    };
    let records = match ports::pcap::file::parse(&bytes) {
        Ok(records) => records,
        Err(why) => return fail(&format!("{path}: {why}")),
    };
    for record in records {
        let digits: String = record.frame.iter().map(|byte| format!("{byte:02x}")).collect();
        println!("{digits}");
    }
    ExitCode::SUCCESS
}

/// Its description.
pub fn manual() -> Manual {
    Manual::new("prints the packets of a capture file in hexadecimal", &["FILE"])
        .options("Options", &[OPTIONS])
        .examples(&[("{name} p1-tx.pcap", "Print what a port has sent.")])
}
