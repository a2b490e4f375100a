//! The messages that os-ken brings for its own tests, as `ofp-parse` prints them, beside the stock client.

use super::ours;
use std::collections::HashMap;
use std::process::Command;

/// Where we do not say what the stock client says, and why: messages by the end of their name, and what our
/// text has of each.
const DIFFERENCES: [(&str, &str); 7] = [
    // A value that three bits cannot hold is refused, as the switch refuses it.
    ("of10-action_set_mpls_tc", "OFPBAC_BAD_ARGUMENT"),
    // Names of ports that are no ASCII are shown, where the stock client shows none.
    ("ofp_port_status", "(私のポート)"),
    ("OFP15-port_status", "(私のポート)"),
    // An error of an experimenter says whose it is, where the stock client says that it cannot be read.
    ("error_msg_experimenter", "experimenter 0xf423f, type 60000, code 0"),
    // Of a reply the stock client also shows the flows before what is wrong.
    ("ofp_flow_stats_reply", "OFPBIC_DUP_INST"),
    // A field that neither knows is set: where others share its place in the stock client's table, that says
    // that its length is wrong.
    ("flow_mod", "OFPBAC_BAD_SET_TYPE"),
    ("flow_mod_no_nx", "OFPBAC_BAD_SET_TYPE"),
];

/// Messages whose text has a number that was not sent: `duration?` here, 4294967295 in the stock client.
const UNKNOWN_DURATION: &str = "OFP15-flow_removed";

/// A property of the eviction's kind makes the stock client say that nothing is evicted, whatever the bit for
/// it says.
const EVICTION: &str = "OFP15-table_mod";

/// The messages by version: the names, and the bytes.
fn samples() -> HashMap<String, Vec<(String, Vec<u8>)>> {
    let script = testkit::root().join("crates/crosspoint/tests/e2e/ofctl/samples.py");
    let output = Command::new(testkit::python()).arg(script).output().expect("python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut samples: HashMap<String, Vec<(String, Vec<u8>)>> = HashMap::new();
    for line in String::from_utf8(output.stdout).expect("text").lines() {
        let [version, name, digits] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
        let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        // One was caught with bytes after its end.
        let length = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        let message = bytes.get(..length).unwrap_or_else(|| panic!("{name} is cut")).to_vec();
        samples.entry(version.to_owned()).or_default().push((name.to_owned(), message));
    }
    samples
}

/// What a client prints of each message. An echo request of this number stands before each.
fn printed(mut client: Command, messages: &[(String, Vec<u8>)]) -> Vec<String> {
    const MARK: u32 = 0xfeed_0000;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("samples");
    let mark = |i: usize| [&[1, 2, 0, 8][..], &(MARK + i as u32).to_be_bytes()].concat();
    let all = messages.iter().enumerate().flat_map(|(i, (_, bytes))| [mark(i), bytes.clone()]);
    std::fs::write(&path, all.collect::<Vec<_>>().concat()).unwrap();
    let output = client.arg("ofp-parse").arg(&path).output().expect("the client runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let mut rest = text.as_str();
    let mut texts = Vec::new();
    for i in 0..messages.len() {
        let mark = format!("OFPT_ECHO_REQUEST (xid={:#x}): 0 bytes of payload\n", MARK + i as u32);
        let (before, after) = rest.split_once(&mark).unwrap_or_else(|| panic!("no {mark} in {rest}"));
        if i > 0 {
            texts.push(before.to_owned());
        }
        rest = after;
    }
    texts.push(rest.to_owned());
    texts
}

#[test]
fn messages_of_os_ken_read_as_by_the_stock_client() {
    let mut counted = 0;
    let mut used = [0; DIFFERENCES.len()];
    let mut wrong = String::new();
    for (version, messages) in samples() {
        let (ours, stock) = (printed(ours(), &messages), printed(stock(), &messages));
        for (((name, _), ours), stock) in messages.iter().zip(ours).zip(stock) {
            counted += 1;
            let known = DIFFERENCES.iter().position(|(end, has)| name.ends_with(end) && ours.contains(has));
            let is_same = match name.as_str() {
                _ if ours == stock => continue,
                _ if known.is_some() => {
                    used[known.unwrap()] += 1;
                    continue;
                }
                name if name.ends_with(UNKNOWN_DURATION) => {
                    ours == stock.replace("duration4294967295.4294967295s", "duration?")
                }
                name if name.ends_with(EVICTION) => {
                    ours == stock.replace("eviction=off", "eviction=on eviction_flags=IMPORTANCE")
                }
                _ => false,
            };
            if !is_same {
                wrong += &format!(">> {version} {name}\n--- stock\n{stock}--- ours\n{ours}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(counted, 336, "messages");
    let idle: Vec<_> = DIFFERENCES.iter().zip(used).filter(|(_, used)| *used == 0).collect();
    assert!(idle.is_empty(), "no longer different: {idle:?}");
}

#[test]
fn messages_of_os_ken_have_the_colors_and_the_bytes_that_the_stock_client_shows() {
    for option in ["--color=always", "-mmmm"] {
        let mut compared = 0;
        for (version, messages) in samples() {
            let with = |mut client: Command, option: &str| {
                client.arg(option);
                printed(client, &messages)
            };
            let plain = with(ours(), "--color=never").into_iter().zip(with(stock(), "--color=never"));
            let shown = with(ours(), option).into_iter().zip(with(stock(), option));
            for ((plain, shown), (name, _)) in plain.zip(shown).zip(&messages) {
                // Oddities of the stock client: a colored comma in learn, a comma behind exec(...) in colors
                // only, and an equals sign without a color.
                let stock =
                    shown.1.replace("\x1b[33m\x1b[K,", ",\x1b[33m\x1b[K").replace("K),\x1b", "K)\x1b");
                let stock = stock.replace("conj_id\x1b[m\x1b[K=", "conj_id=\x1b[m\x1b[K");
                // Texts that differ as it is are another test's.
                if plain.0 == plain.1 {
                    assert_eq!(shown.0, stock, "{option} {version} {name}: ours is on the left");
                    compared += usize::from(plain.0 != shown.0);
                }
            }
        }
        assert!(compared > 50, "{option}: {compared} messages");
    }
}

fn stock() -> Command {
    Command::new("ovs-ofctl")
}
