//! What a program prints to stderr. That it cannot be written is no reason to panic, as the macro of the
//! standard library has it: this one takes its place in the whole crate.

/// As the standard one, of an error output that may be closed or full.
macro_rules! eprintln {
    ($($arg:tt)*) => {
        $crate::output::to_stderr(::std::format_args!("{}\n", ::std::format_args!($($arg)*)))
    };
}

/// Writes to stderr. A message that cannot be written there has no other place.
pub fn to_stderr(text: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = std::io::stderr().lock().write_all(text.to_string().as_bytes());
}
