//! A port's requested configuration, and why it could not be applied.

use crate::files::FileDirs;
use crate::options::{N_RXQ, OptionRow, option_names};
use crate::port_memory::PortMemory;
use base::{PortNo, suggest};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A port as the database's `Interface` row or a `--port` flag describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSpec {
    /// The port's name. For ports on a kernel interface, that interface's name unless an option says
    /// otherwise.
    pub name: String,
    /// The type, as in the `type` column: one of [`crate::DRIVERS`].
    pub kind: String,
    /// The `options` column.
    pub options: BTreeMap<String, String>,
    /// The datapath's number, which received packets carry.
    pub port_no: PortNo,
    /// Number of receive queues requested, at least 1. The option `n_rxq` overrides it.
    pub n_rxq: usize,
    /// MTU in bytes (`mtu_request`), `None` to leave it unchanged.
    pub mtu: Option<u32>,
    /// Ethernet address (the `mac` column), `None` to leave it unchanged.
    pub mac: Option<[u8; 6]>,
    /// Set if devices that the port creates should outlive the process: they get this text as their alias, by
    /// which the next process recognises them. `None`: they go with the process.
    pub owner: Option<String>,
    /// Directories with files that options may name; none by default.
    pub files: FileDirs,
    /// The memory that its options may take, which it shares with other ports; by default its own.
    pub memory: PortMemory,
    /// If many frames must be brought into memory, [`crate::open`] does not wait for it: the link is down
    /// until they are there. False by default, as programs that measure need it.
    pub loads_in_background: bool,
    /// Each worker spreads flows over all transmit queues, in place of sending by one. Guests' ports, taps
    /// and dummies do.
    pub spreads_flows: bool,
    /// Whether [`PortError::Busy`] is followed by another attempt. If not, a `system` port that is busy uses
    /// packet sockets.
    pub retries_busy: bool,
}

impl PortSpec {
    /// A port with one receive queue, and no options.
    pub fn new(name: &str, kind: &str, port_no: PortNo) -> PortSpec {
        PortSpec {
            name: name.into(),
            kind: kind.into(),
            options: BTreeMap::new(),
            port_no,
            n_rxq: 1,
            mtu: None,
            mac: None,
            owner: None,
            files: FileDirs::default(),
            memory: PortMemory::default(),
            loads_in_background: false,
            spreads_flows: false,
            retries_busy: false,
        }
    }

    /// The same with one more option.
    pub fn with(mut self, option: &str, value: &str) -> PortSpec {
        self.options.insert(option.into(), value.into());
        self
    }

    /// The same, with the directories of these files allowed. Panics if a directory does not exist.
    pub fn with_files_beside<'a>(self, files: impl IntoIterator<Item = &'a Path>) -> PortSpec {
        let dir = |file: &Path| file.parent().expect("a file is in a directory").to_path_buf();
        let files = FileDirs::new(files.into_iter().map(dir)).expect("files that are there");
        PortSpec { files, ..self }
    }

    /// Refuses options that are neither in `known` nor [`N_RXQ`], and values that they do not have.
    pub fn check_options(&self, known: &[OptionRow]) -> Result<(), PortError> {
        for (option, value) in &self.options {
            let why = match known.iter().chain([&N_RXQ]).find(|row| row.name == option) {
                Some(row) if row.values.allow(value) => continue,
                Some(row) => return Err(self.unlike(row)),
                None => {
                    let names = option_names(known);
                    let hint = suggest::hint(option, &names);
                    format!("ports of type {} take {}{hint}", self.kind, names.join(", "))
                }
            };
            return Err(PortError::BadOption { option: option.clone(), value: value.clone(), why });
        }
        Ok(())
    }

    /// The value of an option.
    pub fn option(&self, option: &str) -> Option<&str> {
        self.options.get(option).map(String::as_str)
    }

    /// The value of an option, parsed. `expected` says in the error what it should have been.
    pub fn parsed<T: FromStr>(&self, option: &str, expected: &str) -> Result<Option<T>, PortError> {
        self.option(option)
            .map(|v| v.parse().map_err(|_| self.bad(option, format!("expected {expected}"))))
            .transpose()
    }

    /// The value of a boolean option: `true` or `false`.
    pub fn flag(&self, option: &str, default: bool) -> Result<bool, PortError> {
        Ok(self.parsed(option, "true or false")?.unwrap_or(default))
    }

    /// The number of receive queues, 1 to 64.
    pub fn rx_queues(&self) -> Result<usize, PortError> {
        let count = self.parsed("n_rxq", "a number of receive queues")?.unwrap_or(self.n_rxq);
        if !N_RXQ.values.allow(&count.to_string()) {
            return Err(self.unlike(&N_RXQ));
        }
        Ok(count)
    }

    /// The error for a value that the option's row does not describe, in the row's words. For what
    /// [`Self::check_options`] cannot know: a text, which the driver parses.
    pub(crate) fn unlike(&self, row: &OptionRow) -> PortError {
        self.bad(row.name, format!("expected {}", row.values))
    }

    /// The error for an option's value.
    pub(crate) fn bad(&self, option: &str, why: String) -> PortError {
        let value = self.option(option).unwrap_or_default().to_string();
        PortError::BadOption { option: option.into(), value, why }
    }
}

