//! The command line of `ovs-ofctl`.

use super::color;
use host::daemonize::{self, DAEMON, LOGGING};
use host::getopt::{Opt, Order, flag, optional, value};
use host::log::{self, Destination, Level, Setting};
use host::signals::Deadline;
use host::usage::{Usage, client_log, fail, take_logging, timeout};
use std::process::ExitCode;
use transport::{CLIENT_TLS, TlsFiles, take_tls};

/// Its own options.
pub const OPTIONS: &[Opt] = &[
    value("timeout")
        .short('t')
        .arg("SECONDS")
        .help("give up after this many seconds (default: $OVS_CTL_TIMEOUT)"),
    flag("strict").help("modify or delete only flows with exactly this match and priority"),
    flag("readd").help("for replace-flows: also replace flows that have not changed"),
    value("flow-format").short('F').arg("FORMAT,...").help("flow formats that may be used (default: any)"),
    value("packet-in-format")
        .short('P')
        .arg("FORMAT")
        .help("for monitor: standard, nxt_packet_in or nxt_packet_in2"),
    flag("more").short('m').help("print more; may be given several times"),
    flag("timestamp").help("print the time of each message"),
    optional("sort").arg("FIELD").help("sort flows by a field, ascending (default: priority)"),
    optional("rsort").arg("FIELD").help("sort flows by a field, descending (default: priority)"),
    flag("names").help("accept and print names of ports"),
    flag("no-names").help("accept and print only numbers of ports"),
    flag("stats").help("print counters and ages (default)"),
    flag("no-stats").help("leave out counters and ages"),
    value("unixctl").arg("SOCKET").help("for monitor and snoop: where the control socket is, or none"),
    flag("help").short('h').help("show this help"),
    flag("option").short('o').help("list the options"),
    flag("bundle").help("apply all flow changes or none"),
    optional("color")
        .arg("WHEN")
        .help("flows, packets and actions in colors: always, never, or auto (default: on a terminal)"),
    flag("may-create").help("with mod-group: add the group if there is none"),
    flag("pcap").help("for compose-packet: print a capture file"),
    flag("raw").help("for ofp-print: standard input has bytes, not hexadecimal"),
    flag("read-only").help("refuse commands that change the switch"),
    flag("version").short('V').help("show the version"),
    value("protocols")
        .short('O')
        .arg("VERSION,...")
        .help("OpenFlow versions that may be used (default: OpenFlow10)"),
];

/// The parsed arguments.
pub struct Args {
    /// Versions that may be spoken, with commas between.
    pub protocols: String,
    /// Encodings of flows that may be used, with commas between.
    pub flow_format: String,
    /// Modify or delete flows of exactly the match and priority given.
    pub strict: bool,
    pub may_create: bool,
    /// Commit flow changes all together or not at all.
    pub bundle: bool,
    /// Show flows in colors.
    pub colored: bool,
    /// In replace-flows, also flows that are already the same.
    pub readd: bool,
    /// Take and show names of ports.
    pub names: bool,
    /// Neither take nor show names of ports.
    pub no_names: bool,
    /// Leave out counters and ages.
    pub no_stats: bool,
    /// Print a capture file.
    pub pcap: bool,
    /// Read bytes.
    pub raw: bool,
    /// Refuse what changes the switch.
    pub read_only: bool,
    /// Fields to sort by, ascending, each with its place among those of `sort` and `rsort`: which comes first
    /// counts most.
    pub sort: Vec<(usize, String)>,
    /// The same, descending.
    pub rsort: Vec<(usize, String)>,
    /// Show more.
    pub more: u8,
    /// Print the time of each message.
    pub timestamp: bool,
    /// How packets come to `monitor`.
    pub packet_in_format: Option<String>,
    /// Where the control socket of `monitor` and `snoop` is: a path in the run directory, or `none`.
    pub unixctl: Option<String>,
    /// When it gives up.
    pub deadline: Option<Deadline>,
    /// `monitor` and `snoop` may go to the background.
    pub daemon: Option<daemonize::Options>,
    /// Keys and certificates.
    pub tls: TlsFiles,
    /// The command, and its arguments.
    pub words: Vec<String>,
}

/// `help` is what `--help` prints. An exit code: there is nothing more to do.
pub fn parse(args: &[String], help: String) -> Result<Args, ExitCode> {
    client_log();
    // The stock client's remarks about matches have this level.
    log::set(&Setting::everything_at(Destination::Console, Level::Info));
    let usage = Usage {
        tables: &[OPTIONS, DAEMON, LOGGING, CLIENT_TLS],
        order: Order::Anywhere,
        help,
        version: &["OpenFlow versions 0x1:0x6"],
    };
    let parsed = usage.parse(args)?;
    let mut args = Args {
        protocols: "OpenFlow10".into(),
        flow_format: "any".into(),
        strict: false,
        may_create: false,
        bundle: false,
        colored: false,
        readd: false,
        names: false,
        no_names: false,
        no_stats: false,
        pcap: false,
        raw: false,
        read_only: false,
        sort: Vec::new(),
        rsort: Vec::new(),
        more: 0,
        timestamp: false,
        packet_in_format: None,
        unixctl: None,
        deadline: Deadline::new(None),
        daemon: None,
        tls: TlsFiles::default(),
        words: parsed.words,
    };
    for (place, (name, value)) in parsed.options.iter().enumerate() {
        args.take(place, name, value.as_deref()).map_err(|error| fail(&error))?;
    }
    Ok(args)
}

impl Args {
    fn take(&mut self, place: usize, name: &str, value: Option<&str>) -> Result<(), String> {
        if take_logging(name, value)? || take_tls(&mut self.tls, name, value) {
            return Ok(());
        }
        if DAEMON.iter().any(|o| o.name == name) {
            self.daemon.get_or_insert_default().take(name, value)?;
            return Ok(());
        }
        let text = value.unwrap_or_default().to_string();
        let key = (place, if text.is_empty() { "priority".to_string() } else { text.clone() });
        match name {
            "timeout" => self.deadline = Deadline::new(Some(timeout("-t", &text)?)),
            "strict" => self.strict = true,
            "may-create" => self.may_create = true,
            "bundle" => self.bundle = true,
            "readd" => self.readd = true,
            "read-only" => self.read_only = true,
            "flow-format" => self.flow_format = text,
            "packet-in-format" => self.packet_in_format = Some(text),
            "protocols" => self.protocols = text,
            "more" => self.more = self.more.saturating_add(1),
            "timestamp" => self.timestamp = true,
            "sort" => self.sort.push(key),
            "rsort" => self.rsort.push(key),
            "names" => (self.names, self.no_names) = (true, false),
            "no-names" => (self.names, self.no_names) = (false, true),
            "stats" => self.no_stats = false,
            "no-stats" => self.no_stats = true,
            "unixctl" => self.unixctl = Some(text),
            "color" => self.colored = color::is_colored(&text)?,
            "pcap" => self.pcap = true,
            "raw" => self.raw = true,
            other => return Err(format!("{other}: unknown option")),
        }
        Ok(())
    }
}
