//! What one column of one row holds: a set of atoms or a map from atoms to atoms (RFC 7047 section 3.2).
//!
//! A scalar is a set of one. Sets and the keys of maps are sorted and free of duplicates, so that equal
//! values have one form, comparing is one pass, and values are printed in the order in which the stock tools
//! print them. The form is private: an empty datum and a single atom are stored in place, in 24 bytes;
//! everything else is shared between copies. An empty datum does not know whether it is a set or a map; its
//! column's type does.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::atom::{Atom, AtomType};
use crate::uuid::Uuid;

/// A set or a map. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Datum(Form);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
enum Form {
    #[default]
    Empty,
    One(Atom),
    /// At least two, sorted.
    Set(Arc<[Atom]>),
    /// At least one, sorted by key.
    Map(Arc<[(Atom, Atom)]>),
}

/// An element twice in a set, or a key twice in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate;

impl Datum {
    /// The empty set, and the empty map.
    pub const EMPTY: Datum = Datum(Form::Empty);

    /// A set of one.
    pub fn scalar(atom: impl Into<Atom>) -> Datum {
        Datum(Form::One(atom.into()))
    }

    /// A set with one element or none.
    pub fn optional(atom: Option<impl Into<Atom>>) -> Datum {
        atom.map_or(Datum::EMPTY, Datum::scalar)
    }

    /// A set; what is there twice counts once.
    pub fn set(atoms: impl IntoIterator<Item = impl Into<Atom>>) -> Datum {
        let mut atoms: Vec<Atom> = atoms.into_iter().map(Into::into).collect();
        atoms.sort_unstable();
        atoms.dedup();
        Datum::from_sorted_set(atoms)
    }

