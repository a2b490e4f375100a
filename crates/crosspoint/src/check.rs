//! `crosspoint check`: the parts of a database's configuration that the switch would not apply.

use host::usage::fail;
use std::path::PathBuf;
use std::process::ExitCode;
use vswitchd::config::Database;

/// Options of the subcommand.
#[derive(clap::Args)]
pub struct Args {
    /// Database file [default: conf.db in $OVS_DBDIR or /etc/openvswitch].
    file: Option<PathBuf>,
}

/// Prints a line for each remark. The exit code is 1 if there are any, 2 if the file cannot be read.
pub fn run(args: Args) -> ExitCode {
    let file = args.file.unwrap_or_else(|| match Database::embedded() {
        Database::Embedded(file) => file,
        _ => unreachable!("the embedded server has a file"),
    });
    match vswitchd::check(&file) {
        Ok(remarks) if remarks.is_empty() => ExitCode::SUCCESS,
        Ok(remarks) => {
            remarks.iter().for_each(|remark| println!("{remark}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            fail(&error);
            ExitCode::from(2)
        }
    }
}
