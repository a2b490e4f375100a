//! `crosspoint ofctl`: `ovs-ofctl`'s job, with its commands, options, texts and exit codes.
//!
//! One file each for the connection (`client`), flows (`flows`), what compares sets of flows (`replace`), ports and the
//! switch (`ports`), and what goes on until it is interrupted (`watch`).

mod client;
mod flows;
mod ports;
mod replace;
mod watch;

use client::{Client, Failure, fail};
use openflow::text::{PortNames, Protocols};
use openflow::{Version, VersionSet};
use std::process::ExitCode;
use std::time::Duration;

/// Options of the subcommand.
#[derive(clap::Args)]
#[command(after_help = COMMANDS)]
pub struct Args {
    /// Versions that may be spoken, with commas between.
    #[arg(short = 'O', long, value_name = "VERSION[,VERSION]...", default_value = "OpenFlow10")]
    protocols: String,
    /// Encodings of flows that may be used, with commas between.
    #[arg(short = 'F', long, value_name = "FORMAT[,FORMAT]...", default_value = "any")]
    flow_format: String,
    /// Modify or delete flows of exactly the match and priority given.
    #[arg(long)]
    strict: bool,
    /// Commit flow changes all together or not at all.
    #[arg(long)]
    bundle: bool,
    /// In replace-flows, also flows that are the same already.
    #[arg(long)]
    readd: bool,
    /// Take and show names of ports.
    #[arg(long, overrides_with = "no_names")]
    names: bool,
    /// Neither take nor show names of ports.
    #[arg(long)]
    no_names: bool,
    /// Leave out counters and ages.
    #[arg(long)]
    no_stats: bool,
    /// With counters and ages.
    #[arg(long, overrides_with = "no_stats")]
    stats: bool,
    /// Sort flows by a field or by priority, ascending.
    #[arg(long, value_name = "FIELD", num_args = 0..=1, require_equals = true, default_missing_value = "priority",
          value_parser = numbered)]
    sort: Vec<(usize, String)>,
    /// Sort flows by a field or by priority, descending.
    #[arg(long, value_name = "FIELD", num_args = 0..=1, require_equals = true, default_missing_value = "priority",
          value_parser = numbered)]
    rsort: Vec<(usize, String)>,
    /// Show more.
    #[arg(short, long, action = clap::ArgAction::Count)]
    more: u8,
    /// Print the time of each message.
    #[arg(long)]
    timestamp: bool,
    /// How packets come to `monitor`: standard, nxt_packet_in or nxt_packet_in2.
    #[arg(short = 'P', long, value_name = "FORMAT")]
    packet_in_format: Option<String>,
    /// Give up after so many seconds.
    #[arg(short, long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// Taken and ignored: nothing is coloured.
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true)]
    color: Option<Option<String>>,
    /// The command, and its arguments.
    #[arg(required = true, value_name = "COMMAND")]
    words: Vec<String>,
}

const COMMANDS: &str = "\
Commands (SWITCH is a bridge, unix:PATH, tcp:HOST[:PORT] or a socket's path):
  show SWITCH                     the switch and its ports
  dump-desc SWITCH                who made it
  dump-tables SWITCH              its tables
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
  packet-out SWITCH \"in_port=PORT packet=HEX actions=ACTIONS\"
  monitor SWITCH [MISS-LEN] [invalid_ttl] [watch:[FLOW]]
  snoop SWITCH                    what goes between the switch and its controllers
  probe SWITCH, ping SWITCH [BYTES], benchmark SWITCH BYTES COUNT
  parse-flow FLOW, parse-flows FILE   check flows and show them as they will be sent";

/// A value with its place among those of `--sort` and `--rsort`: which comes first counts most.
fn numbered(text: &str) -> Result<(usize, String), std::convert::Infallible> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    Ok((NEXT.fetch_add(1, Ordering::Relaxed), text.to_string()))
}

/// What every command gets.
struct Options {
    args: Args,
    versions: VersionSet,
    /// Encodings that may be used.
    allowed: Protocols,
}

/// Runs the command. Exit codes as `ovs-ofctl`'s: 1 for failures, 2 for flows that differ.
pub fn run(args: Args) -> ExitCode {
    if let Some(seconds) = args.timeout {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(seconds));
            eprintln!("crosspoint ofctl: no answer within {seconds} s");
            // What a shell makes of SIGALRM, by which the stock tool ends.
            std::process::exit(142);
        });
    }
    match options(args).and_then(|options| dispatch(&options)) {
        Ok(code) => code,
        Err(failure) => {
            // An error message of the switch is shown as it is.
            if failure.0.starts_with("OFPT_ERROR") {
                eprintln!("{failure}");
            } else {
                eprintln!("crosspoint ofctl: {failure}");
            }
            ExitCode::FAILURE
        }
    }
}

