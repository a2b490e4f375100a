//! Printing for every subcommand: `print!`, `println!`, `eprint!` and `eprintln!` that cannot panic.
//!
//! The macros of the standard library panic when the reader of a pipe is gone or the disk is full. These end
//! the program instead: with success if there is no reader any more, and with exit code 1 and a sentence on
//! standard error if the text cannot be written or standard output is closed. Text that standard error does
//! not accept is lost, since it cannot be reported anywhere.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Writes to standard output, or ends the program. Nothing is written to a closed one without an error.
pub fn out(text: Arguments) {
    let _ = stdout().write_fmt(text);
}

/// Writes to standard output now. For what must be done before the program ends by [`unwritten`].
pub fn try_out(text: &str) -> std::io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = std::io::stdout();
    checked().and_then(|()| stdout.write_all(text.as_bytes())).and_then(|()| stdout.flush())
}

/// Writes to standard output now, or ends the program if it cannot be written to. A reader that has gone ends
/// nothing: for a program that has more to do than to print, or whose exit code says more than that it
/// printed.
pub fn out_and_go_on(text: Arguments) {
    if let Err(error) = try_out(&text.to_string())
        && error.kind() != ErrorKind::BrokenPipe
    {
        unwritten(&error);
    }
}

/// The runtime replaces a closed standard output by `/dev/null`.
fn checked() -> std::io::Result<()> {
    if base::started::has_stdout() { Ok(()) } else { Err(rustix::io::Errno::BADF.into()) }
}

/// Writes to standard error as much as it accepts.
pub fn err(text: Arguments) {
    let _ = std::io::stderr().write_fmt(text);
}

/// Standard output for what writes many lines: it never fails, since it ends the program instead.
pub struct Stdout(std::io::StdoutLock<'static>);

/// Standard output, locked.
pub fn stdout() -> Stdout {
    Stdout(std::io::stdout().lock())
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(checked().and_then(|()| self.0.write(bytes)).unwrap_or_else(|error| unwritten(&error)))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush().unwrap_or_else(|error| unwritten(&error));
        Ok(())
    }
}

/// Writes out what is buffered, or ends the program.
pub fn flush() {
    if let Err(error) = std::io::stdout().flush() {
        unwritten(&error);
    }
}

/// Ends the program because standard output accepts no more. A missing reader is no failure.
pub fn unwritten(error: &std::io::Error) -> ! {
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    err(format_args!("{}: stdout: {}\n", crate::program::name(), crate::log::os_text(error)));
    std::process::exit(1)
}

/// Prints to standard output, or ends the program.
#[macro_export]
macro_rules! print {
    ($($arg:tt)*) => { $crate::output::out(format_args!($($arg)*)) };
}

/// Prints a line to standard output, or ends the program.
#[macro_export]
macro_rules! println {
    () => { $crate::output::out(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::output::out(format_args!("{}\n", format_args!($($arg)*))) };
}

/// Prints to standard error as much as it accepts.
#[macro_export]
macro_rules! eprint {
    ($($arg:tt)*) => { $crate::output::err(format_args!($($arg)*)) };
}

/// Prints a line to standard error as much as it accepts.
#[macro_export]
macro_rules! eprintln {
    () => { $crate::output::err(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::output::err(format_args!("{}\n", format_args!($($arg)*))) };
}
