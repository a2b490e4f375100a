//! The demo's switch: this binary's `switch`, in a process of its own, asked by its control socket.

use super::command::{Child, Shell};
use super::error::DemoError;
use super::lab::{PORTS, RUN_DIR};
use super::sample::{self, Sample};
use std::cell::RefCell;
use std::fs::{self, File};
use std::time::{Duration, Instant};
use vswitchd::unixctl::Client;

/// How long it may take to start.
const START_WITHIN: Duration = Duration::from_secs(10);
/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The running switch. Ended when dropped.
pub struct Switch {
    child: Child,
    client: RefCell<Client>,
}

impl Switch {
    /// Starts it and waits until it answers.
    pub fn start(shell: &Shell) -> Result<Switch, DemoError> {
        let ports: String = (1..)
            .zip(PORTS)
            .map(|(n, port)| format!(" --port p{n},type=afxdp,ifname={port},ofport={n}"))
            .collect();
        let command = format!("crosspoint switch --bridge br0,fail-mode=secure{ports}");
        shell.show(&format!("{command} &"));
        let log = File::create(log_path()).map_err(|e| DemoError::new(format!("{}: {e}", log_path())))?;
        let mut child = shell.spawn_logging(&command, log)?;
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
        let switch = Switch { child, client: RefCell::new(client) };
        shell.show("crosspoint appctl dpctl/show");
        for line in switch.ask("dpctl/show", &[])?.lines() {
            shell.say(line);
        }
        Ok(switch)
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

    /// Its counters now.
    pub fn sample(&self) -> Result<Sample, DemoError> {
        let lookups = sample::lookups(&self.ask("dpif-netdev/pmd-stats-show", &[])?);
        let ports = sample::ports(&self.ask("dpctl/show", &["-s"])?);
        Ok(Sample { at: Instant::now(), cpu_ns: sample::cpu_ns(self.child.pid()), lookups, ports })
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
