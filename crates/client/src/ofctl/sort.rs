//! Flows in the order that `--sort` and `--rsort` ask for.

use super::client::{Failure, fail};
use base::suggest;
use flow::Mf;
use flow::options::OPTION_BYTES_MAX;
use openflow::message::FlowStats;
use openflow::text::field_names;
use std::cmp::Ordering;

/// The sort key of flows.
enum Criterion {
    Priority,
    Field(Mf),
}

/// A flow's value of a field; `None` if it does not match on the field.
fn sort_value(flow: &FlowStats, field: Mf) -> Option<[u8; OPTION_BYTES_MAX]> {
    if let Mf::TunMetadata(idx) = field {
        return flow.matching.options.get(idx).map(|option| option.value.to_be_bytes());
    }
    let (value, mask) = flow.matching.get_mf(field);
    let mut bytes = [0; OPTION_BYTES_MAX];
    bytes[OPTION_BYTES_MAX - 16..].copy_from_slice(&value.to_be_bytes());
    (mask != 0 && flow.matching.has_prereq(field)).then_some(bytes)
}

/// Sorts flows by fields, the first named counting most; those without a field come after those with it.
pub fn sort_flows(
    flows: &mut [FlowStats],
    ascending: &[(usize, String)],
    descending: &[(usize, String)],
) -> Result<(), Failure> {
    let mut criteria = Vec::new();
    for (names, reverse) in [(ascending, false), (descending, true)] {
        for (place, name) in names {
            let criterion = match name.as_str() {
                "priority" => Criterion::Priority,
                name => match Mf::from_name(name) {
                    Some(mf) => Criterion::Field(mf),
                    None => return fail!("{name}: unknown field name{}", suggest::line(name, field_names())),
                },
            };
            criteria.push((*place, criterion, reverse));
        }
    }
    criteria.sort_by_key(|(place, ..)| *place);
    let compare = |a: &FlowStats, b: &FlowStats| {
        for (_, criterion, reverse) in &criteria {
            let turn = |order: Ordering| if *reverse { order.reverse() } else { order };
            let order = match criterion {
                Criterion::Priority => turn(a.info.priority.cmp(&b.info.priority)),
                Criterion::Field(mf) => match (sort_value(a, *mf), sort_value(b, *mf)) {
                    (Some(a), Some(b)) => turn(a.cmp(&b)),
                    (a, b) => b.is_some().cmp(&a.is_some()),
                },
            };
            if order != Ordering::Equal {
                return order;
            }
        }
        // In the order of lookup: higher priorities first. Without a criterion flows keep their order.
        if criteria.is_empty() { Ordering::Equal } else { b.info.priority.cmp(&a.info.priority) }
    };
    flows.sort_by(compare);
    Ok(())
}
