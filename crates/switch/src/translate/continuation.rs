//! Continuations: the remaining work on a packet that waits for a controller, as bytes that the controller
//! stores.
//!
//! A continuation is the frozen rest of the actions, and the switch stores none of it: a controller may keep
//! it for as long as it likes, and may send it to a switch that was restarted meanwhile. Its effect could
//! also be achieved by a packet-out, so anyone who may send those may also fabricate continuations. Their
//! actions are checked like those of a packet-out.
//!
//! The format is that of Open vSwitch's continuations: properties with a type and a length, which start at
//! multiples of 8 after the header of the enclosing property. Properties with action lists have types of
//! their own, since they may contain instructions. Pure; nothing here panics, whatever the bytes. Source:
//! ovs-actions(7), "The controller action".

use super::stack::Stack;
use flow::Action;
use flow::options::OPTION_BYTES_MAX;
use openflow::{Codec, ErrorKind, Version};

/// The rest of one list of actions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Step {
    pub(crate) actions: Vec<Action>,
    pub(crate) table_id: u8,
    pub(crate) cookie: u64,
}

/// The remaining work on a packet.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Rest {
    /// Innermost first.
    pub(crate) steps: Vec<Step>,
    pub(crate) action_set: Vec<Action>,
    pub(crate) stack: Stack,
    /// The packet comes back with the connection tracker's result.
    pub(crate) is_tracked: bool,
}

/// What a trace reports about a packet that comes back after tracking.
pub(crate) struct Tracked<'a> {
    pub zone: u16,
    pub nat: Option<&'a flow::action::Nat>,
    /// What its connection is set to: values and bits to set.
    pub mark: Option<(u128, u128)>,
    pub label: Option<(u128, u128)>,
}

/// The rest of one action list: a cookie, a table, and OpenFlow 1.3 instructions.
const STEP: u16 = 0x8100;
/// The action set, as an OpenFlow 1.3 list.
const ACTION_SET: u16 = 0x8101;
/// A value on the stack (NXCPT_STACK), lowest first.
const STACK: u16 = 0x8001;
/// The packet was tracked (NXCPT_CONNTRACKED).
const TRACKED: u16 = 0x8003;
/// Bytes of a step before its instructions: padding, cookie, table, whether it continues the step before,
/// padding.
const STEP_HEAD: usize = 20;
/// Maximum length: it must fit into a message with its packet.
const BYTES_MAX: usize = 32_768;
/// Maximum number of steps: no list of rules leads to more.
const STEPS_MAX: usize = 4_096;

/// Whether it stands for a separate instruction.
fn is_instruction(action: &Action) -> bool {
    use Action::*;
    matches!(action, GotoTable(_) | WriteMetadata { .. } | WriteActions(_) | ClearActions | Meter(_))
}

/// Encodes the properties. `None` if they would be too long.
pub fn encode(rest: &Rest) -> Option<Vec<u8>> {
    let codec = Codec::new(Version::V13);
    let mut out = Vec::new();
    for step in &rest.steps {
        // Instructions have a fixed order, so each is encoded separately. They remain one list: an action
        // that ends it early ends all parts.
        let parts = step.actions.chunk_by(|a, b| !is_instruction(a) && !is_instruction(b));
        for (n, part) in parts.enumerate() {
            let mut body = vec![0; STEP_HEAD - 4];
            body[4..12].copy_from_slice(&step.cookie.to_be_bytes());
            (body[12], body[13]) = (step.table_id, u8::from(n > 0));
            body.extend(codec.encode_instructions(part));
            put(&mut out, STEP, &body)?;
        }
    }
    if !rest.action_set.is_empty() {
        put(&mut out, ACTION_SET, &[&[0; 4], &codec.encode_actions(&rest.action_set)[..]].concat())?;
    }
    for value in rest.stack.values() {
        put(&mut out, STACK, value)?;
    }
    if rest.is_tracked {
        put(&mut out, TRACKED, &[])?;
    }
    Some(out)
}

fn put(out: &mut Vec<u8>, kind: u16, body: &[u8]) -> Option<()> {
    let len = u16::try_from(4 + body.len()).ok()?;
    out.extend(kind.to_be_bytes());
    out.extend(len.to_be_bytes());
    out.extend(body);
    out.resize(out.len().next_multiple_of(8), 0);
    (out.len() <= BYTES_MAX).then_some(())
}