    /// A map; of repeated keys, the last value counts.
    pub fn map(pairs: impl IntoIterator<Item = (impl Into<Atom>, impl Into<Atom>)>) -> Datum {
        let mut pairs: Vec<(Atom, Atom)> =
            pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        pairs.reverse();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|later, earlier| later.0 == earlier.0);
        Datum::from_sorted_map(pairs)
    }

    /// A set. Repeated elements are an error.
    pub fn unique_set(mut atoms: Vec<Atom>) -> Result<Datum, Duplicate> {
        if !atoms.is_sorted() {
            atoms.sort_unstable();
        }
        if atoms.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Duplicate);
        }
        Ok(Datum::from_sorted_set(atoms))
    }

    /// A map. Repeated keys are an error.
    pub fn unique_map(mut pairs: Vec<(Atom, Atom)>) -> Result<Datum, Duplicate> {
        if !pairs.is_sorted_by(|a, b| a.0 <= b.0) {
            pairs.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        }
        if pairs.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(Duplicate);
        }
        Ok(Datum::from_sorted_map(pairs))
    }

    /// `atoms` are sorted, and no two are equal.
    fn from_sorted_set(mut atoms: Vec<Atom>) -> Datum {
        debug_assert!(atoms.is_sorted_by(|a, b| a < b));
        Datum(match atoms.len() {
            0 => Form::Empty,
            1 => atoms.pop().map_or(Form::Empty, Form::One),
            _ => Form::Set(atoms.into()),
        })
    }

    /// `pairs` are sorted by key, and no two keys are equal.
    fn from_sorted_map(pairs: Vec<(Atom, Atom)>) -> Datum {
        debug_assert!(pairs.is_sorted_by(|a, b| a.0 < b.0));
        Datum(if pairs.is_empty() { Form::Empty } else { Form::Map(pairs.into()) })
    }

    /// The number of elements or of pairs.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Empty => 0,
            Form::One(_) => 1,
            Form::Set(atoms) => atoms.len(),
            Form::Map(pairs) => pairs.len(),
        }
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Form::Empty)
    }

    /// The elements of a set, sorted; empty for a map that is not empty.
    pub fn as_set(&self) -> &[Atom] {
        match &self.0 {
            Form::One(atom) => std::slice::from_ref(atom),
            Form::Set(atoms) => atoms,
            Form::Empty | Form::Map(_) => &[],
        }
    }

    /// The pairs of a map, sorted by key; empty for a set.
    pub fn as_map(&self) -> &[(Atom, Atom)] {
        if let Form::Map(pairs) = &self.0 { pairs } else { &[] }
    }

    /// The element of a set of one.
    pub fn as_atom(&self) -> Option<&Atom> {
        if let Form::One(atom) = &self.0 { Some(atom) } else { None }
    }

    /// The integer, of a set of one.
    pub fn as_integer(&self) -> Option<i64> {
        self.as_atom()?.as_integer()
    }

    /// The real, of a set of one.
    pub fn as_real(&self) -> Option<f64> {
        self.as_atom()?.as_real()
    }

    /// The boolean, of a set of one.
    pub fn as_bool(&self) -> Option<bool> {
        self.as_atom()?.as_bool()
    }

    /// The string, of a set of one.
    pub fn as_str(&self) -> Option<&str> {
        self.as_atom()?.as_str()
    }

    /// The UUID, of a set of one.
    pub fn as_uuid(&self) -> Option<Uuid> {
        self.as_atom()?.as_uuid()
    }

    /// The elements of a set or the keys of a map, in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Atom> {
        (0..self.len()).map(move |index| self.key_at(index))
    }

    /// The values of a map in the order of its keys; nothing of a set.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Atom> {
        self.as_map().iter().map(|(_, value)| value)
    }

    fn key_at(&self, index: usize) -> &Atom {
        match &self.0 {
            Form::Map(pairs) => &pairs[index].0,
            _ => &self.as_set()[index],
        }
    }

    /// Whether it has `key` as an element of a set or a key of a map.
    pub fn contains(&self, key: &Atom) -> bool {
        match &self.0 {
            Form::Map(pairs) => pairs.binary_search_by(|(k, _)| k.cmp(key)).is_ok(),
            _ => self.as_set().binary_search(key).is_ok(),
        }
    }

    /// The value that a map has for `key`.
    pub fn value_of(&self, key: &Atom) -> Option<&Atom> {
        let pairs = self.as_map();
        pairs.binary_search_by(|(k, _)| k.cmp(key)).ok().map(|index| &pairs[index].1)
    }

    /// The value that a map from strings to strings has for `key`: `row.get(other_config).get("hwaddr")`.
    pub fn get(&self, key: &str) -> Option<&str> {
        let pairs = self.as_map();
        let at = pairs.binary_search_by(|(k, _)| k.as_str().unwrap_or_default().cmp(key)).ok()?;
        pairs[at].1.as_str()
    }

    /// Whether both share memory, and so are equal; false does not mean that they differ.
    pub fn is_same(&self, other: &Datum) -> bool {
        match (&self.0, &other.0) {
            (Form::Empty, Form::Empty) => true,
            (Form::Set(a), Form::Set(b)) => Arc::ptr_eq(a, b),
            (Form::Map(a), Form::Map(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// Sets and maps as such: union, difference, inclusion. Each is one pass over both.
impl Datum {
    /// All elements or pairs of both; for a key that both maps have, the pair of `self`.
    pub fn union(&self, other: &Datum) -> Datum {
        if other.keys().all(|key| self.contains(key)) {
            return self.clone();
        }
        if self.is_empty() {
            return other.clone();
        }
        match (&self.0, &other.0) {
            (Form::Map(a), Form::Map(b)) => Datum::from_sorted_map(merge(a, b, |x, y| x.0.cmp(&y.0))),
            _ => Datum::from_sorted_set(merge(self.as_set(), other.as_set(), Ord::cmp)),
        }
    }

    /// `self` without `other`. If both are maps, removes pairs that `other` also has with the same value; if
    /// `other` is a set, removes pairs whose keys are in it.
    pub fn difference(&self, other: &Datum) -> Datum {
        if !other.keys().any(|key| self.contains(key)) {
            return self.clone();
        }
        match (&self.0, &other.0) {
            (Form::Map(a), Form::Map(b)) => {
                Datum::from_sorted_map(without(a, b, |x, y| x.0.cmp(&y.0), |x, y| x.1 == y.1))
            }
            (Form::Map(a), _) => {
                Datum::from_sorted_map(without(a, other.as_set(), |x, y| x.0.cmp(y), |_, _| true))
            }
            _ => Datum::from_sorted_set(without(self.as_set(), other.as_set(), Ord::cmp, |_, _| true)),
        }
    }

    /// What `update2` and `update3` notifications and the log send for a change to `new` (ovsdb-server(7),
    /// "Update2 notification"): of sets, the elements in only one of them; of maps, pairs whose key is in
    /// only one of them, and those of `new` whose value changed. Columns of a single value send the new value
    /// instead.
    pub fn symmetric_difference(&self, new: &Datum) -> Datum {
        match (&self.0, &new.0) {
            (Form::Map(_), _) | (_, Form::Map(_)) => {
                let (old_pairs, new_pairs) = (self.as_map(), new.as_map());
                let gone = old_pairs.iter().filter(|(key, _)| !new.contains(key));
                let come = new_pairs.iter().filter(|(key, value)| self.value_of(key) != Some(value));
                Datum::from_two_maps(gone, come)
            }
            _ => {
                let gone = self.as_set().iter().filter(|atom| !new.contains(atom));
                let come = new.as_set().iter().filter(|atom| !self.contains(atom));
                let (gone, come): (Vec<_>, Vec<_>) = (gone.cloned().collect(), come.cloned().collect());
                Datum::from_sorted_set(merge(&gone, &come, Ord::cmp))
            }
        }
    }

    /// Applies the result of [`Datum::symmetric_difference`]: `self` with `diff` applied.
    pub fn apply_difference(&self, diff: &Datum) -> Datum {
        match (&self.0, &diff.0) {
            (Form::Map(_), _) | (_, Form::Map(_)) => {
                // A pair that exists with the same value is removed; any other pair is added or replaces the
                // old one.
                let kept = self.as_map().iter().filter(|(key, _)| !diff.contains(key));
                let come = diff.as_map().iter().filter(|(key, value)| self.value_of(key) != Some(value));
                Datum::from_two_maps(kept, come)
            }
            _ => self.symmetric_difference(diff),
        }
    }

    /// The pairs of two maps, each sorted, that have no key in common.
    fn from_two_maps<'a>(
        a: impl Iterator<Item = &'a (Atom, Atom)>,
        b: impl Iterator<Item = &'a (Atom, Atom)>,
    ) -> Datum {
        let mut pairs: Vec<(Atom, Atom)> = a.chain(b).cloned().collect();
        // Which finds two sorted runs, and merges them.
        pairs.sort_by(|x, y| x.0.cmp(&y.0));
        Datum::from_sorted_map(pairs)
    }

    /// Whether `other` has all elements of `self`, or all its pairs with their values.
    pub fn is_included_in(&self, other: &Datum) -> bool {
        self.len() <= other.len()
            && match &self.0 {
                Form::Map(pairs) => pairs.iter().all(|(key, value)| other.value_of(key) == Some(value)),
                _ => self.as_set().iter().all(|atom| other.contains(atom)),
            }
    }

    /// Whether `other` has no element of `self`, and no pair of it with its value. Both are sets, or maps.
    pub fn is_excluded_from(&self, other: &Datum) -> bool {
        let (few, many) = if self.len() <= other.len() { (self, other) } else { (other, self) };
        match &few.0 {
            Form::Map(pairs) => pairs.iter().all(|(key, value)| many.value_of(key) != Some(value)),
            _ => few.as_set().iter().all(|atom| !many.contains(atom)),
        }
    }

    /// The elements or pairs whose key, and value if there is one, pass.
    pub fn filter(&self, mut passes: impl FnMut(&Atom, Option<&Atom>) -> bool) -> Datum {
        match &self.0 {
            Form::Map(pairs) => Datum::from_sorted_map(
                pairs.iter().filter(|(key, value)| passes(key, Some(value))).cloned().collect(),
            ),
            _ => Datum::from_sorted_set(
                self.as_set().iter().filter(|atom| passes(atom, None)).cloned().collect(),
            ),
        }
    }
}

/// One sorted list of two; of equal elements the first's.
fn merge<T: Clone>(a: &[T], b: &[T], compare: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    let mut merged = Vec::with_capacity(a.len() + b.len());
    let rest = walk(a, b, compare, |before, equal, y| {
        merged.extend_from_slice(before);
        merged.push(equal.unwrap_or(y).clone());
    });
    merged.extend_from_slice(rest);
    merged
}

/// The elements of `a` for which `b` has no equal that `goes` as well.
fn without<T: Clone, U>(
    a: &[T],
    b: &[U],
    compare: impl Fn(&T, &U) -> Ordering,
    goes: impl Fn(&T, &U) -> bool,
) -> Vec<T> {
    let mut kept = Vec::with_capacity(a.len());
    let rest = walk(a, b, compare, |before, equal, y| {
        kept.extend_from_slice(before);
        kept.extend(equal.filter(|x| !goes(x, y)).cloned());
    });
    kept.extend_from_slice(rest);
    kept
}

/// For each element of `b`, calls `visit` with what `a` has before it, with its equal in `a`, and with it;
/// returns what remains of `a`. Both are sorted. Few elements of `b` are each looked for in what is left.
fn walk<'a, T, U>(
    mut a: &'a [T],
    b: &[U],
    compare: impl Fn(&T, &U) -> Ordering,
    mut visit: impl FnMut(&[T], Option<&T>, &U),
) -> &'a [T] {
    let is_short = b.len() < a.len() / 8;
    for y in b {
        let before = if is_short {
            a.partition_point(|x| compare(x, y) == Ordering::Less)
        } else {
            a.iter().take_while(|x| compare(x, y) == Ordering::Less).count()
        };
        let (passed, rest) = a.split_at(before);
        let equal = rest.first().filter(|x| compare(x, y) == Ordering::Equal);
        visit(passed, equal, y);
        a = &rest[usize::from(equal.is_some())..];
    }
    a
}

/// The bytes that JSON needs for a byte of a string, besides itself.
fn escape_bytes(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..0x20 => 5,
        _ => 0,
    }
}

