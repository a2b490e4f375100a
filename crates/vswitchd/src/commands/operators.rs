//! Manual operations on the datapath: `dpctl/del-if`, `dpctl/cache-*` and others.

use crate::plane::ForwardingPlane;
use crate::state::Vswitch;
use base::OfPort;

type Answer = Result<String, String>;

/// Removes ports from the datapath. As far as the configuration wants them they come back when it is next
/// carried out.
pub fn del_if(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let ports = match args {
        [first, rest @ ..] if vswitch.plane.is_named(first) => rest,
        [first, ..] if super::by_hand::named(vswitch, first).is_some() => {
            return super::by_hand::del_if(vswitch, args);
        }
        [first, ..] if first.contains('@') => {
            return Err("ovs-vswitchd: opening datapath (No such device)\n".into());
        }
        all => all,
    };
    let (mut numbers, mut errors) = (Vec::new(), String::new());
    for name in ports {
        match vswitch.devices.port_named(name) {
            None => errors += &format!("ovs-vswitchd: no port named {name}\n"),
            // A bridge keeps its own port as long as it exists.
            Some(port) if port.of_port == OfPort::LOCAL => {
                let datapath = vswitch.plane.name();
                errors += &format!(
                    "ovs-vswitchd: deleting port {name} from {datapath} failed (Invalid argument)\n"
                );
            }
            Some(port) => numbers.push(port.port_no),
        }
    }
    vswitch.remove_ports(&numbers);
    if errors.is_empty() { Ok(String::new()) } else { Err(errors) }
}

/// `[on|off] [-b BEFORE] [-a AFTER] [-e|-ne] [-us USEC] [-q QLEN]`. Workers keep no record of single
/// iterations, so there is nothing to supervise, and the answer says so.
pub fn pmd_perf_log_set(_: &mut Vswitch, args: &[String]) -> Answer {
    const USAGE: &str = "Usage: ovs-appctl dpif-netdev/pmd-perf-log-set [on|off] [-b before] [-a after] \
                         [-e|-ne] [-us usec] [-q qlen]\n";
    let mut words = args.iter().map(String::as_str);
    let mut asks_for_more = false;
    while let Some(word) = words.next() {
        match word {
            "off" => {}
            "on" | "-e" | "-ne" => asks_for_more |= word == "on",
            "-b" | "-a" | "-us" | "-q"
                if words.next().is_some_and(|number| number.parse::<u32>().is_ok()) => {}
            _ => return Err(USAGE.into()),
        }
    }
    match asks_for_more {
        false => Ok(String::new()),
        true => Err("iterations are not supervised: workers keep no record of single ones. \
             dpif-netdev/pmd-perf-show sums them up, and the log names a worker that stands still for a second\n"
            .into()),
    }
}

/// The error for an unknown datapath, in the words of the commands on caches and offloads.
fn no_such_datapath(name: &str) -> Answer {
    Err(format!("ovs-vswitchd: Opening datapath {name} failed (No such device)\n"))
}

/// Only the kernel's datapath has caches that can be resized; others have none to show.
pub fn cache_get_size(plane: &ForwardingPlane, args: &[String]) -> Answer {
    match args.first() {
        Some(other) if !plane.is_named(other) => no_such_datapath(other),
        _ => Ok(format!("{}:\n", plane.name())),
    }
}

pub fn cache_set_size(plane: &ForwardingPlane, args: &[String]) -> Answer {
    if args[2].parse::<u32>().is_err() {
        return Err("ovs-vswitchd: size is malformed (Invalid argument)\n".into());
    }
    if !plane.is_named(&args[0]) {
        return no_such_datapath(&args[0]);
    }
    Err("ovs-vswitchd: Setting caches not supported (Operation not supported)\n".into())
}

/// No flows are offloaded to devices, as in Open vSwitch without `hw-offload`.
pub fn offload_stats_show(plane: &ForwardingPlane, args: &[String]) -> Answer {
    Err(match args.first() {
        Some(other) if !plane.is_named(other) => "ovs-vswitchd: datapath not found (Invalid argument)\n",
        _ => "ovs-vswitchd: retrieving offload statistics (Invalid argument)\n",
    }
    .into())
}

/// Bonds whose members the datapath itself selects: none.
pub fn bond_show(plane: &ForwardingPlane, args: &[String]) -> Answer {
    match args.first() {
        Some(other) if !plane.is_named(other) => Err("please specify an existing datapath".into()),
        _ => Ok(String::new()),
    }
}
