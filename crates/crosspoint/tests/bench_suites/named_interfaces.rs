//! Trials through network interfaces of the machine, here veth pairs that stand in for cabled cards.

use crate::bench_rig::{ONE_AT_A_TIME, assert_adds_up, bench, points_in, run};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use testkit::lab::wait_for;

/// Two cables, gone when dropped.
struct Cables([String; 4]);

impl Cables {
    fn lay() -> Cables {
        let cables = Cables(["a", "b", "c", "d"].map(|end| format!("xpn{}{end}", std::process::id())));
        let [a, b, c, d] = &cables.0;
        // Addresses that were chosen are nobody else's to change.
        let cable = |a: &str, b: &str, n: u8| {
            let [from, to] = [0, 1].map(|end| format!("02:00:00:00:{n:02x}:{end:02x}"));
            ip(&["link", "add", a, "address", &from, "type", "veth", "peer", "name", b, "address", &to]);
        };
        cable(a, b, 1);
        cable(c, d, 2);
        ip(&["link", "set", a, "mtu", "1400", "up"]);
        cables
    }

    /// Names, addresses, MTU, and whether they are up.
    fn state(&self) -> Vec<(String, Value, Value, bool)> {
        let state = |name: &String| {
            let output = Command::new("ip").args(["-j", "link", "show", "dev", name]).output().unwrap();
            let link: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let is_up = link[0]["flags"].as_array().is_some_and(|flags| flags.contains(&"UP".into()));
            (name.clone(), link[0]["address"].clone(), link[0]["mtu"].clone(), is_up)
        };
        self.0.iter().map(state).collect()
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        for name in [&self.0[0], &self.0[2]] {
            let _ = Command::new("ip").args(["link", "del", name]).stderr(Stdio::null()).status();
        }
    }
}

fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn ip(args: &[&str]) {
    assert!(Command::new("ip").args(args).status().unwrap().success(), "ip {args:?}");
}

#[test]
fn named_interfaces_take_the_place_of_veth_pairs_and_come_back_also_from_a_run_that_was_killed() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let cables = Cables::lay();
    let before = cables.state();
    let [a, b, c, d] = &cables.0;
    let nics = [format!("{a}={b}"), format!("{c}={d}")];
    let out = |name: &str| dir.path().join(name).display().to_string();
    let run_with = |name: &str, nics: &[String]| {
        let mut words: Vec<String> =
            ["run", "forwarding-table.nic", "--quick", "--switch", "crosspoint"].map(Into::into).into();
        nics.iter().for_each(|nic| words.extend(["--nic".into(), nic.clone()]));
        words.extend(["--out".into(), out(name)]);
        words
    };
    // While it has them, nobody else sees them; then it is killed.
    let words = run_with("killed", &nics);
    let mut killed = bench(&strs(&words)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the interfaces to be taken", || !Path::new("/sys/class/net").join(d).exists());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let (code, _, said) = run(&strs(&run_with("run", &nics)));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("interface"), "it says what it gave back: {said}");
    let points = points_in(Path::new(&out("run")), "");
    assert_eq!(points.len(), 1, "{points:?}");
    let point = &points[0];
    assert_eq!(point["conditions"]["interfaces"], "veth", "{point}");
    assert!(point["account"]["received"].as_u64().unwrap() > 0, "{point}");
    assert_adds_up(point);
    assert_eq!(cables.state(), before);
    // One cable does not lead through a switch.
    let (code, _, said) = run(&strs(&run_with("one", &nics[..1])));
    assert!(code == 3 && said.contains("it needs 2 cables, and --nic names 1"), "{code} {said}");
    assert_eq!(cables.state(), before);
}
