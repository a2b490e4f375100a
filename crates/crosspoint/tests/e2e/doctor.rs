//! `crosspoint doctor` on the machine that runs the tests.

use crate::common::binary;
use std::process::Command;

#[test]
fn each_finding_has_a_measure_and_a_fix_in_text_and_in_json() {
    let run = |args: &[&str]| {
        let output = Command::new(binary()).arg("doctor").args(args).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    };
    let (json, code) = run(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["version"], 1);
    let findings = json["findings"].as_array().unwrap();
    assert_eq!(code, Some(i32::from(!findings.is_empty())));
    let (text, _) = run(&[]);
    // Stolen time comes and goes between the two.
    for finding in findings.iter().filter(|f| f["name"] != "steal") {
        let (name, measured) = (finding["name"].as_str().unwrap(), finding["measured"].as_str().unwrap());
        assert!(text.contains(&format!("{name}: {measured}\n")), "{name} is missing in {text}");
        assert!(text.contains(finding["fix"].as_str().unwrap()));
    }
    assert!(text.contains("crosspoint bench run calibration"), "it leads to the benchmark: {text}");
}
