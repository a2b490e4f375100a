//! Actions that lead the packet through tables or stop it.

use super::row::{Place, Row, nicira, with, word};
use crate::codec::bytes::Put;
use crate::error::ErrorKind::*;
use crate::message::TABLE_ALL;
use crate::text::value::number;
use crate::text::{TextError, bad, put};
use base::OfPort;
use flow::Action;

/// In resubmit, IN_PORT means "leave it unchanged".
fn unless_in_port(port: u16) -> Option<OfPort> {
    (port != OfPort::IN_PORT.0).then_some(OfPort(port))
}

pub(super) static RESUBMIT: Row = Row {
    name: "resubmit",
    syntax: "resubmit:PORT, or resubmit(PORT,TABLE,ct)",
    summary: "Searches a table again, as if the packet had come in at the port, and carries out what is found; `ct` \
              swaps the packet's addresses for those of its connection's original direction.",
    forms: &[
        nicira(
            1,
            |b| Ok(Action::Resubmit { in_port: unless_in_port(b.u16()?), table: None, ct: false }),
            |a, e| {
                with!(a, Action::Resubmit { in_port, table: None, ct: false } => {
                    e.out.u16(in_port.unwrap_or(OfPort::IN_PORT).0);
                })
            },
        ),
        nicira(
            14,
            |b| {
                let (port, table) = (b.u16()?, b.u8()?);
                b.zeros(3, OFPBAC_BAD_ARGUMENT)?;
                let table = (table != TABLE_ALL).then_some(table);
                Ok(Action::Resubmit { in_port: unless_in_port(port), table, ct: false })
            },
            |a, e| {
                with!(a, Action::Resubmit { in_port, table, ct: false } => {
                    e.out.u16(in_port.unwrap_or(OfPort::IN_PORT).0);
                    e.out.u8(table.unwrap_or(TABLE_ALL));
                })
            },
        ),
        nicira(
            44,
            |b| {
                let (port, table) = (b.u16()?, b.u8()?);
                b.zeros(3, OFPBAC_BAD_ARGUMENT)?;
                let table = (table != TABLE_ALL).then_some(table);
                Ok(Action::Resubmit { in_port: unless_in_port(port), table, ct: true })
            },
            |a, e| {
                with!(a, Action::Resubmit { in_port, table, ct: true } => {
                    e.out.u16(in_port.unwrap_or(OfPort::IN_PORT).0);
                    e.out.u8(table.unwrap_or(TABLE_ALL));
                })
            },
        ),
    ],
    words: &[word("resubmit", |p, _, value| {
        let mut parts = value.split(',').map(str::trim);
        let in_port = match parts.next().unwrap_or("") {
            "" => None,
            port => match p.ports.parse(port) {
                Some(port) => Some(port),
                None => return bad!("{port}: resubmit to unknown port"),
            },
        };
        let table = match parts.next() {
            None | Some("") => None,
            Some(table) => match p.ports.parse_table(table) {
                Some(table) => Some(table),
                None => return bad!("{table}: resubmit to unknown table"),
            },
        };
        let ct = match parts.next() {
            None | Some("") => false,
            Some("ct") => true,
            Some(other) => return bad!("{other}: unknown parameter"),
        };
        let in_port = in_port.filter(|&p| p != OfPort::IN_PORT);
        let table = table.filter(|&t| t != TABLE_ALL);
        if in_port.is_none() && table.is_none() {
            return bad!("at least one \"in_port\" or \"table\" must be specified on resubmit");
        }
        Ok(Action::Resubmit { in_port, table, ct })
    })],
    print: |a, p| {
        let Action::Resubmit { in_port, table, ct } = *a else { return false };
        let table = table.filter(|&t| t != TABLE_ALL);
        if let (Some(port), None, false) = (in_port, table, ct) {
            p.word("resubmit:");
            p.port(port);
            return true;
        }
        p.word("resubmit(");
        if let Some(port) = in_port {
            p.port(port);
        }
        p.word(",");
        if let Some(table) = table {
            p.table(table);
        }
        p.word(if ct { ",ct)" } else { ")" });
        true
    },
    check: |a, c| match a {
        Action::Resubmit { ct: true, .. } if !c.has_connection() => Err(OFPBAC_MATCH_INCONSISTENT),
        _ => Ok(()),
    },
    ..Row::PLAIN
};

