//! The commands that every daemon has: `version` and `vlog/*`.

use super::Command;
use host::log::{self, Change};
use host::program;

type Answer = Result<String, String>;

/// Their rows, for a daemon whose commands work on a `C`.
pub const fn commands<C: ?Sized>() -> [Command<C>; 8] {
    const MANY: usize = usize::MAX;
    [
        Command { name: "version", usage: "", args_min: 0, args_max: 0, run: version::<C> },
        Command { name: "vlog/close", usage: "", args_min: 0, args_max: 0, run: close::<C> },
        Command {
            name: "vlog/disable-rate-limit",
            usage: "[module]...",
            args_min: 0,
            args_max: MANY,
            run: disable_rate_limit::<C>,
        },
        Command {
            name: "vlog/enable-rate-limit",
            usage: "[module]...",
            args_min: 0,
            args_max: MANY,
            run: enable_rate_limit::<C>,
        },
        Command { name: "vlog/list", usage: "", args_min: 0, args_max: 0, run: list::<C> },
        Command { name: "vlog/list-pattern", usage: "", args_min: 0, args_max: 0, run: list_pattern::<C> },
        Command { name: "vlog/reopen", usage: "", args_min: 0, args_max: 0, run: reopen::<C> },
        Command {
            name: "vlog/set",
            usage: "{spec | PATTERN:destination:pattern}",
            args_min: 0,
            args_max: MANY,
            run: set::<C>,
        },
    ]
}

fn version<C: ?Sized>(_: &mut C, _: &[String]) -> Answer {
    Ok(program::version_text(program::daemon_name(), &[]))
}

fn set<C: ?Sized>(_: &mut C, args: &[String]) -> Answer {
    if args.is_empty() {
        log::apply(&Change::parse("any:any:dbg")?);
    }
    // As in Open vSwitch, those before a wrong one are in force.
    for arg in args {
        log::apply(&Change::parse(arg)?);
    }
    Ok(String::new())
}

fn list<C: ?Sized>(_: &mut C, _: &[String]) -> Answer {
    Ok(log::list())
}

fn list_pattern<C: ?Sized>(_: &mut C, _: &[String]) -> Answer {
    Ok(log::list_patterns())
}

fn limit(args: &[String], limited: bool) -> Answer {
    if args.is_empty() {
        log::limit_rate(None, limited)?;
    }
    for module in args {
        log::limit_rate(Some(module), limited)?;
    }
    Ok(String::new())
}

fn enable_rate_limit<C: ?Sized>(_: &mut C, args: &[String]) -> Answer {
    limit(args, true)
}

fn disable_rate_limit<C: ?Sized>(_: &mut C, args: &[String]) -> Answer {
    limit(args, false)
}

fn reopen<C: ?Sized>(_: &mut C, _: &[String]) -> Answer {
    log::reopen_file().map(|()| String::new())
}

fn close<C: ?Sized>(_: &mut C, _: &[String]) -> Answer {
    log::close_file();
    Ok(String::new())
}
