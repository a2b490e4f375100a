//! The tree checked against what the documents say of it.
