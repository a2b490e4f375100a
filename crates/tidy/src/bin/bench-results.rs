//! Writes bench/RESULTS.md from the committed runs.

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?).join("../..");
    std::fs::write(root.join("bench/RESULTS.md"), tidy::results::markdown(&root)?)
}
