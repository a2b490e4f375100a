//! x
/// Arguments.
#[derive(clap::Args)]
pub struct Args {}
/// Runs it.
pub fn run(_args: &Args) -> Result<(), String> {
    Err("x".into())
}
