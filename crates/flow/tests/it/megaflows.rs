//! Megaflows are wide: for rule sets and traces in `data/megaflows`, the number of megaflows that a cache fed
//! by the classifier needs is at most the number that Open vSwitch installed for them
//! (`scripts/ovs-megaflows` measured it).

use base::Version;
use base::hash::HashKey;
use base::rcu::Domain;
use flow::{Classifier, FieldId, Key, Mask, Match};
use std::collections::HashSet;
use std::path::Path;

/// A rule set, a trace, and what Open vSwitch needed for them.
#[derive(Default)]
struct Case {
    ovs_megaflows: usize,
    rules: Vec<(i32, Match)>,
    packets: Vec<Key>,
}

fn number(text: &str) -> u128 {
    match text.strip_prefix("0x") {
        Some(hex) => u128::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

fn field(name: &str) -> FieldId {
    *FieldId::ALL.iter().find(|f| f.name() == name).unwrap_or_else(|| panic!("no field {name}"))
}

fn load(path: &Path) -> Case {
    let mut case = Case::default();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let mut words = line.split(' ');
        match words.next().unwrap() {
            "#" => (),
            "ovs_megaflows" => case.ovs_megaflows = number(words.next().unwrap()) as usize,
            "rule" => {
                let priority = number(words.next().unwrap()) as i32;
                let matching = words.fold(Match::any(), |matching, word| {
                    let (name, value) = word.split_once('=').unwrap();
                    let (value, mask) = value.split_once('/').unwrap();
                    matching.with_masked(field(name), number(value), number(mask))
                });
                case.rules.push((priority, matching));
            }
            "packet" => {
                let mut key = Key::default();
                for word in words {
                    let (name, value) = word.split_once('=').unwrap();
                    key.set(field(name), number(value));
                }
                case.packets.push(key);
            }
            other => panic!("{}: {other}", path.display()),
        }
    }
    case
}

/// What every megaflow matches, as Open vSwitch's do.
fn always() -> Mask {
    let mut mask = Mask::wild();
    for field in [FieldId::InPort, FieldId::RecircId, FieldId::EthType, FieldId::NwFrag] {
        mask.add_exact(field);
    }
    mask
}

/// Megaflows that a cache holds after the trace, and their distinct masks; `spoil` may change each mask.
fn megaflows(case: &Case, spoil: impl Fn(&mut Mask)) -> (usize, usize) {
    let domain = Domain::new();
    let reader = domain.register();
    let classifier = Classifier::new(domain, HashKey::from_seed(1));
    let version = Version(1);
    for (i, (priority, matching)) in case.rules.iter().enumerate() {
        if classifier.find_exact(matching, *priority, version, &reader).is_none() {
            classifier.insert(matching, *priority, version, i, &reader);
        }
    }
    let mut cached: Vec<(Key, Mask, Option<i32>)> = Vec::new();
    for key in &case.packets {
        let matching = case.rules.iter().filter(|(_, m)| m.matches(key));
        let priority = matching.map(|(priority, _)| *priority).max();
        if let Some((.., of_flow)) = cached.iter().find(|(of, mask, _)| key.equal_under(of, mask)) {
            assert_eq!(*of_flow, priority, "a megaflow that is too wide");
            continue;
        }
        let mut wc = always();
        let found = classifier.lookup(version, key, &mut wc, &reader, &mut 0).map(|rule| rule.priority());
        assert_eq!(found, priority);
        spoil(&mut wc);
        cached.push((key.clone(), wc, found));
    }
    let masks: HashSet<_> = cached.iter().map(|(_, mask, _)| mask.clone().canonical()).collect();
    (cached.len(), masks.len())
}

fn cases() -> Vec<(String, Case)> {
    let directory = testkit::root().join("crates/flow/tests/data/megaflows");
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|p| (p.file_stem().unwrap().to_string_lossy().into_owned(), load(p))).collect()
}

#[test]
fn megaflows_are_no_more_than_open_vswitch_installs() {
    let cases = cases();
    assert!(cases.len() >= 10, "{} cases", cases.len());
    let mut over = Vec::new();
    for (name, case) in &cases {
        assert!(
            case.ovs_megaflows > 0 && !case.rules.is_empty() && !case.packets.is_empty(),
            "{name} is a case"
        );
        let (own, masks) = megaflows(case, |_| ());
        println!("{name:32} {own:4} megaflows, {masks:3} masks; Open vSwitch {:4}", case.ovs_megaflows);
        if own > case.ovs_megaflows {
            over.push(name);
        }
    }
    assert!(over.is_empty(), "more megaflows than Open vSwitch: {over:?}");
}

#[test]
fn a_classifier_without_prefixes_or_stages_would_be_noticed() {
    // As narrow as if the whole mask of every subtable were added.
    let narrow = cases()
        .iter()
        .filter(|(_, case)| {
            let all = case.rules.iter().fold(always(), |mut all, (_, matching)| {
                all.unite(&matching.mask);
                all
            });
            megaflows(case, |mask| mask.unite(&all)).0 > case.ovs_megaflows
        })
        .count();
    assert!(narrow >= 8, "only {narrow} cases notice narrow megaflows");
}