/// Decodes the rest of a continuation. Unknown properties are skipped.
pub fn decode(mut bytes: &[u8]) -> Result<Rest, ErrorKind> {
    let codec = Codec::new(Version::V13);
    let mut rest = Rest::default();
    while let [a, b, c, d, ..] = *bytes {
        let (kind, len) = (u16::from_be_bytes([a, b]), usize::from(u16::from_be_bytes([c, d])));
        let whole = bytes.get(..len).filter(|whole| whole.len() >= 4).ok_or(ErrorKind::OFPBPC_BAD_LEN)?;
        let body = &whole[4..];
        match kind {
            STEP => {
                let head = body.first_chunk::<{ STEP_HEAD - 4 }>().ok_or(ErrorKind::OFPBPC_BAD_LEN)?;
                let [_, _, _, _, cookie @ .., table_id, continues, _, _] = *head;
                let mut actions = codec.decode_instructions(&body[STEP_HEAD - 4..])?;
                // It would add nothing to the action set, and encoding would omit it.
                actions.retain(|action| !matches!(action, Action::WriteActions(set) if set.is_empty()));
                match rest.steps.last_mut().filter(|_| continues != 0) {
                    Some(step) => step.actions.extend(actions),
                    None => rest.steps.push(Step { actions, table_id, cookie: u64::from_be_bytes(cookie) }),
                }
            }
            ACTION_SET => {
                rest.action_set = codec.decode_actions(body.get(4..).ok_or(ErrorKind::OFPBPC_BAD_LEN)?)?;
            }
            STACK => {
                let is_pushed = body.len() <= OPTION_BYTES_MAX && rest.stack.push(body);
                is_pushed.then_some(()).ok_or(ErrorKind::OFPBPC_BAD_LEN)?;
            }
            TRACKED => rest.is_tracked = true,
            _ => {}
        }
        if rest.steps.len() > STEPS_MAX {
            return Err(ErrorKind::OFPBPC_BAD_LEN);
        }
        bytes = bytes.get(len.next_multiple_of(8)..).unwrap_or_default();
    }
    Ok(rest)
}

impl Step {
    /// The table in which a tracked packet is looked up first, with nothing before.
    pub(crate) fn table_to_begin_with(&self) -> Option<u8> {
        match self.actions[..] {
            [Action::GotoTable(table)] if table == self.table_id => Some(table),
            _ => None,
        }
    }
}

impl Rest {
    /// All its actions in order, as a packet-out would have them; the table of a `goto_table` may be any.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        let lists = self.steps.iter().map(|step| &step.actions).chain([&self.action_set]);
        lists.flatten().filter(|action| !matches!(action, Action::GotoTable(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::OfPort;

    fn output(port: u16) -> Action {
        Action::Output { port: OfPort(port), max_len: 0 }
    }

    #[test]
    fn what_was_frozen_is_read_back() {
        let actions = vec![output(1), Action::WriteActions(vec![output(2)]), output(3), Action::GotoTable(7)];
        let mut stack = Stack::default();
        let wide = [7; OPTION_BYTES_MAX];
        assert!(stack.push(&[5]) && stack.push(&wide));
        let rest = Rest {
            steps: vec![
                Step { actions, table_id: 3, cookie: 0x1122_3344_5566_7788 },
                Step { actions: vec![Action::ClearActions], table_id: 0, cookie: u64::MAX },
            ],
            action_set: vec![output(9)],
            stack,
            is_tracked: true,
        };
        let bytes = encode(&rest).unwrap();
        assert_eq!(bytes.len() % 8, 0);
        let read = decode(&bytes).unwrap();
        assert_eq!(read, rest, "the instructions of a step in their order");
        // Whatever is cut off, nothing panics.
        for n in 0..bytes.len() {
            let _ = decode(&bytes[..n]);
        }
        let nothing = [0, 3, 0, 8, 0, 0, 0, 0];
        let mut bytes = Vec::new();
        put(&mut bytes, STEP, &[&[0; STEP_HEAD - 4][..], &nothing].concat()).unwrap();
        let read = decode(&bytes).unwrap();
        assert_eq!(read.steps[0].actions, [], "an instruction to write no actions is none");
        assert_eq!(decode(&[0x81, 0, 0, 3]), Err(ErrorKind::OFPBPC_BAD_LEN), "shorter than its head");
    }
}
