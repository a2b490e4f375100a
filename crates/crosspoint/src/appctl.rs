//! `crosspoint appctl`: `ovs-appctl`'s job, with its options, texts and exit codes.

use std::process::ExitCode;
use std::time::Duration;
use vswitchd::unixctl::Client;

/// Options of the subcommand.
#[derive(clap::Args)]
pub struct Args {
    /// Which daemon: its name, or the path of its control socket.
    #[arg(short, long, default_value = "ovs-vswitchd")]
    target: String,
    /// Give up after so many seconds.
    #[arg(short = 'T', long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// The command, and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Exit codes of `ovs-appctl`: 1 where the daemon could not be asked, 2 where it refused.
pub fn run(args: Args) -> ExitCode {
    let (command, rest) = args.command.split_first().expect("clap requires one");
    let timeout = args.timeout.map(Duration::from_secs);
    let reply = Client::connect(&args.target, timeout).and_then(|mut client| client.run(command, rest));
    match reply {
        Ok(Ok(text)) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Ok(Err(text)) => {
            eprint!("{text}");
            eprintln!("crosspoint appctl: {}: server returned an error", args.target);
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("crosspoint appctl: {error}");
            ExitCode::FAILURE
        }
    }
}
