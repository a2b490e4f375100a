//! The demo's switch: this binary's `switch`, in a process of its own, configured by its database, asked by
//! its control socket.

use super::command::{Child, RUN_DIR, Shell};
use super::error::DemoError;
use super::guest;
use super::lab::{BRIDGE, GUEST_PORT, PORTS};
use super::sample::{self, Sample};
use std::cell::RefCell;
use std::fs::{self, File};
use std::time::{Duration, Instant};
use transport::unixctl::Client;
use vswitchd::figures::Figures;

/// How long it may take to start.
const START_WITHIN: Duration = Duration::from_secs(10);
/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The running switch. Ended when dropped.
pub struct Switch {
    child: Child,
    client: RefCell<Client>,
    guest_pid: u32,
}

impl Switch {
    /// Starts it and waits until it answers. It makes an empty database, and serves it. The guest's CPU time
    /// is sampled with its own.
    pub fn start(shell: &Shell, guest_pid: u32) -> Result<Switch, DemoError> {
        let command = "crosspoint switch";
        shell.show(&format!("{command} &"));
        let log = File::create(log_path()).map_err(|e| DemoError::new(format!("{}: {e}", log_path())))?;
        let mut child = shell.spawn_logging(command, log)?;
        let start = Instant::now();
        let client = loop {
            shell.nap()?;
            if !child.is_running()? {
                return Err(DemoError::new(format!("the switch did not start:\n{}", log_end())));
            }
            let target = format!("{RUN_DIR}/ovs-vswitchd.{}.ctl", child.pid());
            if let Ok(mut client) = Client::connect(&target, Some(ANSWER_WITHIN))
                && let Ok(Ok(_)) = client.run("version", &[])
            {
                break client;
            }
            if start.elapsed() > START_WITHIN {
                return Err(DemoError::new(format!("the switch does not answer:\n{}", log_end())));
            }
        };
        Ok(Switch { child, client: RefCell::new(client), guest_pid })
    }

    /// Configures its bridge and ports through its database, and waits until the guest is attached.
    pub fn configure(&self, shell: &Shell) -> Result<(), DemoError> {
        let client = shell.stock_or_own("ovs-vsctl", "crosspoint vsctl");
        let vsctl = |words: &str| {
            // If that takes longer, the log has the reason.
            let command = format!("{client} --timeout=20 --db=unix:{RUN_DIR}/db.sock {words}");
            shell.run(&command).map_err(|e| match e {
                DemoError::Failed(why) => {
                    DemoError::new(format!("{why}\nthe switch's log ends:\n{}", log_end()))
                }
                interrupted => interrupted,
            })
        };
        vsctl(&format!("add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type=netdev fail_mode=secure"))?;
        for (n, port) in (1..).zip(PORTS) {
            vsctl(&format!(
                "add-port {BRIDGE} {port} -- set interface {port} type=afxdp ofport_request={n}"
            ))?;
        }
        vsctl(&format!(
            "add-port {BRIDGE} {GUEST_PORT} -- set interface {GUEST_PORT} type=dpdkvhostuserclient ofport_request=3 \
             options:vhost-server-path={}",
            guest::socket()
        ))?;
        vsctl(&format!("wait-until interface {GUEST_PORT} link_state=up"))?;
        for line in vsctl("show")?.lines() {
            shell.say(line);
        }
        Ok(())
    }

    /// Runs a command in it.
    pub fn ask(&self, command: &str, args: &[&str]) -> Result<String, DemoError> {
        let args: Vec<String> = args.iter().map(|a| a.to_string()).collect();
        match self.client.borrow_mut().run(command, &args) {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(why)) => Err(DemoError::new(format!("{command}: {}", why.trim_end()))),
            Err(e) => Err(DemoError::new(format!("{command}: {e}; the switch's log ends:\n{}", log_end()))),
        }
    }

    /// All its counters.
    pub fn figures(&self) -> Result<Figures, DemoError> {
        Figures::parse(&self.ask("crosspoint/figures", &[])?).map_err(DemoError::new)
    }

    /// Its counters now.
    pub fn sample(&self) -> Result<Sample, DemoError> {
        let figures = self.figures()?;
        let (lookups, ports) = (sample::lookups(&figures), sample::ports(&figures));
        let (cpu_ns, guest_cpu_ns) = (sample::cpu_ns(self.child.pid()), sample::cpu_ns(self.guest_pid));
        Ok(Sample { at: Instant::now(), cpu_ns, guest_cpu_ns, lookups, ports })
    }

    /// Asks it to end, and waits for that.
    pub fn stop(self) {
        self.child.terminate();
    }
}

fn log_path() -> String {
    format!("{RUN_DIR}/switch.log")
}

/// The last lines of its log.
fn log_end() -> String {
    let text = fs::read_to_string(log_path()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
