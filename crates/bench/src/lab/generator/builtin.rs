//! The built-in generator: [`crate::lab::traffic`] in a process of its own.

use super::{Generator, Load, Offering, Place, Stage};
use crate::daemon::in_namespace;
use crate::lab::topology::Topology;
use crate::lab::traffic::{Request, Sent, frames};
use crate::process::{Process, wait_for};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};

/// See the module documentation.
pub struct Builtin {
    /// Its name on the command line.
    pub name: &'static str,
    /// The driver at kernel interfaces: `packet` or `xdp`.
    pub driver: &'static str,
    /// Frames that it sends before it looks for some that came.
    pub burst: u16,
}

impl Generator for Builtin {
    fn name(&self) -> &str {
        self.name
    }

    fn refuses_flows(&self, load: &Load, topology: &Topology) -> Option<String> {
        frames::check(&load.pattern, load.size, load.flows, topology.sources.len()).err()
    }

    fn refuses(&self, load: &Load, stage: &Stage) -> Option<String> {
        frames::check(&load.pattern, load.size, load.flows, stage.sources.len()).err()
    }

    fn start(&self, stage: &Stage) -> Result<Box<dyn Offering>, String> {
        let program = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
        let mut command = in_namespace(Some(&stage.net.outside), &program);
        let end = |place: &Place| match place {
            Place::Interface(name) => format!("{}:{name}", self.driver),
            Place::Tap(name) => format!("tap:{name}"),
            Place::Socket(path) => format!("vhost:{}", path.display()),
            Place::Backend(path) => format!("backend:{}", path.display()),
        };
        let ends: Vec<String> = stage.places.iter().map(end).collect();
        let tx = stage.sources.iter().map(|(n, is_back)| format!("{}{n}", if *is_back { "-" } else { "" }));
        let rx: Vec<String> = stage.outputs.iter().map(usize::to_string).collect();
        command.args(["bench", "traffic", "--ends", &ends.join(",")]);
        command.arg(format!("--tx={}", tx.collect::<Vec<_>>().join(",")));
        command.args(["--rx", &rx.join(","), "--copies", &stage.copies.to_string()]);
        command.args(["--descriptors", &stage.descriptors.to_string()]);
        command.args(["--burst", &self.burst.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::spawn(&mut command)?;
        let (Some(stdin), Some(stdout)) = (process.0.stdin.take(), process.0.stdout.take()) else {
            return Err("the generator has no pipes".into());
        };
        let mut client = Client { process, stdin, stdout: BufReader::new(stdout), is_ready: false };
        let sockets =
            stage.places.iter().filter_map(|p| if let Place::Socket(s) = p { Some(s) } else { None });
        let mut waits = false;
        for socket in sockets {
            waits = true;
            wait_for(socket).map_err(|e| client.explained(e))?;
        }
        // A guest is ready once the switch has connected, which comes later.
        if !waits {
            client.ready()?;
        }
        Ok(Box::new(client))
    }
}

struct Client {
    process: Process,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    is_ready: bool,
}

impl Client {
    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line) {
            Ok(n) if n > 0 => Ok(line),
            Ok(_) => Err(self.explained("the generator has ended".into())),
            Err(e) => Err(format!("the generator: {e}")),
        }
    }

    fn ready(&mut self) -> Result<(), String> {
        if !self.is_ready {
            let line = self.line()?;
            if line.trim() != "ready" {
                return Err(format!("the generator said {line:?}"));
            }
            self.is_ready = true;
        }
        Ok(())
    }

    /// An error with the last output of the process.
    fn explained(&mut self, error: String) -> String {
        let _ = self.process.0.kill();
        let mut said = String::new();
        if let Some(mut pipe) = self.process.0.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut pipe, &mut said);
        }
        format!("{error}: {}", said.trim())
    }

    fn ask(&mut self, request: &Request) -> Result<(), String> {
        let mut line = serde_json::to_string(request).map_err(|e| e.to_string())?;
        line.push('\n');
        self.stdin.write_all(line.as_bytes()).map_err(|e| self.explained(format!("the generator: {e}")))
    }
}

impl Offering for Client {
    fn pid(&self) -> Option<u32> {
        Some(self.process.id())
    }

    fn begin(&mut self, load: &Load, pids: &[u32]) -> Result<(), String> {
        self.ready()?;
        self.ask(&Request::Offer(load.clone(), pids.to_vec()))
    }

    fn finish(&mut self) -> Result<Sent, String> {
        let line = self.line()?;
        serde_json::from_str::<Result<Sent, String>>(&line)
            .map_err(|e| format!("the generator said {line:?}: {e}"))?
    }

    fn again(&mut self) -> Result<Option<Sent>, String> {
        self.ask(&Request::Again)?;
        self.finish().map(Some)
    }
}
