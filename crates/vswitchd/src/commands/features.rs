//! `dpif/show-dp-features`, `dpif/set-dp-features`: what the datapath can do.
//!
//! Translation can avoid some features, more slowly, which helps to find a fault. Forwarding stays the same,
//! with one exception that Open vSwitch makes, too: if it may neither clone nor nest samples, copies that
//! need one of these are not made. All other features are used whenever they exist.

use crate::state::Vswitch;
use std::fmt::Write;
use switch::features::{FEATURES, Feature, Value::Is, Value::UpTo};

pub fn show(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    vswitch.bridge_named(&args[0]).ok_or("no such bridge")?;
    let mut text = String::new();
    for feature in FEATURES {
        let value = vswitch.plane.switch.in_use.measure(feature);
        let _ = writeln!(text, "{}: {}", feature.title, value.text("Yes", "No"));
    }
    Ok(text)
}

/// Shows one feature or all, or has translation use another measure of one, up to what there is.
pub fn set(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    vswitch.bridge_named(&args[0]).ok_or("no such bridge")?;
    let switch = &vswitch.plane.switch;
    let line = |feature: &Feature| {
        let Feature { name, title, value, .. } = feature;
        let (now, there) =
            (switch.in_use.measure(feature).text("true", "false"), value.text("true", "false"));
        format!("{name} ({title}) : [run time]:{now}, [boot time]:{there}\n")
    };
    let Some(name) = args.get(1) else { return Ok(FEATURES.iter().map(line).collect()) };
    // As in Open vSwitch, these answers are not errors.
    let Some(found) = FEATURES.iter().find(|known| known.name == name) else {
        return Ok("Unexpected support field\n".into());
    };
    let Some(asked) = args.get(2) else { return Ok(line(found)) };
    let value = match found.value {
        Is(_) => asked.to_lowercase().parse().map(Is).map_err(|_| "Boolean value expected\n"),
        UpTo(_) => asked.parse().map(UpTo).map_err(|_| "Integer number expected\n"),
    };
    let value = match value {
        Ok(value) if value.exceeds(found.value) => {
            return Ok("Can not set value beyond the datapath capability\n".into());
        }
        Ok(value) => value,
        Err(expected) => return Ok(expected.into()),
    };
    if value == switch.in_use.measure(found) {
        return Ok(String::new());
    }
    if !switch.in_use.set(found, value) {
        return Err(format!("{name} is {} here, and cannot be changed", found.value.text("true", "false")));
    }
    // They were translated with the previous features.
    vswitch.plane.dp.flush_flows();
    Ok(String::new())
}
