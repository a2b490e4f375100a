//! `dpctl/ipf-*`: fragments that wait for the rest of their datagram, so that it can be tracked as a whole.

use super::conntrack::{after_name, own_arguments, refused};
use crate::plane::ForwardingPlane;
use datapath::conntrack::fragments::{Fragments, MAX_NFRAGS_MAX, MIN_FRAG_MIN};
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

type Answer = Result<String, String>;

fn not_permitted(why: &str) -> String {
    format!("ovs-vswitchd: {why} (Operation not permitted)")
}

/// 0 for IPv4, 1 for IPv6.
fn version(word: Option<&String>) -> Option<usize> {
    ["v4", "v6"].iter().position(|name| word.is_some_and(|word| word == name))
}

pub fn set(plane: &ForwardingPlane, args: &[String], is_enabled: bool) -> Answer {
    let version = version(after_name(plane, args).last());
    let version = version.ok_or_else(|| refused("parameter missing: 'v4' for IPv4 or 'v6' for IPv6"))?;
    plane.dp.tracker().fragments().settings.is_enabled[version].store(is_enabled, Relaxed);
    let verb = if is_enabled { "enabling" } else { "disabling" };
    Ok(format!("{verb} fragmentation reassembly successful"))
}

pub fn set_min_frag(plane: &ForwardingPlane, args: &[String]) -> Answer {
    let args = own_arguments(plane, args, 2)?;
    let version = version(args.first());
    let version = version.ok_or_else(|| refused("parameter missing: v4 for IPv4 or v6 for IPv6"))?;
    let bytes: Option<u32> = args.get(1).and_then(|word| word.parse().ok());
    let bytes = bytes.ok_or_else(|| refused("parameter missing for minimum fragment size"))?;
    if bytes < MIN_FRAG_MIN {
        return Err(not_permitted("requested minimum fragment size too small; see documentation"));
    }
    plane.dp.tracker().fragments().settings.min_frag[version].store(bytes, Relaxed);
    Ok("setting minimum fragment size successful".into())
}

pub fn set_max_nfrags(plane: &ForwardingPlane, args: &[String]) -> Answer {
    let number: Option<u32> = own_arguments(plane, args, 1)?.last().and_then(|word| word.parse().ok());
    let number = number.ok_or_else(|| refused("parameter missing for maximum fragments"))?;
    if number > MAX_NFRAGS_MAX {
        return Err(not_permitted("setting maximum fragments failed"));
    }
    plane.dp.tracker().fragments().settings.max_nfrags.store(number, Relaxed);
    Ok("setting maximum fragments successful".into())
}

pub fn get_status(plane: &ForwardingPlane, args: &[String]) -> Answer {
    let is_option = |arg: &&String| matches!(arg.as_str(), "-m" | "--more");
    let options = args.iter().filter(is_option).count();
    let words: Vec<String> = args.iter().filter(|arg| !is_option(arg)).cloned().collect();
    if !after_name(plane, &words).is_empty() {
        return Err(refused("datapath not found"));
    }
    let fragments = plane.dp.tracker().fragments();
    let mut text = status(fragments);
    if options > 0 {
        text += "\n        Fragment Lists:\n\n";
        fragments.waiting().iter().for_each(|line| text += &format!("{line}\n"));
    }
    Ok(text)
}

fn status(fragments: &Fragments) -> String {
    let settings = &fragments.settings;
    let is_enabled = |n: usize| u8::from(settings.is_enabled[n].load(Relaxed));
    let mut text = format!(
        "        Fragmentation Module Status\n        ---------------------------\n        \
         v4 enabled: {}\n        v6 enabled: {}\n        max num frags (v4/v6): {}\n        num frag: {}\n",
        is_enabled(0),
        is_enabled(1),
        settings.max_nfrags.load(Relaxed),
        fragments.held(),
    );
    for (n, name) in ["v4", "v6"].into_iter().enumerate() {
        let (f, min) = (&fragments.figures[n], settings.min_frag[n].load(Relaxed));
        let _ = writeln!(text, "        min {name} frag size: {min}");
        for (what, count) in [
            ("accepted", &f.accepted),
            ("completed", &f.completed),
            ("expired", &f.expired),
            ("too small", &f.too_small),
            ("overlapped", &f.overlapped),
            ("purged", &f.purged),
        ] {
            let _ = writeln!(text, "        {name} frags {what}: {}", count.load(Relaxed));
        }
    }
    text
}
