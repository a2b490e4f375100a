//! `exit`, and test commands: frames into and out of dummy ports, a control thread that hangs.

use super::by_hand;
use super::flow_log;
use super::waits::{counters, wait_for};
use crate::janitor::Fate;
use crate::odp;
use crate::state::Shared;
use crate::state::{PortRecord, Vswitch};
use base::PortNo;
use flow::{FieldId, Key};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

/// How long `netdev-dummy/receive` waits for a frame to have passed.
const PASS_WAIT: Duration = Duration::from_millis(1_000);
/// How long `dpif-dummy/change-port-number` waits for the port to be there again.
const RETURN_WAIT: Duration = Duration::from_secs(5);
/// Longest that `crosspoint/block` holds the control thread.
const BLOCK_MS_MAX: u64 = 60_000;

pub fn exit(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let fate = match args {
        [] => Fate::Left,
        [cleanup] if cleanup == "--cleanup" => Fate::Removed,
        _ => return Err("\"exit\" takes no argument but --cleanup".into()),
    };
    vswitch.commands.ending = Some(fate);
    Ok(String::new())
}

fn dummy<'a>(
    vswitch: &'a Vswitch,
    name: &str,
) -> Result<(&'a PortRecord, &'a dyn packet::DummyControl), String> {
    let none = || "no such dummy netdev".to_string();
    let record = vswitch.devices.port_named(name).ok_or_else(none)?;
    let control = vswitch.plane.dp.port(record.port_no).and_then(|p| p.as_dummy()).ok_or_else(none)?;
    Ok((record, control))
}

/// `dpif-dummy/change-port-number DP PORT NUMBER`: what a datapath may do that is not the switch's own.
pub fn change_port_number(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    if !vswitch.plane.is_named(&args[0]) {
        return Err("unknown datapath or not a dummy".into());
    }
    let port = vswitch.devices.port_named(&args[1]).filter(|port| !port.is_patch()).ok_or("unknown port")?;
    let (port_no, name) = (port.port_no, port.name.clone());
    let number = args[2].parse().ok().filter(|number| (1..=0xffff).contains(number)).map(PortNo);
    let number = number.ok_or("bad port number")?;
    if vswitch.devices.ports.contains_key(&number) {
        return Err("port number already in use".into());
    }
    vswitch.remove_to_return(port_no, number);
    vswitch.devices.may_come.notify_one();
    vswitch.begin(move |shared| async move {
        let came = || {
            let devices = &shared.borrow().devices;
            let error = devices.failures.error(&name).map(|error| Err(error.to_string()));
            devices.port_named(&name).map(|_| Ok(String::new())).or(error)
        };
        wait_for(RETURN_WAIT, came).await.unwrap_or_else(|| Err("the port has not come back yet".into()))
    });
    Ok(String::new())
}

/// `netdev-dummy/receive NAME [--qid N] PACKET... [--len N]`.
pub fn receive(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let own = dummy(vswitch, &args[0]).map(|(record, _)| record.port_no);
    if let Err(none) = &own
        && !by_hand::has_port(vswitch, &args[0])
    {
        return Err(none.clone());
    }
    let mut rest = args[1..].iter().peekable();
    let queues = own.as_ref().map_or(1, |port_no| vswitch.plane.dp.rx_workers(*port_no).len());
    let mut queue = 0;
    let mut frames: Vec<Vec<u8>> = Vec::new();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--qid" => {
                let number = rest.next().and_then(|q| q.parse::<usize>().ok());
                queue = number.filter(|q| *q < queues).ok_or("bad rx queue id.")?;
            }
            "--len" => return Err("--len follows the packet that it is about".into()),
            text => {
                let frame = if rest.next_if(|arg| *arg == "--len").is_some() {
                    let len = rest.next().and_then(|l| l.parse::<usize>().ok()).filter(|l| *l <= 65_535);
                    odp::frame_of_len(text, len.ok_or("no such packet length")?)
                } else {
                    odp::frame(text)
                };
                frames.push(frame.map_err(|e| e.to_string())?);
            }
        }
    }
    if frames.is_empty() {
        return Err("no packet was given".into());
    }
    let port_no = match own {
        Ok(port_no) => port_no,
        Err(none) => return by_hand::receive(vswitch, &args[0], &frames).map(|()| String::new()).ok_or(none),
    };
    vswitch.begin(async move |shared| {
        Frames { port_no, queue, frames }.run(&shared).await?;
        Ok(String::new())
    });
    Ok(String::new())
}

/// Frames that a dummy receives.
pub(crate) struct Frames {
    port_no: PortNo,
    queue: usize,
    frames: Vec<Vec<u8>>,
}

