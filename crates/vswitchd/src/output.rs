//! What a program prints. A standard output or error that cannot be written is no reason to panic, as the macros of the standard
//! library have it: these take their place in the whole crate.

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

/// Writes to stdout. A reader that has gone is no error; a full device ends the program, with a message.
pub fn to_stdout(text: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.to_string().as_bytes()).and_then(|()| stdout.flush());
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let why = crate::log::os_text(&error);
        to_stderr(format_args!("{}: stdout: {why}\n", crate::program::name()));
        std::process::exit(1);
    }
}
