//! A monitor in the background and its control socket, of either client with either switch.

use crate::common::binary;
use crate::pair::Pair;

/// What a monitor prints that sends role requests (number, role, generation id), moves its output, and ends.
fn said(pair: &Pair, client: &str, start: u32) -> (String, String) {
    let (bridge, socket, first) = (pair.file("br0.mgmt"), pair.file("of.ctl"), pair.file("first"));
    let started = format!(
        "exec {client} -O OpenFlow13 --detach --no-chdir --pidfile={} --unixctl={} monitor {} >{} 2>&1",
        pair.file("of.pid").display(),
        socket.display(),
        bridge.display(),
        first.display()
    );
    pair.run("sh", &["-c", &started]).ok();
    let control = |args: &[&str]| {
        let target = socket.display().to_string();
        pair.run("ovs-appctl", &[&["-T", "20", "-t", &target], args].concat()).ok()
    };
    for (xid, role, generation) in
        [(1, 2, start), (2, 1, start + 4), (3, 1, start - 2), (4, 2, start - 2), (5, 2, start + 4)]
    {
        if xid == 4 {
            control(&["ofctl/set-output-file", &pair.file("second").display().to_string()]);
        }
        let request = format!("04180018{xid:08x}{role:08x}00000000{generation:016x}");
        control(&["ofctl/send", &request]);
        control(&["ofctl/barrier"]);
    }
    control(&["exit"]);
    let without_barriers = |name: &str| {
        let text = pair.read(name);
        text.lines().filter(|line| !line.contains("BARRIER")).map(|line| format!("{line}\n")).collect()
    };
    (without_barriers("first"), without_barriers("second"))
}

#[test]
fn equal_roles_leave_the_generation_id_alone_and_the_output_moves_with_either_client_and_switch() {
    let own = format!("{} ofctl", binary().display());
    for pair in [Pair::ours(), Pair::stock()] {
        // A switch keeps the generation id, so that the next client begins with a later one.
        for (client, start) in [("ovs-ofctl", 5), (&own, 50)] {
            let (first, second) = said(&pair, client, start);
            let answers: Vec<&str> = first.lines().filter(|l| l.contains("ROLE_REPLY")).collect();
            let shown = |xid: u32, role: &str, generation: u32| {
                format!("(OF1.3) (xid={xid:#x}): role={role} generation_id={generation}")
            };
            let reply = |xid, role| format!("OFPT_ROLE_REPLY {}", shown(xid, role, start));
            assert_eq!(
                answers,
                [reply(1, "primary"), reply(2, "equal"), reply(3, "equal")],
                "{client}: {first}"
            );
            let (stale, newer) = (shown(4, "primary", start - 2), shown(5, "primary", start + 4));
            let expected = [
                format!("send: OFPT_ROLE_REQUEST {stale}"),
                "OFPT_ERROR (OF1.3) (xid=0x4): OFPRRFC_STALE".to_string(),
                format!("OFPT_ROLE_REQUEST {stale}"),
                format!("send: OFPT_ROLE_REQUEST {newer}"),
                format!("OFPT_ROLE_REPLY {newer}"),
            ];
            assert_eq!(second.lines().collect::<Vec<_>>(), expected, "{client}: {second}");
        }
    }
}
