//! Connection methods as they are written: `tcp:HOST[:PORT]` and the like.
//!
//! Source: ovsdb(7), "Connection methods".

use host::rundir::RunDir;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// The default port of the OVSDB protocol.
pub const OVSDB_PORT: u16 = 6640;
/// The port of OpenFlow.
pub const OPENFLOW_PORT: u16 = 6653;

/// A host, as an address or by name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Host {
    /// An address, for link-local ones of IPv6 with the interface that it is on.
    Address(IpAddr, Option<String>),
    /// A name, which is resolved at each connection.
    Name(String),
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Host::Address(IpAddr::V6(a), Some(scope)) => write!(f, "[{a}%{scope}]"),
            Host::Address(IpAddr::V6(a), None) => write!(f, "[{a}]"),
            Host::Address(IpAddr::V4(a), _) => a.fmt(f),
            Host::Name(name) => f.write_str(name),
        }
    }
}

/// Whom to connect to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ActiveTarget {
    /// `unix:PATH`.
    Unix(PathBuf),
    /// `tcp:HOST[:PORT]`.
    Tcp(Host, u16),
    /// `ssl:HOST[:PORT]`: TLS over TCP.
    Ssl(Host, u16),
}

/// Where to listen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PassiveTarget {
    /// `punix:PATH`.
    Unix(PathBuf),
    /// `ptcp:[PORT][:ADDRESS]`. Port 0 lets the system choose.
    Tcp(Host, u16),
    /// `pssl:[PORT][:ADDRESS]`.
    Ssl(Host, u16),
}

/// Either.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// Connects.
    Active(ActiveTarget),
    /// Listens.
    Passive(PassiveTarget),
}

impl Target {
    /// Reads a method of either kind. A path that does not begin with `/` is in the run directory. The error
    /// is a sentence about `text`.
    pub fn parse(text: &str, default_port: u16) -> Result<Target, String> {
        let Some((kind, rest)) = text.split_once(':') else {
            return Err(format!("{text}: not a connection method, which begins with its kind, as tcp:"));
        };
        let path = || match rest {
            "" => Err(format!("{text}: the path is missing")),
            path => Ok(RunDir::from_env().path().join(path)),
        };
        let active = || active_host(rest, default_port).map_err(|why| format!("{text}: {why}"));
        let passive = || passive_host(rest, default_port).map_err(|why| format!("{text}: {why}"));
        Ok(match kind {
            "unix" => Target::Active(ActiveTarget::Unix(path()?)),
            "tcp" => active().map(|(host, port)| Target::Active(ActiveTarget::Tcp(host, port)))?,
            "ssl" => active().map(|(host, port)| Target::Active(ActiveTarget::Ssl(host, port)))?,
            "punix" => Target::Passive(PassiveTarget::Unix(path()?)),
            "ptcp" => passive().map(|(host, port)| Target::Passive(PassiveTarget::Tcp(host, port)))?,
            "pssl" => passive().map(|(host, port)| Target::Passive(PassiveTarget::Ssl(host, port)))?,
            _ => return Err(format!("{text}: unknown kind of connection method \"{kind}\"")),
        })
    }
}

impl ActiveTarget {
    /// Like [`Target::parse`], refusing methods that listen.
    pub fn parse(text: &str, default_port: u16) -> Result<ActiveTarget, String> {
        match Target::parse(text, default_port)? {
            Target::Active(target) => Ok(target),
            Target::Passive(_) => Err(format!("{text}: listens, where a method that connects is needed")),
        }
    }
}

impl PassiveTarget {
    /// Like [`Target::parse`], refusing methods that connect.
    pub fn parse(text: &str, default_port: u16) -> Result<PassiveTarget, String> {
        match Target::parse(text, default_port)? {
            Target::Passive(target) => Ok(target),
            Target::Active(_) => Err(format!("{text}: connects, where a method that listens is needed")),
        }
    }
}

impl std::fmt::Display for ActiveTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ActiveTarget::Unix(path) => write!(f, "unix:{}", path.display()),
            ActiveTarget::Tcp(host, port) => write!(f, "tcp:{host}:{port}"),
            ActiveTarget::Ssl(host, port) => write!(f, "ssl:{host}:{port}"),
        }
    }
}

impl std::fmt::Display for PassiveTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PassiveTarget::Unix(path) => write!(f, "punix:{}", path.display()),
            PassiveTarget::Tcp(host, port) => write!(f, "ptcp:{port}:{host}"),
            PassiveTarget::Ssl(host, port) => write!(f, "pssl:{port}:{host}"),
        }
    }
}