impl Datum {
    /// The memory that it uses besides its 24 bytes, in bytes: for the elements of a set or map, and for long
    /// strings. Shared memory counts in full.
    pub fn heap_bytes(&self) -> usize {
        let long = |atom: &Atom| match atom {
            Atom::String(text) if text.is_heap_allocated() => text.len() + 16,
            _ => 0,
        };
        match &self.0 {
            Form::Empty => 0,
            Form::One(atom) => long(atom),
            Form::Set(atoms) => 16 + size_of_val(&atoms[..]) + atoms.iter().map(long).sum::<usize>(),
            Form::Map(pairs) => {
                16 + size_of_val(&pairs[..]) + pairs.iter().map(|(k, v)| long(k) + long(v)).sum::<usize>()
            }
        }
    }

    /// The bytes by which its strings are longer in JSON, without their quotes.
    pub fn escape_bytes(&self) -> usize {
        let escapes = |atom: &Atom| match atom {
            Atom::String(text) => text.bytes().map(escape_bytes).sum(),
            _ => 0,
        };
        match &self.0 {
            Form::Empty => 0,
            Form::One(atom) => escapes(atom),
            Form::Set(atoms) => atoms.iter().map(escapes).sum(),
            Form::Map(pairs) => pairs.iter().map(|(k, v)| escapes(k) + escapes(v)).sum(),
        }
    }

