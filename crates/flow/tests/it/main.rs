//! Keys, extraction and classifier against plain references.

mod classifier_oracle;
mod classifier_stress;
mod conjunctions;
mod extract;
mod megaflows;
