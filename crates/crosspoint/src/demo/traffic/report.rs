//! The results of a role, for the demo to read.

use serde::Serialize;

/// Prints a result as a line.
pub fn report(result: &impl Serialize) -> Result<(), String> {
    let line = serde_json::to_string(result).map_err(|e| e.to_string())?;
    println!("{line}");
    Ok(())
}
