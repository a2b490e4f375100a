//! Which asynchronous messages a controller wants (OFPT_SET_ASYNC, NXT_SET_ASYNC_CONFIG and ..CONFIG2).
//!
//! OpenFlow 1.3 and the first extension list six bitmaps, OpenFlow 1.4 and the second one a property for
//! each. Unknown bits or properties are ignored in the former, and in the latter are an error of the
//! requester. Sources: OpenFlow 1.3 section 7.3.10, 1.4 section 7.3.10.

use super::bytes::{Put, Reader};
use super::property::{self, read_property, unknown_property, whole_u32, write_property};
use crate::error::ErrorKind::{self, *};
use crate::message::{AsyncChange, AsyncConfig};
use crate::version::Version;

/// The kinds of messages in the order of their properties' numbers, which are two each, secondaries first:
/// the reasons known from OpenFlow 1.4 on, and before.
const KNOWN: [(u32, u32); 6] = [(0x3f, 0x7), (0x7, 0x7), (0x3f, 0x3f), (0x7, 0x7), (0x18, 0x18), (0x3, 0x3)];
/// Kinds that the oldest form has.
const OLD_KINDS: usize = 3;

/// Properties of experimenters, of secondaries and primaries.
const EXPERIMENTER: [u16; 2] = [0xfffe, 0xffff];

/// OFPT_SET_ASYNC.
pub(super) fn read(version: Version, r: &mut Reader) -> Result<AsyncChange, ErrorKind> {
    if version >= Version::V14 { read_properties(version, r) } else { read_bitmaps(version, r) }
}

/// OFPT_GET_ASYNC_REPLY; a controller ignores what it does not know.
pub(super) fn read_reply(version: Version, r: &mut Reader) -> Result<AsyncConfig, ErrorKind> {
    if version < Version::V14 {
        return Ok(read_bitmaps(version, r)?.config);
    }
    let mut config = AsyncConfig::default();
    while !r.is_empty() {
        let (kind, mut value) = read_property(r)?;
        if let Some((masks, known)) = masks_of(&mut config, version, kind) {
            *masks = value.u32()? & known;
        }
    }
    Ok(config)
}

/// The bitmap that a property sets, and the bits in it that are known.
fn masks_of(config: &mut AsyncConfig, version: Version, kind: u16) -> Option<(&mut u32, u32)> {
    let (known, before) = *KNOWN.get(usize::from(kind / 2))?;
    let known = if version >= Version::V14 { known } else { before };
    let masks = config.kinds().into_iter().nth(usize::from(kind / 2))?;
    Some((&mut masks[usize::from(kind.is_multiple_of(2))], known))
}

pub(super) fn read_bitmaps(version: Version, r: &mut Reader) -> Result<AsyncChange, ErrorKind> {
    let mut config = AsyncConfig::default();
    for (masks, (known, before)) in config.kinds().into_iter().zip(KNOWN).take(OLD_KINDS) {
        let known = if version >= Version::V14 { known } else { before };
        *masks = [r.u32()? & known, r.u32()? & known];
    }
    Ok(AsyncChange { config, given: AsyncChange::ALL })
}

pub(super) fn read_properties(version: Version, r: &mut Reader) -> Result<AsyncChange, ErrorKind> {
    let (mut config, mut given) = (AsyncConfig::default(), 0);
    while !r.is_empty() {
        let (kind, value) = read_property(r)?;
        if EXPERIMENTER.contains(&kind) {
            return Err(unknown_property(property::EXPERIMENTER, value));
        }
        let (mask, known) = masks_of(&mut config, version, kind).ok_or(OFPACFC_UNSUPPORTED)?;
        *mask = whole_u32(value)?;
        if *mask & !known != 0 {
            return Err(OFPACFC_INVALID);
        }
        given |= 1 << kind;
    }
    Ok(AsyncChange { config, given })
}

pub(super) fn write(version: Version, out: &mut Vec<u8>, change: &AsyncChange) {
    let mut config = change.config;
    for (i, masks) in config.kinds().into_iter().enumerate() {
        if version >= Version::V14 {
            for (kind, mask) in [(2 * i as u16, masks[1]), (2 * i as u16 + 1, masks[0])] {
                if change.given >> kind & 1 != 0 {
                    write_property(out, kind, |out| out.u32(mask));
                }
            }
        } else if i < OLD_KINDS {
            masks.iter().for_each(|&mask| out.u32(mask));
        }
    }
}
