//! The rules of the firewall, and the faults that counter-tests plant in them.

use super::{Family, Kind, Side, address};

/// What is translated of connections from inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nat {
    None,
    /// The client's address and port.
    Source,
    /// The server's address.
    Destination,
}

/// One way of the firewall to be: who may begin connections, and what becomes of their addresses.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub family: Family,
    pub nat: Nat,
    /// Connections begin on this side only.
    pub inside: Side,
}

/// What is wrong with the rules or the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    None,
    /// No connection is committed.
    Commit,
    /// New connections are not translated.
    Translation,
    /// Answers are not translated back.
    TranslationBack,
    /// Nobody reads what FTP announces.
    Helper,
    /// What is related to a connection is not let through.
    Related,
    /// Fragments are not put together.
    Reassembly,
}

/// Who talks to whom.
#[derive(Clone, Debug)]
pub struct Talk {
    pub family: Family,
    pub from: Side,
    /// The client's address.
    pub source: String,
    /// The address by which it knows the server.
    pub target: String,
}

impl Policy {
    /// A client inside with a server outside.
    pub fn talk(self) -> Talk {
        let (client, server) = match self.nat {
            Nat::None => (Kind::Routed, Kind::Routed),
            Nat::Source => (Kind::Private, Kind::Routed),
            Nat::Destination => (Kind::Routed, Kind::Service),
        };
        Talk {
            family: self.family,
            from: self.inside,
            source: address(self.family, self.inside, client),
            target: address(self.family, self.inside.other(), server),
        }
    }

    /// A client outside that tries to reach a host inside.
    pub fn intrusion(self) -> Talk {
        let outside = self.inside.other();
        Talk {
            family: self.family,
            from: outside,
            source: address(self.family, outside, Kind::Routed),
            target: address(self.family, self.inside, Kind::Routed),
        }
    }

    /// The arguments of `nat` for a new connection.
    fn translation(self) -> Option<String> {
        let bracketed = |address: String| match self.family {
            Family::V4 => address,
            Family::V6 => format!("[{address}]"),
        };
        match self.nat {
            Nat::None => None,
            Nat::Source => {
                let shown = bracketed(address(self.family, self.inside, Kind::Shown));
                Some(format!("src={shown}:20000-40000"))
            }
            Nat::Destination => {
                let server = bracketed(address(self.family, self.inside.other(), Kind::Private));
                Some(format!("dst={server}"))
            }
        }
    }

    /// Its rules: what is established or related passes both ways, what is new from inside alone, and of TCP
    /// only to the ports of the servers.
    pub fn rules(self, fault: Fault) -> Vec<String> {
        let (ip, tcp, udp, icmp) = match self.family {
            Family::V4 => ("ip", "tcp", "udp", "icmp"),
            Family::V6 => ("ipv6", "tcp6", "udp6", "icmp6"),
        };
        let inside = self.inside.number();
        let back = if fault == Fault::TranslationBack { "" } else { ",nat" };
        let mut rules = vec![
            "priority=10,arp,actions=NORMAL".to_owned(),
            format!("priority=10,{ip},actions=ct(table=1,zone=7{back})"),
            "table=1,priority=30,ct_state=+trk+inv,actions=drop".to_owned(),
            "table=1,priority=20,ct_state=+trk+est,actions=NORMAL".to_owned(),
        ];
        // Neighbours are asked for by ICMPv6.
        let discovery = (133..=136).map(|kind| format!("priority=20,icmp6,icmp_type={kind},actions=NORMAL"));
        rules.extend(discovery);
        if fault != Fault::Related {
            rules.push("table=1,priority=20,ct_state=+trk-new+rel,actions=NORMAL".to_owned());
            rules.push(format!(
                "table=1,priority=20,ct_state=+trk+new+rel,{ip},actions=ct(commit,zone=7,nat),NORMAL"
            ));
        }
        let nat = match self.translation() {
            Some(translation) if fault != Fault::Translation => format!(",nat({translation})"),
            _ => String::new(),
        };
        for (matching, helper) in [
            (format!("{tcp},tp_dst=21"), ",alg=ftp"),
            (format!("{tcp},tp_dst=80"), ""),
            (format!("{tcp},tp_dst=5201"), ""),
            (udp.to_owned(), ""),
            (icmp.to_owned(), ""),
            // Whatever protocol they are of: in IPv6 they do not say.
            (format!("{ip},nw_frag=later"), ""),
        ] {
            let helper = if fault == Fault::Helper { "" } else { helper };
            let commit = match fault {
                Fault::Commit => String::new(),
                _ => format!("ct(commit,zone=7{helper}{nat}),"),
            };
            rules.push(format!(
                "table=1,priority=10,in_port={inside},ct_state=+trk+new-rel,{matching},actions={commit}NORMAL"
            ));
        }
        rules
    }
}
