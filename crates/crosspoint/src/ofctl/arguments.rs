//! The command line of `ovs-ofctl`.

use crate::programs::{CLIENT_TLS, Usage, client_log, fail, take_logging, take_tls};
use std::process::ExitCode;
use std::time::Duration;
use vswitchd::daemonize::{self, DAEMON, LOGGING};
use vswitchd::getopt::{Opt, Order, flag, optional, value};
use vswitchd::program;
use vswitchd::stream::TlsFiles;

/// Its own options.
pub const OPTIONS: &[Opt] = &[
    value("timeout").short('t'),
    flag("strict"),
    flag("readd"),
    value("flow-format").short('F'),
    value("packet-in-format").short('P'),
    flag("more").short('m'),
    flag("timestamp"),
    optional("sort"),
    optional("rsort"),
    flag("names"),
    flag("no-names"),
    flag("stats"),
    flag("no-stats"),
    value("unixctl"),
    flag("help").short('h'),
    flag("option").short('o'),
    flag("bundle"),
    optional("color"),
    flag("may-create"),
    flag("pcap"),
    flag("raw"),
    flag("read-only"),
    flag("version").short('V'),
    value("protocols").short('O'),
];

/// What they said.
pub struct Args {
    /// Versions that may be spoken, with commas between.
    pub protocols: String,
    /// Encodings of flows that may be used, with commas between.
    pub flow_format: String,
    /// Modify or delete flows of exactly the match and priority given.
    pub strict: bool,
    /// Commit flow changes all together or not at all.
    pub bundle: bool,
    /// In replace-flows, also flows that are the same already.
    pub readd: bool,
    /// Take and show names of ports.
    pub names: bool,
    /// Neither take nor show names of ports.
    pub no_names: bool,
    /// Leave out counters and ages.
    pub no_stats: bool,
    /// Refuse what changes the switch.
    pub read_only: bool,
    /// Fields to sort by, ascending, each with its place among those of `sort` and `rsort`: which comes first counts most.
    pub sort: Vec<(usize, String)>,
    /// The same, descending.
    pub rsort: Vec<(usize, String)>,
    /// Show more.
    pub more: u8,
    /// Print the time of each message.
    pub timestamp: bool,
    /// How packets come to `monitor`.
    pub packet_in_format: Option<String>,
    /// Longest that it may take.
    pub timeout: Option<Duration>,
    /// `monitor` and `snoop` may go to the background.
    pub daemon: Option<daemonize::Options>,
    /// Keys and certificates.
    pub tls: TlsFiles,
    /// The command, and its arguments.
    pub words: Vec<String>,
}

/// An exit code: there is nothing more to do.
pub fn parse(args: &[String]) -> Result<Args, ExitCode> {
    client_log();
    let usage = Usage {
        tables: &[OPTIONS, DAEMON, LOGGING, CLIENT_TLS],
        order: Order::Anywhere,
        help: help(),
        version: &["OpenFlow versions 0x1:0x4"],
    };
    let parsed = usage.parse(args)?;
    let mut args = Args {
        protocols: "OpenFlow10".into(),
        flow_format: "any".into(),
        strict: false,
        bundle: false,
        readd: false,
        names: false,
        no_names: false,
        no_stats: false,
        read_only: false,
        sort: Vec::new(),
        rsort: Vec::new(),
        more: 0,
        timestamp: false,
        packet_in_format: None,
        timeout: None,
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
            "timeout" => {
                let seconds = text.parse().ok().filter(|s| *s > 0);
                let seconds = seconds.ok_or_else(|| format!("value {text} on -t or --timeout is invalid"))?;
                self.timeout = Some(Duration::from_secs(seconds));
            }
            "strict" => self.strict = true,
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
            "unixctl" => {
                eprintln!("{}: --unixctl: there is no control socket in this program", program::name())
            }
            // Nothing is coloured; the others are for commands that are not there yet.
            "color" | "may-create" | "pcap" | "raw" => {}
            other => return Err(format!("{other}: an option that nobody takes")),
        }
        Ok(())
    }
}

fn help() -> String {
    format!(
        "{name}: show and change flows, ports and settings of a switch over OpenFlow
usage: {name} [OPTIONS] COMMAND [ARG...]

{COMMANDS}

Options:
  -O, --protocols=VERSION[,VERSION]...  versions that may be spoken (default: OpenFlow10)
  -F, --flow-format=FORMAT[,FORMAT]...  encodings of flows that may be used
  -P, --packet-in-format=FORMAT  how packets come: standard, nxt_packet_in, nxt_packet_in2
  --strict                    modify or delete flows of exactly this match and priority
  --bundle                    all flow changes together or none
  --readd                     in replace-flows, also flows that are the same already
  --read-only                 refuse commands that change the switch
  --names, --no-names         take and show names of ports, or neither
  --stats, --no-stats         with counters and ages, or without
  --sort[=FIELD], --rsort[=FIELD]  sort flows, ascending or descending (default: priority)
  -m, --more                  show more
  --timestamp                 print the time of each message
  --color[=WHEN]              taken: nothing is coloured
  --may-create, --pcap, --raw, --unixctl=SOCKET  taken: for commands that are not there yet
  -t, --timeout=SECS          give up after SECS seconds
TLS:
  -p, --private-key=FILE, -c, --certificate=FILE, -C, --ca-cert=FILE,
  --ssl-protocols=PROTOS, --ssl-ciphers=CIPHERS
{daemon}  -o, --option                list the options
  -h, --help                  this text
  -V, --version               the version
",
        name = program::name(),
        daemon = crate::programs::ovs_vswitchd::daemon_help(),
    )
}

const COMMANDS: &str = "\
Commands (SWITCH is a bridge, unix:PATH, tcp:HOST[:PORT], ssl:HOST[:PORT] or a socket's path):
  show SWITCH                     the switch and its ports
  dump-desc SWITCH                who made it
  dump-tables SWITCH              its tables
  dump-groups SWITCH [GROUP]      its groups, of which there are none yet
  add-groups SWITCH FILE          takes files that have none
  dump-ports SWITCH [PORT]        counters of ports
  dump-ports-desc SWITCH [PORT]   descriptions of ports
  queue-stats SWITCH [PORT [QUEUE]]
  mod-port SWITCH PORT ACT        up, down, [no-]flood, [no-]receive, [no-]forward, [no-]packet-in, [no-]stp
  get-frags SWITCH, set-frags SWITCH normal|drop|reassemble|nx-match
  dump-flows SWITCH [FLOW], dump-aggregate SWITCH [FLOW]
  add-flow SWITCH FLOW, add-flows SWITCH FILE
  mod-flows SWITCH FLOW|FILE, del-flows SWITCH [FLOW|FILE]   (FILE with - for standard input)
  replace-flows SWITCH FILE       make the switch's flows those of the file
  diff-flows SOURCE SOURCE        compare flows; each a file or a switch
  add-tlv-map SWITCH MAP[,MAP]..., del-tlv-map SWITCH [MAP[,MAP]...], dump-tlv-map SWITCH
                                  tunnel options; MAP is {{class=CLASS,type=TYPE,len=LENGTH}}->tun_metadataN
  packet-out SWITCH \"in_port=PORT packet=HEX actions=ACTIONS\"
  monitor SWITCH [MISS-LEN] [invalid_ttl] [resume] [watch:[FLOW]]...
  snoop SWITCH                    what goes between the switch and its controllers
  probe SWITCH, ping SWITCH [BYTES], benchmark SWITCH BYTES COUNT
  parse-flow FLOW, parse-flows FILE   check flows and show them as they will be sent";
