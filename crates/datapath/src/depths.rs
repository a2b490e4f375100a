//! Which bits of the key are filled only by extraction beyond a given depth.

use flow::{Depth, FieldId, Mask};
use std::sync::OnceLock;

/// The bits of all fields beyond some depth.
pub struct Beyond(Mask);

/// The fields that extraction at this depth (given by number) leaves zero.
pub fn beyond(depth: u8) -> &'static Beyond {
    static TABLE: OnceLock<[Beyond; 5]> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        Depth::ALL.map(|depth| {
            let mut mask = Mask::wild();
            for &field in FieldId::ALL.iter().filter(|f| f.depth() > depth) {
                mask.add_exact(field);
            }
            Beyond(mask)
        })
    });
    &table[usize::from(depth).min(4)]
}

impl Beyond {
    /// Whether the mask holds none of them.
    pub fn intersect_is_empty(&self, mask: &Mask) -> bool {
        mask.0.present_blocks().all(|b| {
            let (mine, theirs) = (self.0.0.block(b), mask.0.block(b));
            // Without a branch per word.
            (0..8).fold(0, |both, w| both | mine.0[w] & theirs.0[w]) == 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_match_is_beyond_network_depth_and_an_address_is_not() {
        let mut mask = Mask::wild();
        mask.add_exact(FieldId::NwSrc);
        assert!(beyond(Depth::Network as u8).intersect_is_empty(&mask));
        assert!(!beyond(Depth::Ethernet as u8).intersect_is_empty(&mask));
        mask.add_exact(FieldId::TpDst);
        assert!(!beyond(Depth::Network as u8).intersect_is_empty(&mask));
        assert!(beyond(Depth::Everything as u8).intersect_is_empty(&mask));
    }
}
