//! Writes bench/RESULTS.md from the committed runs.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::write(root.join("bench/RESULTS.md"), tidy::results::markdown(&root)?)
}
