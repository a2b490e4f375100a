//! What an operator does to the datapath by hand: `dpctl/del-if`.

use super::datapath::is_named;
use crate::state::Vswitch;
use base::OfPort;

/// Removes ports from the datapath. As far as the configuration wants them they come back when it is next
/// carried out.
pub fn del_if(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let ports = match args {
        [first, rest @ ..] if is_named(vswitch, first) => rest,
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
        match vswitch.port_named(name) {
            None => errors += &format!("ovs-vswitchd: no port named {name}\n"),
            // A bridge has its own port as long as it is there.
            Some(port) if port.of_port == OfPort::LOCAL => {
                let datapath = super::datapath::name(vswitch);
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
