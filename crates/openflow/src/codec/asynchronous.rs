//! Which asynchronous messages a controller wants (OFPT_SET_ASYNC, NXT_SET_ASYNC_CONFIG and ..CONFIG2).
//!
//! OpenFlow 1.3 and the first extension list six bitmaps, OpenFlow 1.4 and the second one a property for
//! each. What is not known is ignored in the former and an error in the latter. Sources: OpenFlow 1.3 section
//! 7.3.10, 1.4 section 7.3.10.

use super::bytes::{Put, Reader};
use super::group::{read_property, write_property};
use crate::error::ErrorKind::{self, *};
use crate::message::{AsyncChange, AsyncConfig};
use crate::version::Version;

/// The kinds of messages in the order of their properties' numbers, which are two each, secondaries first:
/// the known reasons, and those of the oldest form.
const KNOWN: [(u32, u32); 6] = [(0x3f, 0x7), (0x7, 0x7), (0x3f, 0x3f), (0x7, 0), (0x18, 0), (0x3, 0)];
/// Kinds that the oldest form has.
const OLD_KINDS: usize = 3;

pub(super) fn read(version: Version, r: &mut Reader) -> Result<AsyncChange, ErrorKind> {
    if version >= Version::V14 { read_properties(r) } else { read_bitmaps(r) }
}

pub(super) fn read_bitmaps(r: &mut Reader) -> Result<AsyncChange, ErrorKind> {
    let mut config = AsyncConfig::default();
    for (masks, (_, known)) in config.kinds().into_iter().zip(KNOWN).take(OLD_KINDS) {
        *masks = [r.u32()? & known, r.u32()? & known];
    }
    Ok(AsyncChange { config, given: AsyncChange::ALL })
}

pub(super) fn read_properties(r: &mut Reader) -> Result<AsyncChange, ErrorKind> {
    let (mut config, mut given) = (AsyncConfig::default(), 0);
    while !r.is_empty() {
        let (kind, mut value) = read_property(r)?;
        let mut all = config.kinds();
        let (Some(masks), Some((known, _))) =
            (all.get_mut(usize::from(kind / 2)), KNOWN.get(usize::from(kind / 2)))
        else {
            return Err(OFPACFC_UNSUPPORTED);
        };
        let mask = value.u32()?;
        if mask & !known != 0 {
            return Err(OFPACFC_INVALID);
        }
        masks[usize::from(kind % 2 == 0)] = mask;
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