    /// The default of a column whose atoms are of `kind`, and which holds one.
    pub fn default_scalar(kind: AtomType) -> Datum {
        Datum(Form::One(kind.default_atom()))
    }
}

impl fmt::Debug for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Empty => f.write_str("[]"),
            Form::One(atom) => atom.fmt(f),
            Form::Set(atoms) => f.debug_set().entries(atoms.iter()).finish(),
            Form::Map(pairs) => f.debug_map().entries(pairs.iter().map(|(k, v)| (k, v))).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ColumnType;
    use serde_json::json;

    fn set(integers: &[i64]) -> Datum {
        Datum::set(integers.iter().copied())
    }

    fn map(pairs: &[(&str, &str)]) -> Datum {
        Datum::map(pairs.iter().copied())
    }

    fn column(text: &str) -> ColumnType {
        ColumnType::read(&serde_json::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn a_datum_is_three_words() {
        assert_eq!(size_of::<Datum>(), 24);
    }

    #[test]
    fn escapes_are_as_long_as_they_are_written() {
        for c in ('\0'..'\u{100}').chain(['€', '😀']) {
            let text = json!(c.to_string()).to_string();
            assert_eq!(
                Datum::scalar(&c.to_string()[..]).escape_bytes(),
                text.len() - 2 - c.len_utf8(),
                "{c:?}"
            );
        }
        assert_eq!(map(&[("a\n", "\u{1}")]).escape_bytes() + set(&[1]).escape_bytes(), 6);
    }

    #[test]
    fn sets_and_maps_have_one_form() {
        assert_eq!(set(&[3, 1, 2, 1]), set(&[1, 2, 3]));
        assert_eq!(set(&[7]), Datum::scalar(7));
        assert_eq!(map(&[("b", "1"), ("a", "2"), ("b", "3")]), map(&[("a", "2"), ("b", "3")]));
        assert_eq!(Datum::unique_set(vec![1.into(), 1.into()]), Err(Duplicate));
        assert_eq!(map(&[("a", "x"), ("c", "y")]).get("c"), Some("y"));
        assert_eq!(map(&[("a", "x"), ("c", "y")]).get("b"), None);
    }

    #[test]
    fn sets_are_computed_with() {
        let (a, b) = (set(&[1, 2, 3]), set(&[2, 4]));
        assert_eq!(a.union(&b), set(&[1, 2, 3, 4]));
        assert_eq!(a.difference(&b), set(&[1, 3]));
        assert_eq!(a.symmetric_difference(&b), set(&[1, 3, 4]));
        assert_eq!(a.apply_difference(&a.symmetric_difference(&b)), b);
        assert!(set(&[1, 3]).is_included_in(&a) && !b.is_included_in(&a));
        assert!(set(&[4, 5]).is_excluded_from(&a) && !b.is_excluded_from(&a));
    }

    #[test]
    fn maps_are_computed_with() {
        let (a, b) = (map(&[("a", "1"), ("b", "2")]), map(&[("b", "3"), ("c", "4")]));
        assert_eq!(a.union(&b), map(&[("a", "1"), ("b", "2"), ("c", "4")]));
        assert_eq!(a.difference(&map(&[("a", "1"), ("b", "x")])), map(&[("b", "2")]));
        assert_eq!(a.difference(&Datum::set(["a", "b"])), Datum::EMPTY);
        assert_eq!(a.symmetric_difference(&b), map(&[("a", "1"), ("b", "3"), ("c", "4")]));
        assert_eq!(a.apply_difference(&a.symmetric_difference(&b)), b);
        assert_eq!(b.apply_difference(&b.symmetric_difference(&Datum::EMPTY)), Datum::EMPTY);
    }

    #[test]
    fn few_elements_are_removed_from_many() {
        let many = Datum::set(0..100);
        let without = |gone: &[i64]| Datum::set((0..100).filter(|n| !gone.contains(n)));
        for gone in [&[0][..], &[99], &[-1, 0, 50, 51, 99, 100]] {
            assert_eq!(many.difference(&set(gone)), without(gone), "{gone:?}");
        }
        let many = Datum::map((0..100).map(|n| (n, "x")));
        let pairs = Datum::map([(-1, "x"), (0, "x"), (1, "y"), (99, "x")]);
        assert_eq!(many.difference(&pairs), Datum::map((1..99).map(|n| (n, "x"))));
        assert_eq!(many.difference(&set(&[0, 99, 100])), Datum::map((1..99).map(|n| (n, "x"))));
    }

    #[test]
    fn json_is_read_as_it_is_written() {
        let integers = column(r#"{"key": "integer", "min": 0, "max": "unlimited"}"#);
        let strings = column(r#"{"key": "string", "value": "string", "min": 0, "max": "unlimited"}"#);
        for (of, datum, text) in [
            (&integers, Datum::EMPTY, r#"["set",[]]"#),
            (&integers, set(&[5]), "5"),
            (&integers, set(&[2, 1]), r#"["set",[1,2]]"#),
            (&strings, Datum::EMPTY, r#"["map",[]]"#),
            (&strings, map(&[("k", "v")]), r#"["map",[["k","v"]]]"#),
        ] {
            assert_eq!(datum.to_json(of).to_string(), text);
            assert_eq!(Datum::from_json(&datum.to_json(of), of, None), Ok(datum));
        }
        assert_eq!(Datum::from_json(&json!(["set", [5]]), &integers, None), Ok(set(&[5])));
    }

    #[test]
    fn bad_json_is_refused() {
        let up_to_two = column(r#"{"key": {"type": "integer", "maxInteger": 9}, "min": 1, "max": 2}"#);
        let strings = column(r#"{"key": "string", "value": "string", "min": 0, "max": "unlimited"}"#);
        for (of, json, details) in [
            (&up_to_two, json!(["set", []]), "set must have 1 to 2 members but 0 are present"),
            (&up_to_two, json!(["set", [1, 2, 3]]), "set must have 1 to 2 members but 3 are present"),
            (&up_to_two, json!(["set", [1, 1]]), "set contains duplicate"),
            (&up_to_two, json!(["set", 1]), "expected [\"set\", <array>]"),
            (&up_to_two, json!("x"), "expected integer"),
            (&up_to_two, json!(10), "10 is greater than maximum allowed value 9"),
            (&strings, json!(["set", []]), "expected [\"map\", <array>]"),
            (&strings, json!(["map", [["a"]]]), "Parsing map element: expected 2-element array"),
            (&strings, json!(["map", [["a", "1"], ["a", "1"]]]), "map contains duplicate key"),
        ] {
            let error = Datum::from_json(&json, of, None).unwrap_err();
            assert!(error.details.as_ref().unwrap().contains(details), "{json}: {error}");
        }
    }
}
