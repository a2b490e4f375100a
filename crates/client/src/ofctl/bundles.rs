//! A switch's answers to the messages of a bundle.

use openflow::codec::message_name;
use openflow::error::{ErrorCode, OfError};
use openflow::text::{PortNames, bytes_text};

/// Offset of the bundled message in a bundle-add message, and in that of the extension to OpenFlow 1.3.
const ADD_LEN: usize = 16;
const ONF_ADD_LEN: usize = 24;

/// Prints a switch's answer to a message of a bundle.
pub(super) fn report_bundled(xid: u32, said: &OfError, of: &[u8]) {
    // For a message in a bundle, that message is shown.
    let added =
        matches!(message_name(of).as_deref(), Ok("OFPT_BUNDLE_ADD_MESSAGE" | "ONFT_BUNDLE_ADD_MESSAGE"));
    let head =
        if message_name(of).is_ok_and(|name| name.starts_with("ONFT")) { ONF_ADD_LEN } else { ADD_LEN };
    let mut of = of.get(if added { head } else { 0 }..).unwrap_or(of).to_vec();
    if let Some(bytes) = of.get_mut(4..8) {
        bytes.copy_from_slice(&xid.to_be_bytes());
    }
    let name = match said.code {
        ErrorCode::Known(kind) => kind.to_string(),
        _ => "***decode error***".to_string(),
    };
    eprint!("Error {name} for: {}", bytes_text(&of, PortNames::none(), 1));
}
