//! `dpif-netdev/dpif-impl-*`, `miniflow-parser-*`, `subtable-lookup-*` and `odp-execute/action-impl-*`: which
//! implementation handles each part of packet processing.
//!
//! Open vSwitch has several implementations of each for different processors, and one that compares them.
//! Here there is one of each: it is shown in Open vSwitch's words, and may be selected.

use crate::state::Vswitch;

type Answer = Result<String, String>;

/// Workers by their cores.
fn cores(vswitch: &Vswitch) -> String {
    let cores: Vec<String> = vswitch.workers.places().iter().map(|place| place.core.to_string()).collect();
    if cores.is_empty() { "none".into() } else { cores.join(",") }
}

pub fn dpif_get(vswitch: &mut Vswitch, _: &[String]) -> Answer {
    Ok(format!("Available DPIF implementations:\n  dpif_scalar (pmds: {})\n", cores(vswitch)))
}

pub fn dpif_set(_: &mut Vswitch, args: &[String]) -> Answer {
    match args[0].as_str() {
        "dpif_scalar" => Ok("DPIF implementation set to dpif_scalar.\n".into()),
        other => Err(format!("DPIF implementation {other} not found: there is dpif_scalar alone.\n")),
    }
}

/// Which implementation parses packet headers.
pub fn parser_get(vswitch: &mut Vswitch, _: &[String]) -> Answer {
    Ok(format!("Available MFEX implementations:\n  scalar (available: True pmds: {})\n", cores(vswitch)))
}

/// `[-pmd CORE] NAME [COUNT]`.
pub fn parser_set(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    const UNCHANGED: &str = "Error: miniflow extract parser not changed, PMD thread";
    let (mut of_worker, mut rest) = (String::new(), args);
    if let [option, more @ ..] = args
        && option == "-pmd"
    {
        let [core, more @ ..] = more else {
            return Err("Error: -pmd option requires a thread id argument.\n".into());
        };
        let Ok(number) = core.parse::<usize>() else {
            return Err(format!("{UNCHANGED} passed is not valid: '{core}'. Pass a valid pmd thread ID.\n"));
        };
        if !vswitch.workers.places().iter().any(|place| place.core == number) {
            return Err(format!("{UNCHANGED} {number} not in use, pass a valid pmd thread ID.\n"));
        }
        (of_worker, rest) = (format!(", on pmd thread {number}"), more);
    }
    match rest {
        [] => Err("Error: no miniflow extract name provided. Output of miniflow-parser-get shows implementation list.\n".into()),
        [name] if name == "scalar" => {
            Ok(format!("Miniflow extract implementation set to scalar{of_worker}.\n"))
        }
        [name, argument, ..] if name == "scalar" => Err(format!("Error: unknown argument {argument}.\n")),
        [name, ..] => Err(format!("Error: unknown miniflow extract implementation {name}.\n")),
    }
}

/// Which implementation looks up megaflows, with the number of masks that it searches.
pub fn lookup_get(vswitch: &mut Vswitch, _: &[String]) -> Answer {
    let masks: u64 =
        (0..vswitch.plane.dp.workers()).map(|n| vswitch.plane.dp.worker_stats(n).masks.get()).sum();
    let priority = vswitch.commands.lookup_priority;
    Ok(format!("Available dpcls implementations:\n  generic (Use count: {masks}, Priority: {priority})\n"))
}

/// `NAME PRIORITY`. The only implementation takes the priority, which changes nothing.
pub fn lookup_set(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let priority = args[1].parse().map_err(|_| "error converting priority, use integer in range 0-255")?;
    if args[0] != "generic" {
        return Err("error, subtable lookup function not found: there is generic alone".into());
    }
    vswitch.commands.lookup_priority = priority;
    Ok("Lookup priority change affected 0 dpcls ports and 0 subtables.\n".into())
}

/// Which implementation executes actions.
pub fn actions_get(_: &mut Vswitch, _: &[String]) -> Answer {
    Ok("Available Actions implementations:\n  scalar (available: Yes, active: Yes)\n".into())
}

pub fn actions_set(_: &mut Vswitch, args: &[String]) -> Answer {
    match args[0].as_str() {
        "scalar" => Ok("Action implementation set to scalar.\n".into()),
        other => Err(format!("Error: unknown action implementation, {other}, specified!\n")),
    }
}
