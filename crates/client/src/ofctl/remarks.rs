//! Log messages of the stock tool about bytes that it prints: why a message cannot be decoded, and which
//! parts of a match were left out.

use super::flows::log_normalization;
use openflow::codec::{Header, Unknown, message_name, names_no_version};
use openflow::error::ErrorKind;
use openflow::text::{PortNames, match_text, normalized};
use openflow::{Codec, Message, Version};

/// Offset of the match in a flow-mod of OpenFlow 1.0.
const MATCH10: std::ops::Range<usize> = 8..48;
/// Bytes of a features reply before its ports.
const FEATURES_LEN: usize = 32;
/// Offset of the message that is added to a bundle.
const BUNDLED: usize = 16;

/// Logs remarks about a message.
pub fn log(bytes: &[u8]) {
    let Some(header) = Header::parse(bytes).filter(|header| usize::from(header.length) == bytes.len()) else {
        return;
    };
    let Some(version) = Version::from_wire(header.version) else {
        // A hello of a future version offers known versions too.
        if header.kind == 0 {
            if names_no_version(bytes) {
                log_no_version();
            }
            return;
        }
        tracing::warn!(
            target: "ofp_msgs",
            "unknown OpenFlow message (version {}, type {})",
            header.version,
            header.kind
        );
        return;
    };
    if header.kind == 0 && names_version_zero(bytes) {
        tracing::warn!(target: "ofp_util", "peer claims to support invalid OpenFlow version 0x00");
    }
    let name = message_name(bytes).unwrap_or_default();
    match (Codec::new(version).decode(bytes), name.as_str()) {
        (Ok((_, Message::Hello(versions))), _)
            if versions.greatest().is_none() || names_no_version(bytes) =>
        {
            log_no_version();
        }
        (Ok((_, Message::FlowMod(_))), _) if version == Version::V10 && name == "OFPT_FLOW_MOD" => {
            normalization(&bytes[MATCH10]);
        }
        (Err(ErrorKind::OFPBRC_BAD_LEN), "OFPT_FEATURES_REPLY") => {
            let port = if version == Version::V10 { 48 } else { 64 };
            tracing::warn!(
                target: "ofp_msgs",
                "received {name} with incorrect length {} (must be exactly {FEATURES_LEN} bytes or longer by an integer multiple of {port} bytes)",
                bytes.len()
            );
        }
        (Err(error), "OFPT_SET_ASYNC") if version >= Version::V14 => properties(&bytes[8..], error),
        (Err(ErrorKind::OFPBFC_MSG_UNSUP), _) => {
            if let Some(added) = bytes.get(BUNDLED..).and_then(|bytes| message_name(bytes).ok()) {
                tracing::warn!(
                    target: "ofp_bundle",
                    "{added} message not allowed inside OFPT14_BUNDLE_ADD_MESSAGE"
                );
            }
        }
        _ => {}
    }
}

/// Whether the bitmap of a hello names version 0, which does not exist.
fn names_version_zero(bytes: &[u8]) -> bool {
    bytes.get(8..10) == Some(&[0, 1]) && bytes.get(15).is_some_and(|byte| byte & 1 != 0)
}

fn log_no_version() {
    tracing::warn!(target: "ofp_util", "peer does not support any OpenFlow version (between 0x01 and 0x1f)");
}

/// A match of OpenFlow 1.0 that names fields without what they require.
fn normalization(bytes: &[u8]) {
    if let Ok(before) = Codec::new(Version::V10).decode_match(bytes, Unknown::Refused) {
        let after = normalized(&before);
        if after != before {
            let text = |m| match_text(m, PortNames::none());
            log_normalization(&text(&before), &text(&after));
        }
    }
}

/// The property of an asynchronous configuration message that makes it undecodable.
fn properties(mut bytes: &[u8], error: ErrorKind) {
    const KINDS: [(&str, u32); 6] = [
        ("PACKET_IN", 0x3f),
        ("PORT_STATUS", 0x7),
        ("FLOW_REMOVED", 0x3f),
        ("ROLE_STATUS", 0x7),
        ("TABLE_STATUS", 0x18),
        ("REQUESTFORWARD", 0x3),
    ];
    while let [a, b, c, d, e, f, g, h, ..] = *bytes {
        let (kind, length) = (u16::from_be_bytes([a, b]), usize::from(u16::from_be_bytes([c, d])));
        let mask = u32::from_be_bytes([e, f, g, h]);
        match KINDS.get(usize::from(kind / 2)) {
            None if error == ErrorKind::OFPACFC_UNSUPPORTED => {
                return tracing::warn!(target: "ofp_util", "unknown async config property type {kind}");
            }
            Some((name, known)) if mask & !known != 0 => {
                return tracing::warn!(
                    target: "ofp_util",
                    "bad value {mask:#x} for {name} (allowed mask {known:#x})"
                );
            }
            _ => {}
        }
        let Some(rest) = bytes.get(length.next_multiple_of(8).max(8)..) else { return };
        bytes = rest;
    }
}