/// Why a port could not be made or changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortError {
    /// No driver has this type.
    UnknownKind {
        /// The type that was asked for.
        kind: String,
        /// The known types.
        known: Vec<&'static str>,
    },
    /// The type does not have the option, or does not accept the value.
    BadOption {
        /// The option's key.
        option: String,
        /// Its value.
        value: String,
        /// What was expected.
        why: String,
    },
    /// The kernel has no interface with that name.
    NoSuchInterface {
        /// The name.
        name: String,
    },
    /// The interface is the loopback device: a switch that took its packets would cut the machine off from
    /// itself.
    Loopback {
        /// Its name.
        name: String,
    },
    /// The operating system refused.
    Os {
        /// What was tried, as a noun phrase with its object: "open /dev/net/tun".
        call: String,
        /// The error number.
        errno: i32,
    },
    /// A file is not what it should be.
    File {
        /// Its path.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// Another process has the interface, or is giving it up just now: see [`crate::is_gone`].
    Busy {
        /// What is in the way.
        by: Blocker,
        /// The same in words.
        why: String,
    },
    /// The device or the kernel cannot do what was asked, or ports have no memory left for it.
    Unsupported(String),
}

/// What of another process is in the way of a port on a kernel interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocker {
    /// The interface.
    pub ifindex: u32,
    /// The receive queue to which an AF_XDP socket is bound; `None`: a switch has its XDP program attached.
    pub queue_id: Option<u32>,
}

impl PortError {
    /// The error of the system call that just failed in this thread.
    pub fn last_os(call: impl Into<String>) -> PortError {
        PortError::os(call, &std::io::Error::last_os_error())
    }

    /// From an error of the standard library.
    pub fn os(call: impl Into<String>, error: &std::io::Error) -> PortError {
        PortError::Os { call: call.into(), errno: error.raw_os_error().unwrap_or(0) }
    }

    /// From an error about a file.
    pub fn file(path: &Path, error: &std::io::Error) -> PortError {
        PortError::File { path: path.display().to_string(), why: base::os_text(error) }
    }

    /// The error number, where the operating system gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            PortError::Os { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortError::UnknownKind { kind, .. } if matches!(kind.as_str(), "dpdkvhost" | "dpdkvhostcuse") => {
                write!(f, "port type \"{kind}\" is gone: use dpdkvhostuser or dpdkvhostuserclient")
            }
            PortError::UnknownKind { kind, known } => {
                let hint = suggest::hint(kind, known);
                write!(f, "unknown port type \"{kind}\": known are {}{hint}", known.join(", "))
            }
            PortError::BadOption { option, value, why } => write!(f, "option {option}={value}: {why}"),
            PortError::NoSuchInterface { name } => write!(f, "no interface is named {name}"),
            PortError::Loopback { name } => {
                write!(f, "{name} is the loopback device, which the machine itself needs")
            }
            PortError::Os { call, errno } => {
                write!(f, "{call}: {}", base::os_text(&std::io::Error::from_raw_os_error(*errno)))
            }
            PortError::File { path, why } => write!(f, "{path}: {why}"),
            PortError::Busy { why, .. } => f.write_str(why),
            PortError::Unsupported(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for PortError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_the_wrong_kind_is_an_error_that_says_what_was_expected() {
        let spec = PortSpec::new("p", "null", PortNo(1)).with("size", "big").with("n_rxq", "65");
        let error = spec.parsed::<usize>("size", "a length in bytes").unwrap_err();
        assert_eq!(error.to_string(), "option size=big: expected a length in bytes");
        let expected = "option n_rxq=65: expected 1 to 64";
        assert_eq!(spec.rx_queues().unwrap_err().to_string(), expected);
        assert_eq!(spec.unlike(&N_RXQ).to_string(), expected);
    }
}
