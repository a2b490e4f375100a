//! Ends a child together with its parent, however the parent ends: after `kill -9` of the demo no process is
//! left.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Options of `guard`.
#[derive(clap::Args)]
pub struct Args {
    /// The parent, which may have ended before this started.
    #[arg(long)]
    parent: i32,
    /// The command, and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Becomes the command. Returns only if that failed, with the reason.
pub fn run(args: &Args) -> String {
    // The kernel keeps the request over an exec, and so over the one that `ip netns exec` does.
    if let Err(e) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return format!("cannot ask for a signal at the parent's end: {e}");
    }
    if getppid() != Pid::from_raw(args.parent) {
        return "the demo has ended".into();
    }
    let error = Command::new(&args.command[0]).args(&args.command[1..]).exec();
    format!("{}: {error}", args.command[0])
}
