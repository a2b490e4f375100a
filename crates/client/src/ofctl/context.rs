//! The context of every command: its options, and what follows from them.

use super::arguments::Args;
use super::client::{Client, Failure, fail};
use super::color::{self, Colors};
use host::daemonize::Daemon;
use openflow::text::{PortNames, Protocols};
use openflow::{Version, VersionSet};
use std::borrow::Cow;
use std::cell::RefCell;

/// The context of every command.
pub struct Options {
    pub args: Args,
    /// The colors that `--color` asks for.
    pub colors: Option<Colors>,
    pub versions: VersionSet,
    /// Encodings that may be used.
    pub allowed: Protocols,
    /// Where `monitor` or `snoop` goes to the background.
    pub daemon: RefCell<Option<Daemon>>,
}

impl Options {
    /// From the command line's arguments.
    pub fn new(args: Args, daemon: Option<Daemon>) -> Result<Options, Failure> {
        let mut versions = VersionSet::default();
        for name in args.protocols.split([',', ' ']).filter(|name| !name.is_empty()) {
            match Version::from_name(name) {
                Some(version) => versions = versions.with(version),
                None => return fail!("Unknown OpenFlow version: \"{name}\""),
            }
        }
        if args.bundle {
            // OpenFlow 1.3 has bundles as an extension, earlier versions none. The same versions are allowed
            // as in the stock tool.
            let with_bundles = VersionSet(VersionSet::SUPPORTED.0 & !VersionSet::up_to(Version::V12 as u8).0);
            versions = match versions.intersect(with_bundles) {
                // Without a version, OpenFlow 1.4 is used.
                VersionSet(0) => VersionSet::default().with(Version::V14),
                some => some,
            };
        }
        if versions.0 == 0 {
            return fail!("-O: no version of OpenFlow is named");
        }
        let spoken = versions;
        let formats = Protocols::parse(&args.flow_format)?;
        let allowed = formats.intersect(Protocols::of_versions(spoken));
        if allowed.is_empty() {
            let versions: Vec<&str> = spoken.iter().map(Version::name).collect();
            return fail!(
                "None of the enabled OpenFlow versions ({}) supports any of the enabled flow formats ({formats}).  (Use -O to \
                 enable additional OpenFlow versions or -F to enable additional flow formats.)",
                versions.join(", ")
            );
        }
        let colors = args.colored.then(|| Colors::new(&std::env::var("OVS_COLORS").unwrap_or_default()));
        Ok(Options { args, colors, versions: spoken, allowed, daemon: RefCell::new(daemon) })
    }

    pub fn word(&self, idx: usize) -> Option<&str> {
        self.args.words.get(idx).map(String::as_str)
    }

    /// The switch that most commands name first.
    pub fn target(&self) -> &str {
        self.word(1).unwrap_or("")
    }

    /// Connects to it.
    pub fn connect(&self) -> Result<Client, Failure> {
        self.connect_to(self.target())
    }

    pub fn connect_to(&self, target: &str) -> Result<Client, Failure> {
        Client::connect(target, self.versions, &self.args.tls)
    }

    /// Those of the encodings that may be used.
    pub fn allowed_of(&self, usable: Protocols) -> Result<Protocols, Failure> {
        match usable.intersect(self.allowed) {
            both if !both.is_empty() => Ok(both),
            _ => no_common_format(usable, self.allowed),
        }
    }

    /// A client that speaks one of the encodings.
    pub fn client_for(&self, usable: Protocols) -> Result<Client, Failure> {
        let both = self.allowed_of(usable)?;
        let mut client = self.connect()?;
        client.use_one_of(both)?;
        Ok(client)
    }

    /// Whether names of ports are taken.
    pub fn takes_names(&self) -> bool {
        !self.args.no_names
    }

    /// Whether port names are shown: on a terminal by default.
    pub fn shows_names(&self) -> bool {
        use std::io::IsTerminal;
        !self.args.no_names && (self.args.names || std::io::stdout().is_terminal())
    }

    /// The names of a switch's ports.
    pub fn names_of(&self, client: &mut Client) -> Result<PortNames, Failure> {
        let mut names = PortNames::default();
        for desc in client.ports()? {
            names.insert(desc.port, &desc.name);
        }
        Ok(names)
    }

    /// A text to print, in colors if requested.
    pub fn painted<'a>(&self, text: &'a str) -> Cow<'a, str> {
        color::painted(self.colors.as_ref(), text)
    }

    pub fn more(&self) -> u8 {
        self.args.more + 1
    }
}

pub(super) fn no_common_format<T>(usable: Protocols, allowed: Protocols) -> Result<T, Failure> {
    fail!("none of the usable flow formats ({usable}) is among the allowed flow formats ({allowed})")
}
