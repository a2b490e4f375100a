//! The rows of all actions, and how one is found.

use super::checker::Checker;
use super::row::{Form, Place, Row, Space, Word};
use super::{
    choice, controller, ct, field, header, instruction, learn, load, mpls, nsh, other, output, pipeline,
    queue, stack, ttl, vlan,
};
use crate::error::ErrorKind;
use crate::version::Version;
use flow::Action;
use std::collections::HashMap;
use std::sync::LazyLock;

impl Row {
    /// The row of an action.
    pub(super) fn of(action: &Action) -> &'static Row {
        match action {
            Action::Output { .. } => &output::OUTPUT,
            Action::OutputReg { .. } => &output::OUTPUT_REG,
            Action::OutputTrunc { .. } => &output::OUTPUT_TRUNC,
            Action::Controller { .. } => &controller::CONTROLLER,
            Action::Enqueue { .. } => &queue::ENQUEUE,
            Action::SetField { .. } => &field::SET_FIELD,
            Action::SetOption { .. } => &field::SET_OPTION,
            Action::SetTpSrc(_) => &header::SET_TP_SRC,
            Action::SetTpDst(_) => &header::SET_TP_DST,
            Action::SetNwTtl(_) => &ttl::SET_NW_TTL,
            Action::Load { .. } => &load::LOAD,
            Action::Move { .. } => &field::MOVE,
            Action::StackPush(_) => &stack::PUSH,
            Action::StackPop(_) => &stack::POP,
            Action::SetVlanVid { .. } => &vlan::SET_VLAN_VID,
            Action::SetVlanPcp { .. } => &vlan::SET_VLAN_PCP,
            Action::PushVlan(_) => &vlan::PUSH_VLAN,
            Action::PopVlan => &vlan::POP_VLAN,
            Action::PushMpls(_) => &mpls::PUSH_MPLS,
            Action::PopMpls(_) => &mpls::POP_MPLS,
            Action::SetMplsLabel(_) => &mpls::SET_MPLS_LABEL,
            Action::SetMplsTc(_) => &mpls::SET_MPLS_TC,
            Action::SetMplsTtl(_) => &mpls::SET_MPLS_TTL,
            Action::DecMplsTtl => &mpls::DEC_MPLS_TTL,
            Action::DecTtl(_) => &ttl::DEC_TTL,
            Action::DecNshTtl => &ttl::DEC_NSH_TTL,
            Action::DebugRecirc => &other::DEBUG_RECIRC,
            Action::DebugSlow => &other::DEBUG_SLOW,
            Action::SetTunnel { .. } => &field::SET_TUNNEL,
            Action::SetQueue(_) => &queue::SET_QUEUE,
            Action::PopQueue => &queue::POP_QUEUE,
            Action::Resubmit { .. } => &pipeline::RESUBMIT,
            Action::GotoTable(_) => &instruction::GOTO_TABLE,
            Action::WriteMetadata { .. } => &instruction::WRITE_METADATA,
            Action::WriteActions(_) => &instruction::WRITE_ACTIONS,
            Action::ClearActions => &instruction::CLEAR_ACTIONS,
            Action::Clone(_) => &pipeline::CLONE,
            Action::Sample { .. } => &other::SAMPLE,
            Action::FinTimeout { .. } => &other::FIN_TIMEOUT,
            Action::Ct(_) => &ct::CT,
            Action::Nat(_) => &ct::NAT,
            Action::CtClear => &ct::CT_CLEAR,
            Action::DeleteField(_) => &field::DELETE_FIELD,
            Action::CheckPktLarger { .. } => &field::CHECK_PKT_LARGER,
            Action::Note(_) => &other::NOTE,
            Action::Exit => &pipeline::EXIT,
            Action::Conjunction { .. } => &pipeline::CONJUNCTION,
            Action::Group(_) => &output::GROUP,
            Action::Meter(_) => &instruction::METER,
            Action::Learn(_) => &learn::LEARN,
            Action::Multipath(_) => &choice::MULTIPATH,
            Action::Bundle(_) => &choice::BUNDLE,
            Action::Encap { .. } => &nsh::ENCAP,
            Action::Decap { .. } => &nsh::DECAP,
        }
    }
}

