//! `dpif/show-dp-features`, `dpif/set-dp-features`: what the datapath can do.
//!
//! In Open vSwitch translation avoids what a datapath cannot do, and tests make a datapath seem to lack
//! something. Here translation and the datapath are built together: what there is, is used, and cannot be
//! turned off.

use crate::state::Vswitch;
use std::fmt::Write;
use switch::features::{FEATURES, Feature, Value::Is, Value::UpTo};

pub fn show(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    vswitch.bridge_named(&args[0]).ok_or("no such bridge")?;
    let mut text = String::new();
    for Feature { title, value, .. } in FEATURES {
        let _ = writeln!(text, "{title}: {}", value.text("Yes", "No"));
    }
    Ok(text)
}

/// Shows one feature or all. To set one to what it is succeeds; anything else is refused.
pub fn set(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    vswitch.bridge_named(&args[0]).ok_or("no such bridge")?;
    let line = |Feature { name, title, value, .. }: &Feature| {
        let value = value.text("true", "false");
        format!("{name} (current) :{value}, (datapath) :{value}, {title}\n")
    };
    let Some(name) = args.get(1) else { return Ok(FEATURES.iter().map(line).collect()) };
    let found = FEATURES.iter().find(|known| known.name == name).ok_or("Unexpected support field")?;
    let Some(asked) = args.get(2) else { return Ok(line(found)) };
    let value = match found.value {
        Is(_) => Is(asked.to_lowercase().parse().map_err(|_| "Boolean value expected")?),
        UpTo(_) => UpTo(asked.parse().map_err(|_| "Integer number expected")?),
    };
    if value == found.value {
        return Ok(String::new());
    }
    Err(format!("{name} is {} here, and cannot be changed", found.value.text("true", "false")))
}