impl Frames {
    /// One after the other. Each packet has passed before the next one comes, so the results can be seen in
    /// between.
    pub async fn run(self, shared: &Shared) -> Result<(), String> {
        let port_no = self.port_no;
        for frame in &self.frames {
            flow_log::log_new_flows(shared).await?;
            let misses = flow_log::misses(&shared.borrow());
            let waiting = || {
                let vswitch = shared.borrow();
                let control = vswitch.plane.dp.port(port_no).and_then(|p| p.as_dummy())?;
                Some(control.waiting())
            };
            let inject = |control: &dyn packet::DummyControl| control.inject_at(self.queue, frame);
            match shared.borrow().plane.dp.port(port_no).and_then(|p| p.as_dummy()).and_then(inject) {
                Some(true) => {}
                Some(false) => return Err("the port's queue is full".into()),
                None => return Err("the port was removed".into()),
            }
            let is_up = shared.borrow().devices.ports.get(&port_no).is_some_and(|p| p.status.admin_up);
            if is_up {
                wait_for(PASS_WAIT, || waiting().is_none_or(|n| n == 0).then_some(())).await;
            }
            counters(shared).await;
            while shared.borrow_mut().handle_events() {}
            shared.borrow_mut().deliver();
            shared.borrow().log_miss(port_no, frame, misses);
            flow_log::log_new_flows(shared).await?;
        }
        Ok(())
    }
}

impl Vswitch {
    /// Whether Open vSwitch's main thread would poll the flow's port: a dummy, but not `dummy-pmd`.
    pub(super) fn is_polled_by_main(&self, key: &Key) -> bool {
        let port = self.devices.ports.get(&PortNo(key.get64(FieldId::DpPort) as u32));
        self.plane.is_dummy && port.is_some_and(|p| p.interface.is_by_main())
    }
}

/// Frames that were sent at a dummy port since the last call, one line of hexadecimal each.
pub fn sent(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let made = by_hand::take_sent(vswitch, &args[0]);
    let frames = match made {
        Some(frames) => frames,
        None => dummy(vswitch, &args[0])?.1.take_sent(),
    };
    let mut text = String::new();
    for frame in frames {
        for byte in frame {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
    }
    Ok(text)
}

pub fn ip4addr(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    check_address::<Ipv4Addr>(vswitch, args, ["IP", "IPv4"], 32)
}

pub fn ip6addr(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    check_address::<Ipv6Addr>(vswitch, args, ["IPv6", "IPv6"], 128)
}

/// An address for a dummy, which is checked and not kept: nothing here has routes that would go by it.
fn check_address<A: FromStr>(
    vswitch: &Vswitch,
    args: &[String],
    [kind, version]: [&str; 2],
    bits: u32,
) -> Result<String, String> {
    dummy(vswitch, &args[0]).map_err(|_| "Unknown Dummy Interface")?;
    let text = &args[1];
    let (address, mask) = text.split_once('/').unwrap_or((text, "0"));
    match mask.parse::<u32>() {
        _ if address.parse::<A>().is_err() => Err(format!("{text}: invalid {kind} address")),
        Ok(prefix) if prefix > bits => {
            Err(format!("{text}: {version} network prefix bits not between 0 and {bits}, inclusive"))
        }
        Err(_) if mask.parse::<A>().is_err() => Err(format!("{text}: invalid {kind} address")),
        _ => Ok("OK".into()),
    }
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
        None => {
            vswitch.devices.ports.values().filter(|p| p.interface.is_dummy()).map(|p| p.port_no).collect()
        }
    };
    for port_no in ports {
        if let Some(port) = vswitch.plane.dp.port_mut(port_no) {
            port.set_admin_up(up)?;
        }
        let events = vswitch.devices.watch(&mut vswitch.plane, port_no);
        vswitch.follow_devices(events);
    }
    Ok("OK".into())
}

/// `netdev-dummy/conn-state [NAME]`: whether the other end of dummies' cables is there; without a name, of
/// all that connect.
pub fn conn_state(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let state = |name: &str| {
        let control = dummy(vswitch, name).ok();
        match control.and_then(|(_, control)| control.is_connected()) {
            Some(true) => Some("connected"),
            Some(false) => Some("disconnected"),
            None => None,
        }
    };
    if let [name] = args {
        return Ok(format!("{name}: {}\n", state(name).unwrap_or("unknown")));
    }
    let names = vswitch.devices.ports.values().map(|p| &p.name);
    Ok(names.filter_map(|name| Some(format!("{name}: {}\n", state(name)?))).collect())
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
