//! `exit`, and what tests do to a switch: frames in and out of dummy ports, a control thread that hangs.

use crate::odp;
use crate::state::{PortRecord, Vswitch};
use std::fmt::Write;
use std::time::Duration;

/// Longest that `crosspoint/block` holds the control thread.
const BLOCK_MS_MAX: u64 = 60_000;

pub fn exit(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    match args {
        [] => {}
        [cleanup] if cleanup == "--cleanup" => vswitch.cleanup = true,
        _ => return Err("\"exit\" takes no argument but --cleanup".into()),
    }
    vswitch.exiting = true;
    Ok(String::new())
}

fn dummy<'a>(
    vswitch: &'a Vswitch,
    name: &str,
) -> Result<(&'a PortRecord, &'a dyn packet::DummyControl), String> {
    let none = || "no such dummy netdev".to_string();
    let record = vswitch.port_named(name).ok_or_else(none)?;
    let control = vswitch.dp.port(record.port_no).and_then(|p| p.as_dummy()).ok_or_else(none)?;
    Ok((record, control))
}

/// `netdev-dummy/receive NAME [--qid N] PACKET... [--len N]`.
pub fn receive(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let (_, control) = dummy(vswitch, &args[0])?;
    let mut rest = args[1..].iter();
    let mut frames: Vec<Vec<u8>> = Vec::new();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--qid" => {
                let qid = rest.next().and_then(|q| q.parse::<u32>().ok());
                // All frames enter at the first queue.
                if qid != Some(0) {
                    return Err("bad rx queue id.".into());
                }
            }
            "--len" => {
                let len = rest.next().and_then(|l| l.parse::<usize>().ok()).filter(|l| *l <= 65_535);
                let len = len.ok_or("no such packet length")?;
                let frame = frames.last_mut().ok_or("--len follows the packet that it is about")?;
                if len > frame.len() {
                    frame.resize(len, 0);
                }
            }
            text => frames.push(odp::frame(text).map_err(|e| e.to_string())?),
        }
    }
    if frames.is_empty() {
        return Err("no packet was given".into());
    }
    for frame in &frames {
        if !control.inject(frame) {
            return Err("the port's queue is full".into());
        }
    }
    Ok(String::new())
}

/// Frames that were sent at a dummy port since the last call, one line of hexadecimal each.
pub fn sent(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let (_, control) = dummy(vswitch, &args[0])?;
    let mut text = String::new();
    for frame in control.take_sent() {
        for byte in frame {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
    }
    Ok(text)
}

/// `netdev-dummy/set-admin-state [NAME] up|down`.
pub fn set_admin_state(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let (state, name) = (&args[args.len() - 1], (args.len() == 2).then(|| &args[0]));
    let up = match state.as_str() {
        "up" => true,
        "down" => false,
        _ => return Err("Invalid Admin State".into()),
    };
    let ports: Vec<_> = match name {
        Some(name) => {
            vec![dummy(vswitch, name).map_err(|_| "Unknown Dummy Interface")?.0.port_no]
        }
        None => vswitch.ports.values().filter(|p| p.kind == "dummy").map(|p| p.port_no).collect(),
    };
    for port_no in ports {
        if let Some(port) = vswitch.dp.port_mut(port_no) {
            port.set_admin_up(up)?;
        }
        vswitch.watch_port(port_no);
    }
    Ok("OK".into())
}

/// Holds the control thread, as a bug in it would: workers must not notice.
pub fn block(_: &mut Vswitch, args: &[String]) -> Result<String, String> {
    match args[0].parse::<u64>() {
        Ok(ms) if ms <= BLOCK_MS_MAX => {
            std::thread::sleep(Duration::from_millis(ms));
            Ok(String::new())
        }
        _ => Err(format!("expected milliseconds, at most {BLOCK_MS_MAX}")),
    }
}
