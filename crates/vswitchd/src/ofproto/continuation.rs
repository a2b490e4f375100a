//! The continuation that a controller gets when it pauses a packet, and sends back.
//!
//! It identifies the bridge by its datapath id, so that it stays valid when the switch restarts.

/// The property that identifies the bridge, by which clients recognise a continuation (NXCPT_BRIDGE, which
/// ovs-ofctl prints).
const BRIDGE: u16 = 0x8000;
/// A UUID follows; its first eight bytes are the datapath id.
const LENGTH: u16 = 20;
/// The rest of it: a value that no other switch uses.
const MARK: [u8; 8] = *b"crosspnt";

/// The part before the rest of the work. Properties begin at a multiple of 8, counted from the header of the
/// enclosing one.
pub(crate) fn head(datapath_id: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    bytes.extend([0; 4]);
    bytes.extend(BRIDGE.to_be_bytes());
    bytes.extend(LENGTH.to_be_bytes());
    bytes.extend(datapath_id.to_be_bytes());
    bytes.extend(MARK);
    bytes.extend([0; 4]);
    bytes
}

/// The whole continuation.
pub(crate) fn continuation(datapath_id: u64, rest: &[u8]) -> Vec<u8> {
    [&head(datapath_id)[..], rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continuation_is_that_of_one_bridge() {
        let bytes = continuation(0x1234_5678, b"rest");
        assert_eq!(bytes.strip_prefix(&head(0x1234_5678)[..]), Some(&b"rest"[..]));
        assert_eq!(bytes.strip_prefix(&head(0x1234_5679)[..]), None);
        assert_eq!((bytes.len() - 4 + 4) % 8, 0, "the rest begins at a multiple of 8");
    }
}
