//! Targets for `flow`: a key depends on the frame alone, and a shallow one is a part of the deep one.

use base::{OfPort, PortNo};
use flow::{Depth, FieldId, Ingress, Key, extract};

/// A frame at every depth, each key taken over from the depth before, as a worker does.
pub fn flow_extract(input: &[u8]) {
    let ingress = |depth| Ingress::new(OfPort(1), PortNo(2), depth);
    let mut everything = Key::default();
    let whole = extract(input, input.len(), &ingress(Depth::Everything), &mut everything);
    let mut reused = everything.clone();
    for depth in Depth::ALL {
        let mut fresh = Key::default();
        let offsets = extract(input, input.len(), &ingress(depth), &mut fresh);
        assert_eq!(offsets, extract(input, input.len(), &ingress(depth), &mut reused), "{depth:?}");
        assert_eq!(fresh, reused, "what the key held before shows at {depth:?}");
        assert_eq!(offsets.is_some(), whole.is_some(), "{depth:?}");
        for &field in FieldId::ALL {
            let value = fresh.get(field);
            assert!(value == 0 || value == everything.get(field), "{field:?} at {depth:?}");
        }
    }
    if let Some(offsets) = whole {
        assert!(usize::from(offsets.l3) <= input.len() && usize::from(offsets.l4) <= input.len());
        assert!(offsets.l4 == 0 || offsets.l4 >= offsets.l3);
    }
}
