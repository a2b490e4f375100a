//! The complete keys of the packets that created the megaflows. `dump-flows` also shows the bits that a
//! megaflow does not match, so an operator sees which packet it was. Written once per megaflow and read only
//! by dumps.
//!
//! Memory: 64 bytes per megaflow, and 64 more for each block of the key beyond the first; IPv4 with TCP or
//! UDP needs only the first.

use super::entry::{Arena, First, wide_len, wide_of};
use base::region::Region;
use flow::Key;

#[derive(zerocopy::FromZeros)]
#[repr(C, align(64))]
struct CommonBlock([u64; 8]);

/// All keys that are kept.
pub(super) struct Firsts {
    /// Block 0 of each, by megaflow.
    blocks: Region<CommonBlock>,
    further: Arena,
    high: u32,
}

impl Firsts {
    pub fn new(megaflows: usize) -> std::io::Result<Firsts> {
        let further = Arena::new(2 * megaflows)?;
        Ok(Firsts { blocks: Region::growing(megaflows + 1)?, further, high: 0 })
    }

    /// Keeps a key for the megaflow with this number. If there is no room, none of it is kept.
    #[inline(always)]
    pub fn keep(&mut self, megaflow: u32, key: &Key) -> First {
        let present = key.present();
        let further = match present {
            1 => Some(0),
            _ => self.further.store(&wide_of(key, present)),
        };
        let Some(further) = further else { return First::default() };
        if megaflow > self.high {
            self.high = megaflow;
            self.blocks.in_use(megaflow as usize + 1);
        }
        self.blocks[megaflow as usize].0 = key.common().0;
        First::new(further, present)
    }

    /// Frees the key's room.
    pub fn forget(&mut self, first: First) {
        self.further.release(first.further, wide_len(first.present));
    }

    /// The key, if it was kept.
    pub fn get(&self, megaflow: u32, first: First) -> Option<Key> {
        if first.present == 0 {
            return None;
        }
        let mut key = Key::default();
        key.put(0, self.blocks[megaflow as usize].0);
        let present = (1..flow::BLOCKS).filter(|b| first.present >> b & 1 != 0);
        for (b, words) in present.zip(self.further.run(first.further, wide_len(first.present))) {
            key.put(b, *words);
        }
        Some(key)
    }

    pub fn memory_bytes(&self) -> usize {
        self.high as usize * size_of::<CommonBlock>() + self.further.memory_bytes()
    }
}
