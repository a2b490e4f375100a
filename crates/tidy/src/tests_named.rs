//! Every numbered invariant names a test that is there: `crate::test_function`, found among the tests of
//! that crate. An invariant that nothing enforces is a wish, and has no number.

use crate::Problems;
use crate::architecture::Invariant;
use crate::source::split;
use crate::tree::File;

/// How many lines above a function its attribute `#[test]` may stand.
const ATTRIBUTES_MAX: usize = 8;

/// Checks the invariants against the tests of the tree.
pub fn check(invariants: &[Invariant], files: &[File]) -> Problems {
    let mut problems = Problems::new();
    if invariants.is_empty() {
        problems.push("ARCHITECTURE.md has no numbered invariants".to_owned());
    }
    for (index, invariant) in invariants.iter().enumerate() {
        if invariant.number as usize != index + 1 {
            problems.push(format!("invariant {} is the {}. of the list", invariant.number, index + 1));
        }
        if invariant.tests.is_empty() {
            problems.push(format!("invariant {} names no test", invariant.number));
        }
        for test in &invariant.tests {
            if !exists(test, files) {
                problems.push(format!("invariant {}: there is no test {test}", invariant.number));
            }
        }
    }
    problems
}

fn exists(test: &str, files: &[File]) -> bool {
    let Some((package, function)) = test.split_once("::") else { return false };
    let function = function.rsplit("::").next().unwrap_or(function);
    files
        .iter()
        .filter(|file| file.ends_with(".rs") && file.crate_name() == Some(package))
        .any(|file| has_test(&split(&file.text).code, function))
}

fn has_test(code: &str, function: &str) -> bool {
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(at, line)| {
        let declares = line
            .split_once("fn ")
            .and_then(|(_, rest)| rest.strip_prefix(function))
            .is_some_and(|rest| rest.starts_with('('));
        let above = &lines[at.saturating_sub(ATTRIBUTES_MAX)..at];
        declares && above.iter().rev().take_while(|line| !line.ends_with('}')).any(|line| is_test(line))
    })
}

fn is_test(line: &str) -> bool {
    line.starts_with("#[test]") || line.contains("::test]") || line.contains("::test(")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "
#[test]
fn agrees() {}

proptest! {
    #![proptest_config(x)]
    #[test]
    fn agrees_always(a in any::<u8>()) {}
}

fn helper() {}
// #[test]
fn commented_out() {}
";

    fn problems(tests: &[&str]) -> Problems {
        let invariant = Invariant { number: 1, tests: tests.iter().map(|&t| t.to_owned()).collect() };
        check(&[invariant], &[File::new("crates/flow/tests/a.rs", CODE)])
    }

    #[test]
    fn tests_that_are_there_are_found() {
        assert_eq!(problems(&["flow::agrees", "flow::oracles::agrees_always"]), Problems::new());
    }

    #[test]
    fn what_is_no_test_of_that_crate_is_refused() {
        for bad in
            ["flow::gone", "flow::helper", "flow::commented_out", "switch::agrees", "agrees", "flow::agree"]
        {
            assert_eq!(problems(&[bad]).len(), 1, "{bad}");
        }
    }

    #[test]
    fn an_invariant_without_a_test_or_out_of_order_is_refused() {
        assert_eq!(problems(&[]).len(), 1);
        let second = Invariant { number: 2, tests: vec!["flow::agrees".to_owned()] };
        assert_eq!(check(&[second], &[File::new("crates/flow/tests/a.rs", CODE)]).len(), 1);
        assert_eq!(check(&[], &[]).len(), 1);
    }
}
