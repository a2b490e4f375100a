//! What a packet is to the switch: the flow key, the mask, the one table of fields, extraction of a key
//! from bytes, the classifier that finds the rule for a key, and the actions that rules carry.
//! No I/O, no clock, no `unsafe` (except SIMD leaf functions, if they prove worthwhile).

pub mod action;
pub mod classifier;
pub mod compose;
mod ct_tuple;
pub mod depth;
pub mod extract;
pub mod field;
pub mod key;
pub mod matching;
pub mod mf;
mod option_match;
pub mod options;

pub use action::Action;
pub use classifier::{Classifier, RuleRef};
pub use ct_tuple::{CtTuple, CtTuples};
pub use depth::Depth;
pub use extract::{Ingress, extract, extract_keeping_metadata, extract_without_link};
pub use field::FieldId;
pub use key::{BLOCKS, Block, Key, Mask};
pub use matching::Match;
pub use mf::Mf;