/// All rows, in the order of ovs-actions(7): instructions come last.
pub(super) static ROWS: [&Row; 54] = [
    &output::OUTPUT,
    &output::OUTPUT_REG,
    &output::OUTPUT_TRUNC,
    &controller::CONTROLLER,
    &queue::ENQUEUE,
    &choice::BUNDLE,
    &output::GROUP,
    &vlan::PUSH_VLAN,
    &vlan::POP_VLAN,
    &vlan::SET_VLAN_VID,
    &vlan::SET_VLAN_PCP,
    &mpls::PUSH_MPLS,
    &mpls::POP_MPLS,
    &mpls::SET_MPLS_LABEL,
    &mpls::SET_MPLS_TC,
    &mpls::SET_MPLS_TTL,
    &mpls::DEC_MPLS_TTL,
    &load::LOAD,
    &field::SET_FIELD,
    &field::SET_OPTION,
    &field::MOVE,
    &header::SET_TP_SRC,
    &header::SET_TP_DST,
    &ttl::SET_NW_TTL,
    &ttl::DEC_TTL,
    &nsh::ENCAP,
    &nsh::DECAP,
    &ttl::DEC_NSH_TTL,
    &field::CHECK_PKT_LARGER,
    &field::DELETE_FIELD,
    &choice::MULTIPATH,
    &field::SET_TUNNEL,
    &queue::SET_QUEUE,
    &queue::POP_QUEUE,
    &stack::PUSH,
    &stack::POP,
    &pipeline::RESUBMIT,
    &pipeline::CLONE,
    &ct::CT,
    &ct::NAT,
    &ct::CT_CLEAR,
    &learn::LEARN,
    &other::FIN_TIMEOUT,
    &other::SAMPLE,
    &pipeline::CONJUNCTION,
    &pipeline::EXIT,
    &other::NOTE,
    &other::DEBUG_RECIRC,
    &other::DEBUG_SLOW,
    &instruction::METER,
    &instruction::CLEAR_ACTIONS,
    &instruction::WRITE_ACTIONS,
    &instruction::WRITE_METADATA,
    &instruction::GOTO_TABLE,
];

/// Highest number of a form in the tables by number; higher ones are looked up in the list.
const NUMBER_MAX: u16 = 63;

/// The forms of a space and version, by number.
type ByNumber = [Option<&'static Form>; NUMBER_MAX as usize + 1];

static BY_NUMBER: LazyLock<Vec<ByNumber>> = LazyLock::new(|| {
    let mut tables = vec![[None; NUMBER_MAX as usize + 1]; 4 * Version::ALL.len()];
    for form in ROWS.iter().flat_map(|row| row.forms).filter(|f| f.number <= NUMBER_MAX && !f.read_elsewhere)
    {
        for version in Version::ALL.into_iter().filter(|&v| form.is_in(v)) {
            tables[table_of(form.space, version)][usize::from(form.number)] = Some(form);
        }
    }
    tables
});

fn table_of(space: Space, version: Version) -> usize {
    usize::from(version.minor()) * 4 + space as usize
}

/// The form with a number.
pub(super) fn form(space: Space, version: Version, number: u16) -> Option<&'static Form> {
    if number <= NUMBER_MAX {
        return BY_NUMBER[table_of(space, version)][usize::from(number)];
    }
    let forms = ROWS.iter().flat_map(|row| row.forms);
    forms.into_iter().find(|f| f.space == space && f.number == number && f.is_in(version))
}

/// The form of an instruction, and when it is carried out.
pub(super) fn instruction_form(number: u16) -> Option<(&'static Form, u8)> {
    let instructions = ROWS.iter().rev().take_while(|row| matches!(row.place, Place::Instruction(_)));
    let is_it = |f: &&Form| f.space == Space::Instruction && f.number == number;
    instructions.into_iter().find_map(|row| Some((row.forms.iter().find(is_it)?, row.place.rank())))
}

pub(super) static BY_WORD: LazyLock<HashMap<&'static str, &'static Word>> =
    LazyLock::new(|| ROWS.iter().flat_map(|row| row.words).map(|word| (word.name, word)).collect());

/// Checks an action by its row.
pub(super) fn check(action: &Action, checker: &mut Checker) -> Result<(), ErrorKind> {
    (Row::of(action).check)(action, checker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_forms_have_the_same_number_in_a_version() {
        let forms: Vec<&Form> = ROWS.iter().flat_map(|row| row.forms).filter(|f| !f.read_elsewhere).collect();
        for (i, a) in forms.iter().enumerate() {
            for b in &forms[i + 1..] {
                let both = Version::ALL.into_iter().any(|v| a.is_in(v) && b.is_in(v));
                assert!(!both || a.space != b.space || a.number != b.number, "{:?} {}", a.space, a.number);
            }
        }
    }

    #[test]
    fn every_row_has_a_name_a_summary_a_form_and_a_word_of_its_own() {
        let words: usize = ROWS.iter().map(|row| row.words.len()).sum();
        assert_eq!(BY_WORD.len(), words);
        for row in ROWS {
            assert!(!row.name.is_empty() && !row.syntax.is_empty() && !row.forms.is_empty(), "{}", row.name);
            assert!(row.summary.ends_with('.'), "{}", row.name);
        }
    }
}
