//! TTLs.

use super::row::{Row, lenient, nicira, of11, with, word};
use crate::codec::bytes::Put;
use crate::error::ErrorKind::*;
use crate::text::value::{u8_named, u16_named};
use crate::text::{bad, put};
use crate::version::Version;
use flow::{Action, Mf};

pub(super) static SET_NW_TTL: Row = Row {
    name: "mod_nw_ttl",
    syntax: "mod_nw_ttl:TTL",
    summary: "Sets the TTL or hop limit of IP.",
    forms: &[of11(
        23,
        |b| Ok(Action::SetNwTtl(b.u8()?)),
        |a, e| with!(a, Action::SetNwTtl(ttl) => e.out.u8(*ttl)),
    )],
    words: &[
        lenient("mod_nw_ttl", |_, _, value| Ok(Action::SetNwTtl(u8_named(value, "TTL")?))),
        lenient("set_nw_ttl", |_, _, value| Ok(Action::SetNwTtl(u8_named(value, "TTL")?))),
    ],
    stand_in: |a, e| with!(a, Action::SetNwTtl(ttl) => e.set_as_loads(Mf::NwTtl, u128::from(*ttl), 0xff)),
    print: |a, p| with!(a, Action::SetNwTtl(ttl) => put!(p.out, "mod_nw_ttl:{ttl}")),
    check: |_, c| c.needs(c.is_ip()),
    ..Row::PLAIN
};

pub(super) static DEC_TTL: Row = Row {
    name: "dec_ttl",
    syntax: "dec_ttl, or dec_ttl(ID,...)",
    summary: "Decrements the TTL or hop limit of IP; a packet whose TTL expires goes to the controllers with these \
              ids.",
    forms: &[
        nicira(18, |_| Ok(Action::DecTtl(None)), |a, _| *a == Action::DecTtl(None))
            .only(Version::V10, Version::V10),
        of11(24, |_| Ok(Action::DecTtl(None)), |a, e| with!(a, Action::DecTtl(None) => e.out.zeros(4))),
        nicira(
            21,
            |b| {
                let n = usize::from(b.u16()?);
                b.zeros(4, NXBRC_MUST_BE_ZERO)?;
                let mut ids = b.sub(2 * n)?;
                b.skip_rest()?;
                Ok(Action::DecTtl(Some((0..n).map(|_| ids.u16()).collect::<Result<_, _>>()?)))
            },
            |a, e| {
                with!(a, Action::DecTtl(Some(ids)) => {
                    e.out.u16(ids.len() as u16);
                    e.out.zeros(4);
                    ids.iter().for_each(|&id| e.out.u16(id));
                })
            },
        )
        .of_length_from(16),
    ],
    words: &[word("dec_ttl", |_, _, value| {
        if value.is_empty() {
            return Ok(Action::DecTtl(None));
        }
        let ids = value.split([',', ' ']).filter(|id| !id.is_empty());
        if ids.clone().next().is_none() {
            return bad!("dec_ttl_cnt_ids: expected at least one controller id.");
        }
        let ids = ids.map(|id| u16_named(id, "controller id"));
        Ok(Action::DecTtl(Some(ids.collect::<Result<_, _>>()?)))
    })],
    print: |a, p| {
        with!(a, Action::DecTtl(ids) => {
            p.word("dec_ttl");
            if let Some(ids) = ids {
                p.word("(");
                for (i, id) in ids.iter().enumerate() {
                    put!(p.out, "{}{id}", if i == 0 { "" } else { "," });
                }
                p.word(")");
            }
        })
    },
    check: |_, c| c.needs(c.is_ip()),
    ..Row::PLAIN
};

pub(super) static DEC_NSH_TTL: Row = Row {
    name: "dec_nsh_ttl",
    syntax: "dec_nsh_ttl",
    summary: "Decrements the TTL of a network service header.",
    forms: &[nicira(48, |_| Ok(Action::DecNshTtl), |a, _| *a == Action::DecNshTtl).since(Version::V13)],
    words: &[word("dec_nsh_ttl", |_, _, _| Ok(Action::DecNshTtl))],
    check: |_, c| c.needs(c.is_nsh()),
    ..Row::PLAIN
};