/// `HOST[:PORT]`, an IPv6 address in brackets.
fn active_host(text: &str, default_port: u16) -> Result<(Host, u16), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']').ok_or("the bracket is not closed")?;
            let port = match rest {
                "" => None,
                _ => Some(rest.strip_prefix(':').ok_or("a colon and the port may follow the bracket")?),
            };
            (ipv6(host)?, port)
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("an IPv6 address goes in brackets".into());
            }
            Some((host, port)) => (ipv4_or_name(host)?, Some(port)),
            None => (ipv4_or_name(text)?, None),
        },
    };
    let port = match port {
        None | Some("") => default_port,
        Some(port) => number(port)?,
    };
    if port == 0 {
        return Err("port 0 cannot be connected to".into());
    }
    Ok((host, port))
}

/// `[PORT][:ADDRESS]`.
fn passive_host(text: &str, default_port: u16) -> Result<(Host, u16), String> {
    let (port, host) = match text.split_once(':') {
        Some((port, host)) => (port, host),
        None => (text, ""),
    };
    let port = if port.is_empty() { default_port } else { number(port)? };
    let host = match host.strip_prefix('[') {
        Some(bracketed) => ipv6(bracketed.strip_suffix(']').ok_or("the bracket is not closed")?)?,
        None if host.is_empty() => Host::Address(Ipv4Addr::UNSPECIFIED.into(), None),
        None if host.contains(':') => return Err("an IPv6 address goes in brackets".into()),
        None => ipv4_or_name(host)?,
    };
    Ok((host, port))
}

fn number(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("{text}: bad port number"))
}

fn ipv6(text: &str) -> Result<Host, String> {
    let (address, scope) = match text.split_once('%') {
        Some((address, scope)) => (address, Some(scope.to_owned())),
        None => (text, None),
    };
    let address: Ipv6Addr = address.parse().map_err(|_| format!("{text}: bad IPv6 address"))?;
    Ok(Host::Address(address.into(), scope))
}

fn ipv4_or_name(text: &str) -> Result<Host, String> {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Ok(Host::Address(address.into(), None));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    // Digits and dots alone are a malformed address, not a host name.
    if text.is_empty() || !text.chars().all(is_name) || !text.contains(|c: char| c.is_ascii_alphabetic()) {
        return Err(format!("{text}: bad host name or IPv4 address"));
    }
    Ok(Host::Name(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str) {
        let shown_as = match Target::parse(text, OVSDB_PORT) {
            Ok(Target::Active(target)) => target.to_string(),
            Ok(Target::Passive(target)) => target.to_string(),
            Err(why) => format!("error: {why}"),
        };
        assert_eq!(shown_as, shown);
    }

    #[test]
    fn methods_are_read_with_their_defaults() {
        check("unix:/run/db.sock", "unix:/run/db.sock");
        check("tcp:10.0.0.1", "tcp:10.0.0.1:6640");
        check("tcp:10.0.0.1:1", "tcp:10.0.0.1:1");
        check("ssl:[::1]", "ssl:[::1]:6640");
        check("ssl:[fe80::1%eth0]:7", "ssl:[fe80::1%eth0]:7");
        check("tcp:db.example.org:7", "tcp:db.example.org:7");
        check("ptcp:", "ptcp:6640:0.0.0.0");
        check("ptcp:0:127.0.0.1", "ptcp:0:127.0.0.1");
        check("pssl:6641:[::]", "pssl:6641:[::]");
        check("pssl::[::]", "pssl:6640:[::]");
        check("punix:/a:b", "punix:/a:b");
    }

    #[test]
    fn what_is_no_method_is_refused_with_a_sentence() {
        for bad in [
            "",
            "tcp",
            "tcp:",
            "tcp:10.0.0",
            "tcp:::1",
            "tcp:[::1",
            "tcp:[::1]x",
            "tcp:a b",
            "tcp:1.2.3.4:99999",
            "tcp:1.2.3.4:0",
            "ptcp:x",
            "ptcp:1:::",
            "unix:",
            "http:x",
        ] {
            assert!(Target::parse(bad, OVSDB_PORT).is_err(), "{bad}");
        }
        check("tcp:1.2.3.4:x", "error: tcp:1.2.3.4:x: x: bad port number");
        assert!(ActiveTarget::parse("ptcp:", OVSDB_PORT).unwrap_err().contains("listens"));
        assert!(PassiveTarget::parse("tcp:a", OVSDB_PORT).unwrap_err().contains("connects"));
    }
}
