//! Reads ARCHITECTURE.md: the tables of crates with their ranks and policies, and the numbered invariants.
//!
//! A table of crates has the columns rank, crate, holds, unsafe, I/O, clock. The policy on `unsafe` is `yes`,
//! `no`, or `simd` (in files whose path has `simd` in it, and nowhere else); that on I/O `yes`, `no`, or
//! `memory` (mapping it, and nothing else); that on clocks `yes` or `no`. Crates in a table under a heading
//! that ends in "tests only" do not ship. An invariant is an item of the numbered list under "Invariants";
//! after the word "Test:" it names its tests in code spans.

/// A crate as the document has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Crate {
    /// Its name.
    pub name: String,
    /// It may import only crates of a lower one.
    pub rank: u32,
    /// Where it may have `unsafe`.
    pub unsafe_in: UnsafeIn,
    /// What it may ask of the system.
    pub io: Io,
    /// Whether it reads a clock.
    pub clock: bool,
    /// Whether the released binary may contain it.
    pub ships: bool,
}

/// Where a crate may have `unsafe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsafeIn {
    /// In no file.
    Nowhere,
    /// In files whose path has `simd` in it.
    SimdFiles,
    /// In every file.
    Anywhere,
}

/// What a crate may ask of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Io {
    /// Nothing.
    No,
    /// Memory to map, nothing else.
    Memory,
    /// Anything.
    Yes,
}

/// A numbered invariant.
#[derive(Debug, PartialEq, Eq)]
pub struct Invariant {
    /// Its number.
    pub number: u32,
    /// The tests that it names, as `crate::test`.
    pub tests: Vec<String>,
}

/// The crates of the document's tables. `Err` says what cannot be read.
pub fn crates(text: &str) -> Result<Vec<Crate>, String> {
    let mut crates = Vec::new();
    let mut in_table = false;
    let mut ships = true;
    for line in text.lines() {
        if line.starts_with('#') {
            ships = !line.trim_end().ends_with("tests only");
        }
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if line.starts_with("| rank | crate |") {
            in_table = true;
        } else if !line.starts_with('|') {
            in_table = false;
        } else if in_table && !line.starts_with("|---") {
            crates.push(row(&cells, ships).ok_or_else(|| format!("cannot read the row: {line}"))?);
        }
    }
    if crates.is_empty() { Err("there is no table of crates".to_owned()) } else { Ok(crates) }
}

fn row(cells: &[&str], ships: bool) -> Option<Crate> {
    let [rank, name, _holds, unsafe_in, io, clock] = cells else { return None };
    Some(Crate {
        name: name.trim_matches('`').to_owned(),
        rank: rank.parse().ok()?,
        unsafe_in: match *unsafe_in {
            "yes" => UnsafeIn::Anywhere,
            "no" => UnsafeIn::Nowhere,
            "simd" => UnsafeIn::SimdFiles,
            _ => return None,
        },
        io: match *io {
            "yes" => Io::Yes,
            "no" => Io::No,
            "memory" => Io::Memory,
            _ => return None,
        },
        clock: match *clock {
            "yes" => true,
            "no" => false,
            _ => return None,
        },
        ships,
    })
}

/// The invariants of the document.
pub fn invariants(text: &str) -> Vec<Invariant> {
    let mut invariants: Vec<Invariant> = Vec::new();
    let mut inside = false;
    let mut naming = false;
    for line in text.lines() {
        if line.starts_with('#') {
            inside = line.trim_start_matches('#').trim() == "Invariants";
        }
        if !inside {
            continue;
        }
        if let Some((number, _)) = line.split_once(". ")
            && let Ok(number) = number.parse()
        {
            invariants.push(Invariant { number, tests: Vec::new() });
            naming = false;
        } else if !line.starts_with(' ') {
            naming = false;
            continue; // Between the items.
        }
        let Some(invariant) = invariants.last_mut() else { continue };
        let names = match line.split_once("Test:") {
            Some((_, names)) => names,
            None if naming => line,
            None => continue,
        };
        naming = true;
        invariant.tests.extend(names.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    invariants
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
# Title
## Crates
| rank | crate | holds | unsafe | I/O | clock |
|---|---|---|---|---|---|
| 0 | `base` | things | yes | memory | yes |
| 2 | `flow` | keys | simd | no | no |

### Crates for tests only
| rank | crate | holds | unsafe | I/O | clock |
|---|---|---|---|---|---|
| 0 | `testkit` | help | no | yes | yes |

## Invariants
Words 1. not an item.
1. Agree with `each other`.
   Test: `flow::agrees`, and
   `switch::agrees_too`.

- Unnumbered: names nothing
  like `this`.
2. Nobody looks.

- Unnumbered: names nothing
  like `this`.
## Later
3. Not one. Test: `x`
";

    #[test]
    fn crates_are_read_with_their_policies() {
        let crates = crates(SAMPLE).unwrap();
        let names: Vec<_> = crates.iter().map(|c| (c.name.as_str(), c.rank, c.ships)).collect();
        assert_eq!(names, [("base", 0, true), ("flow", 2, true), ("testkit", 0, false)]);
        assert_eq!(crates[0].unsafe_in, UnsafeIn::Anywhere);
        assert_eq!(crates[1].unsafe_in, UnsafeIn::SimdFiles);
        assert_eq!((crates[0].io, crates[1].io, crates[2].io), (Io::Memory, Io::No, Io::Yes));
        assert!(!crates[1].clock && crates[0].clock);
    }

    #[test]
    fn a_row_that_cannot_be_read_is_refused_and_so_is_no_table() {
        assert!(crates(&SAMPLE.replace("| simd |", "| perhaps |")).unwrap_err().contains("flow"));
        assert!(crates("# nothing\n").is_err());
    }

    #[test]
    fn invariants_are_read_with_their_tests() {
        let invariants = invariants(SAMPLE);
        assert_eq!(invariants.len(), 2);
        assert_eq!(invariants[0].tests, ["flow::agrees", "switch::agrees_too"]);
        assert_eq!(invariants[1], Invariant { number: 2, tests: vec![] });
    }
}