fn options(args: Args) -> Result<Options, Failure> {
    let mut versions = VersionSet::default();
    for name in args.protocols.split([',', ' ']).filter(|name| !name.is_empty()) {
        match Version::from_name(name) {
            Some(version) => versions = versions.with(version),
            None => return fail!("Unknown OpenFlow version: \"{name}\""),
        }
    }
    if args.bundle {
        // OpenFlow 1.3 has bundles by extension, OpenFlow 1.0 none.
        versions = VersionSet(versions.0 & !VersionSet::only(Version::V10).0).with(Version::V13);
    }
    let spoken = versions.intersect(VersionSet::SUPPORTED);
    if spoken.0 == 0 {
        return fail!("{}: OpenFlow10 and OpenFlow13 are the versions that are spoken", args.protocols);
    }
    let allowed = Protocols::parse(&args.flow_format)?.intersect(Protocols::of_versions(spoken));
    Ok(Options { args, versions: spoken, allowed })
}

impl Options {
    fn word(&self, idx: usize) -> Option<&str> {
        self.args.words.get(idx).map(String::as_str)
    }

    fn connect(&self, target: &str) -> Result<Client, Failure> {
        Client::connect(target, self.versions)
    }

    /// Whether names of ports are taken.
    fn takes_names(&self) -> bool {
        !self.args.no_names
    }

    /// Whether names of ports are shown: on a terminal unless said otherwise.
    fn shows_names(&self) -> bool {
        use std::io::IsTerminal;
        !self.args.no_names && (self.args.names || std::io::stdout().is_terminal())
    }

    /// The names of a switch's ports.
    fn names_of(&self, client: &mut Client) -> Result<PortNames, Failure> {
        let mut names = PortNames::default();
        for desc in client.ports()? {
            names.insert(desc.port, &desc.name);
        }
        Ok(names)
    }

    fn more(&self) -> u8 {
        self.args.more + 1
    }
}

/// Command, arguments at least and at most, and what does it.
type Row = (&'static str, usize, usize, fn(&Options) -> Result<ExitCode, Failure>);

const TABLE: [Row; 25] = [
    ("show", 1, 1, ports::show),
    ("dump-desc", 1, 1, ports::dump_desc),
    ("dump-tables", 1, 1, ports::dump_tables),
    ("dump-ports", 1, 2, ports::dump_ports),
    ("dump-ports-desc", 1, 2, ports::dump_ports_desc),
    ("queue-stats", 1, 3, ports::queue_stats),
    ("mod-port", 3, 3, ports::mod_port),
    ("get-frags", 1, 1, ports::get_frags),
    ("set-frags", 2, 2, ports::set_frags),
    ("dump-flows", 1, 2, flows::dump_flows),
    ("dump-aggregate", 1, 2, flows::dump_aggregate),
    ("add-flow", 2, 2, flows::add_flow),
    ("add-flows", 2, 2, flows::add_flows),
    ("mod-flows", 2, 2, flows::mod_flows),
    ("del-flows", 1, 2, flows::del_flows),
    ("replace-flows", 2, 2, replace::replace_flows),
    ("diff-flows", 2, 2, replace::diff_flows),
    ("packet-out", 2, usize::MAX, flows::packet_out),
    ("parse-flow", 1, 1, flows::parse_flow_command),
    ("parse-flows", 1, 1, flows::parse_flows_command),
    ("monitor", 1, 4, watch::monitor),
    ("snoop", 1, 1, watch::snoop),
    ("probe", 1, 1, watch::probe),
    ("ping", 1, 2, watch::ping),
    ("benchmark", 3, 3, watch::benchmark),
];

fn dispatch(options: &Options) -> Result<ExitCode, Failure> {
    let name = options.word(0).unwrap_or("");
    let Some((_, least, most, command)) = TABLE.iter().find(|row| row.0 == name) else {
        return fail!("unknown command '{name}'; use --help for help");
    };
    let given = options.args.words.len() - 1;
    if given < *least {
        return fail!("'{name}' command requires at least {least} arguments");
    }
    if given > *most {
        return fail!("'{name}' command takes at most {most} arguments");
    }
    command(options)
}
