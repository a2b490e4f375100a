//! The built-in generator: [`crate::lab::traffic`] in a process of its own.

use super::{Generator, Load};
use crate::daemon::in_namespace;
use crate::lab::net::Net;
use crate::lab::traffic::Sent;
use crate::process::run;

/// See the module's text.
pub struct Builtin;

impl Generator for Builtin {
    fn name(&self) -> &'static str {
        "builtin"
    }

    fn refuses(&self, _load: &Load) -> Option<String> {
        None
    }

    fn offer(&self, net: &Net, outputs: &[String], load: &Load) -> Result<Sent, String> {
        let program = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
        let mut command = in_namespace(Some(&net.outside), &program);
        command.args(["bench", "traffic", "--tx", "e0", "--rx", &outputs.join(",")]);
        command.args(["--size", &load.size.to_string(), "--flows", &load.flows.to_string()]);
        command.args(["--seconds", &load.seconds.to_string()]);
        if let Some(rate) = load.rate {
            command.args(["--rate", &rate.to_string()]);
        }
        if let Some(burst) = load.burst {
            command.args(["--count", &burst.to_string()]);
        }
        let said = run(&mut command)?;
        serde_json::from_str(&said).map_err(|e| format!("the generator said {said:?}: {e}"))
    }
}
