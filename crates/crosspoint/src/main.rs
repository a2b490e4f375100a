//! crosspoint
fn main() {}
