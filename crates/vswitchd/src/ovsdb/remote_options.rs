//! How a remote is served: its settings, and what follows from them.

use std::time::Duration;
use transport::reconnect::Options;
use transport::{ActiveTarget, PassiveTarget, Target};

/// The settings of a remote besides its target.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Overrides {
    pub(super) max_backoff: Option<Duration>,
    /// `Some(None)`: no probes.
    pub(super) probe_interval: Option<Option<Duration>>,
    pub(super) read_only: bool,
    /// What its clients may change. Empty: everything.
    pub(super) role: String,
    pub(super) dscp: Dscp,
}

/// The setting of the differentiated services code point.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Dscp {
    /// Nothing.
    #[default]
    Default,
    /// 0 to 63.
    Is(u8),
    /// Nothing that makes sense: it stays what it was.
    Nonsense,
}

impl Dscp {
    /// The default: that of network control, as in Open vSwitch.
    const DEFAULT: u8 = 48;

    pub(super) fn parse(text: &str) -> Dscp {
        text.parse().map_or(Dscp::Nonsense, Dscp::of)
    }

    pub(super) fn of(number: u8) -> Dscp {
        if number < 64 { Dscp::Is(number) } else { Dscp::Nonsense }
    }
}

/// How to serve one remote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RemoteOptions {
    backoff_max: Duration,
    probe_interval: Option<Duration>,
    pub(super) read_only: bool,
    /// What its clients may change. Empty: everything.
    pub(super) role: String,
    pub(super) dscp: u8,
}

impl RemoteOptions {
    /// The options of a connection within this process.
    pub(super) fn internal() -> RemoteOptions {
        RemoteOptions {
            backoff_max: Duration::ZERO,
            probe_interval: None,
            read_only: false,
            role: String::new(),
            dscp: Dscp::DEFAULT,
        }
    }

    /// Clients on this machine are not probed: their sockets tell when they are gone.
    fn default_for(target: &Target) -> RemoteOptions {
        let is_local =
            matches!(target, Target::Active(ActiveTarget::Unix(_)) | Target::Passive(PassiveTarget::Unix(_)));
        RemoteOptions {
            backoff_max: Duration::from_secs(8),
            probe_interval: (!is_local).then(|| Duration::from_secs(5)),
            read_only: false,
            role: String::new(),
            dscp: Dscp::DEFAULT,
        }
    }

    pub(super) fn new(
        target: &Target,
        overrides: Overrides,
        before: Option<&RemoteOptions>,
    ) -> RemoteOptions {
        let default = RemoteOptions::default_for(target);
        RemoteOptions {
            backoff_max: overrides.max_backoff.unwrap_or(default.backoff_max).max(Duration::from_secs(1)),
            // As in Open vSwitch, at least a second: shorter intervals would only cause trouble.
            probe_interval: match overrides.probe_interval {
                Some(interval) => interval.map(|i| i.max(Duration::from_secs(1))),
                None => default.probe_interval,
            },
            read_only: overrides.read_only,
            role: overrides.role,
            dscp: match overrides.dscp {
                Dscp::Is(dscp) => dscp,
                Dscp::Default => default.dscp,
                Dscp::Nonsense => before.map_or(default.dscp, |options| options.dscp),
            },
        }
    }

    pub(super) fn reconnect(&self, passive: bool) -> Options {
        Options {
            backoff_max: self.backoff_max,
            probe_interval: self.probe_interval,
            passive,
            ..Options::default()
        }
    }
}
