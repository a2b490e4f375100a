//! A database server and a switch on it, ours or the stock one, to be compared side by side.

use crate::common::{Process, RunDir, binary, run_dir, wait_for};
use std::process::Command;

/// A database server and a switch on it, one of the two ours or the stock one.
pub struct Pair {
    dir: RunDir,
    pub server: Option<Process>,
    _switch: Process,
}

impl std::ops::Deref for Pair {
    type Target = RunDir;

    fn deref(&self) -> &RunDir {
        &self.dir
    }
}

impl Pair {
    pub fn start(switch: &mut Command) -> Pair {
        let dir = run_dir();
        let server = dir.serve_database();
        dir.vsctl("--no-wait init");
        let log = format!("--log-file={}", dir.file("log").display());
        let args = [&dir.database(), "--enable-dummy=override", "-vconsole:off", "--pidfile", &log];
        let switch = Process::logged(dir.lead(switch).args(args), dir.file("log"));
        wait_for("the switch", || dir.appctl(&["version"]).succeeded());
        let bridge = "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
            other_config:datapath-id=0000000000000001 other_config:hwaddr=aa:55:aa:55:00:00";
        let port = |n| format!(" -- add-port br0 p{n} -- set interface p{n} type=dummy ofport_request={n}");
        dir.vsctl(&[bridge.into(), port(1), port(2), port(3)].concat());
        Pair { dir, server: Some(server), _switch: switch }
    }

    pub fn ours() -> Pair {
        let link = run_dir();
        let program = link.path().join("ovs-vswitchd");
        std::os::unix::fs::symlink(binary(), &program).unwrap();
        Pair::start(&mut Command::new(program))
    }

    pub fn stock() -> Pair {
        let mut command = Command::new("ovs-vswitchd");
        command.arg("--disable-system");
        Pair::start(&mut command)
    }

    /// Standard output and the exit code of `ovs-appctl`, errors included, with what the two must differ in
    /// made the same.
    pub fn appctl(&self, args: &[&str]) -> (String, Option<i32>) {
        let output = self.run("ovs-appctl", &[&["-T", "20"], args].concat());
        let text = (output.out + &output.err).replace("packet_type(ns=0,id=0),", "");
        (text, output.code)
    }
}
