//! Queues of ports.

use super::row::{Place, Row, nicira, of10, of11, with, word};
use crate::codec::bytes::Put;
use crate::error::ErrorKind::*;
use crate::text::value::u32_of;
use crate::text::{TextError, bad, put};
use crate::version::Version;
use base::OfPort;
use flow::Action;

/// Whether a port may have queues.
fn may_have_queues(port: OfPort) -> bool {
    port < OfPort::MAX || port == OfPort::IN_PORT || port == OfPort::LOCAL
}

pub(super) static ENQUEUE: Row = Row {
    name: "enqueue",
    syntax: "enqueue:PORT:QUEUE",
    summary: "Outputs the packet to a port through one of its queues; OpenFlow 1.1 and later say it in three actions.",
    place: Place::Lists,
    forms: &[of10(
        11,
        |b| {
            let port = OfPort(b.u16()?);
            if !may_have_queues(port) {
                return Err(OFPBAC_BAD_OUT_PORT);
            }
            b.skip(6)?;
            Ok(Action::Enqueue { port, queue: b.u32()? })
        },
        |a, e| {
            with!(a, Action::Enqueue { port, queue } => {
                e.out.u16(port.0);
                e.out.zeros(6);
                e.out.u32(*queue);
            })
        },
    )
    .of_length(16)],
    words: &[word("enqueue", |p, _, value| {
        let mut parts = value.split([':', ',', ' ']).filter(|p| !p.is_empty());
        let (Some(port), Some(queue), None) = (parts.next(), parts.next(), parts.next()) else {
            return bad!("\"enqueue\" syntax is \"enqueue:PORT:QUEUE\" or \"enqueue(PORT,QUEUE)\"");
        };
        match p.ports.parse(port) {
            Some(port) => Ok(Action::Enqueue { port, queue: u32_of(queue)? }),
            None => bad!("{port}: enqueue to unknown port"),
        }
    })],
    stand_in: |a, e| {
        with!(a, Action::Enqueue { port, queue } => {
            e.action(&Action::SetQueue(*queue));
            e.action(&Action::Output { port: *port, max_len: 0 });
            e.action(&Action::PopQueue);
        })
    },
    print: |a, p| {
        with!(a, Action::Enqueue { port, queue } => {
            p.word("enqueue:");
            p.port(*port);
            put!(p.out, ":{queue}");
        })
    },
    check: |a, _| match a {
        Action::Enqueue { port, .. } if !may_have_queues(*port) => Err(OFPBAC_BAD_OUT_PORT),
        _ => Ok(()),
    },
};

pub(super) static SET_QUEUE: Row = Row {
    name: "set_queue",
    syntax: "set_queue:QUEUE",
    summary: "Sets the queue of later outputs.",
    forms: &[
        nicira(
            4,
            |b| {
                b.skip(2)?;
                Ok(Action::SetQueue(b.u32()?))
            },
            |a, e| {
                with!(a, Action::SetQueue(queue) => {
                    e.out.zeros(2);
                    e.out.u32(*queue);
                })
            },
        )
        .only(Version::V10, Version::V10),
        of11(
            21,
            |b| Ok(Action::SetQueue(b.u32()?)),
            |a, e| with!(a, Action::SetQueue(queue) => e.out.u32(*queue)),
        ),
    ],
    words: &[word("set_queue", |_, _, value| Ok(Action::SetQueue(u32_of(value)?)))],
    print: |a, p| with!(a, Action::SetQueue(queue) => put!(p.out, "set_queue:{queue}")),
    ..Row::PLAIN
};

pub(super) static POP_QUEUE: Row = Row {
    name: "pop_queue",
    syntax: "pop_queue",
    summary: "Restores the queue that the packet came with.",
    place: Place::Lists,
    forms: &[nicira(5, |_| Ok(Action::PopQueue), |a, _| *a == Action::PopQueue)],
    words: &[word("pop_queue", |_, _, _| Ok::<_, TextError>(Action::PopQueue))],
    ..Row::PLAIN
};
