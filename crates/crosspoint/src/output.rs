//! The macros that print, in the place of the standard library's, which panic where an output is closed or full.
//! See `vswitchd::output`.

/// As the standard one, of an output that may be closed or full.
macro_rules! eprintln {
    ($($arg:tt)*) => {
        ::vswitchd::output::to_stderr(::std::format_args!("{}\n", ::std::format_args!($($arg)*)))
    };
}

/// As the standard one, of an output that may be closed or full.
macro_rules! eprint {
    ($($arg:tt)*) => {
        ::vswitchd::output::to_stderr(::std::format_args!($($arg)*))
    };
}

/// As the standard one, of an output that may be closed or full.
macro_rules! println {
    () => {
        ::vswitchd::output::to_stdout(::std::format_args!("\n"))
    };
    ($($arg:tt)*) => {
        ::vswitchd::output::to_stdout(::std::format_args!("{}\n", ::std::format_args!($($arg)*)))
    };
}

/// As the standard one, of an output that may be closed or full.
macro_rules! print {
    ($($arg:tt)*) => {
        ::vswitchd::output::to_stdout(::std::format_args!($($arg)*))
    };
}