pub(super) static CLONE: Row = Row {
    name: "clone",
    syntax: "clone(ACTION,...)",
    summary: "Carries out actions on a copy of the packet.",
    place: Place::Lists,
    forms: &[nicira(
        42,
        |b| {
            b.skip(6)?;
            Ok(Action::Clone(b.list()?))
        },
        |a, e| {
            with!(a, Action::Clone(actions) => {
                e.out.zeros(6);
                e.actions(actions);
            })
        },
    )
    .of_length_from(16)],
    words: &[word("clone", |p, _, value| Ok(Action::Clone(p.nested(value, false)?)))],
    print: |a, p| with!(a, Action::Clone(actions) => p.nested("clone", actions)),
    check: |a, c| match a {
        Action::Clone(actions) => c.nested(actions, false),
        _ => Ok(()),
    },
    ..Row::PLAIN
};

pub(super) static EXIT: Row = Row {
    name: "exit",
    syntax: "exit",
    summary: "Ends all actions, those of the tables that resubmitted included.",
    place: Place::Lists,
    forms: &[nicira(17, |_| Ok(Action::Exit), |a, _| *a == Action::Exit)],
    words: &[word("exit", |_, _, _| Ok(Action::Exit))],
    ..Row::PLAIN
};

/// Minimum and maximum number of clauses in a conjunction.
const CLAUSES: std::ops::RangeInclusive<u8> = 2..=64;

pub(super) static CONJUNCTION: Row = Row {
    name: "conjunction",
    syntax: "conjunction(ID,K/N)",
    summary: "Makes the match one way to meet clause K of N of a conjunction; what meets all matches `conj_id=ID`.",
    place: Place::Lists,
    forms: &[nicira(
        34,
        |b| {
            let (clause, n_clauses, id) = (b.u8()?, b.u8()?, b.u32()?);
            if !CLAUSES.contains(&n_clauses) || clause >= n_clauses {
                return Err(NXBAC_BAD_CONJUNCTION);
            }
            Ok(Action::Conjunction { id, clause, n_clauses })
        },
        |a, e| {
            with!(a, Action::Conjunction { id, clause, n_clauses } => {
                e.out.u8(*clause);
                e.out.u8(*n_clauses);
                e.out.u32(*id);
            })
        },
    )],
    words: &[word("conjunction", |_, _, value| parse_conjunction(value))],
    print: |a, p| {
        with!(a, Action::Conjunction { id, clause, n_clauses } => {
            put!(p.out, "conjunction({id},{}/{n_clauses})", u16::from(*clause) + 1);
        })
    },
    ..Row::PLAIN
};

fn parse_conjunction(text: &str) -> Result<Action, TextError> {
    let parts = text.split_once(',').and_then(|(id, rest)| {
        let (clause, n_clauses) = rest.split_once('/')?;
        Some((
            number(id.trim(), u32::MAX.into())? as u32,
            number(clause.trim(), 255)? as u8,
            number(n_clauses.trim(), 255)? as u8,
        ))
    });
    match parts {
        None => bad!("\"conjunction\" syntax is \"conjunction(id,i/n)\""),
        Some((_, _, 0..=1)) => bad!("conjunction must have at least 2 clauses"),
        Some((_, _, 65..)) => bad!("conjunction must have at most 64 clauses"),
        Some((_, 0, _)) => bad!("clause index must be positive"),
        Some((_, clause, n)) if clause > n => {
            bad!("clause index must be less than or equal to number of clauses")
        }
        Some((id, clause, n_clauses)) => Ok(Action::Conjunction { id, clause: clause - 1, n_clauses }),
    }
}
