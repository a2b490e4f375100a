//! Commands that run until interrupted, and those that measure the connection.

use super::client::{Client, Failure, Heard, fail};
use super::context::Options;
use super::control::Control;
use super::ports::config;
use host::log::strftime;
use openflow::message::{
    FlowMonitorFlags, FlowMonitorRequest, PacketIn, PacketInForm, StatsRequest, SwitchConfig, TABLE_ALL,
};
use openflow::text::{KeyValues, MessageStyle, PortNames, message_text, parse_match};
use openflow::{Message, Version};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Prints what the switch says until the connection ends.
fn print_all(options: &Options, client: &mut Client, resume: bool) -> Result<ExitCode, Failure> {
    let names =
        if options.shows_names() { options.names_of(&mut options.connect()?)? } else { PortNames::default() };
    client.show_echoes();
    let mut control = Control::start(options, client.sender())?;
    if let Some(daemon) = options.daemon.borrow_mut().as_mut() {
        daemon.complete();
    }
    loop {
        let (version, xid, message) = match client.hear_or_be_asked(control.is_blocked())? {
            Heard::Message(version, xid, message) => (version, xid, message),
            Heard::Asked(asked) => {
                if control.take(asked, client, options.more())? {
                    return Ok(ExitCode::SUCCESS);
                }
                continue;
            }
        };
        let resumed = match &message {
            Message::PacketIn(packet) if resume && !packet.continuation.is_empty() => {
                // What the switch passes along for us alone does not go back.
                Some(Message::Resume(Box::new(PacketIn { userdata: Vec::new(), ..(**packet).clone() })))
            }
            _ => None,
        };
        if options.args.timestamp {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            eprint!("{}: ", strftime("%Y-%m-%d %H:%M:%S.###", now));
        }
        let style = MessageStyle { version, ..client.style(&names, options.more()) };
        eprint!("{}", options.painted(&client.received_text(xid, &message, style)));
        if message == Message::BarrierReply {
            control.barrier_passed(xid);
        }
        if let Some(resumed) = resumed {
            eprint!("send: {}", options.painted(&message_text(0, &resumed, style)));
            client.send(&resumed)?;
            client.flush()?;
        }
    }
}

pub fn monitor(options: &Options) -> Result<ExitCode, Failure> {
    let mut client = options.connect()?;
    let (mut names, mut resume, mut has_length) = (None, false, false);
    for (id, word) in options.args.words.iter().skip(2).enumerate() {
        if let Some(text) = word.strip_prefix("watch:") {
            if names.is_none() {
                // The stock tool says hello on two further connections, to ask for tables on one of them, and
                // for ports.
                (0..3).for_each(|_| client.skip_xid());
                names = Some(options.names_of(&mut client)?);
            }
            let names = names.as_ref().filter(|_| options.takes_names()).unwrap_or(PortNames::none());
            let watch = parse_watch(text, id as u32, names)?;
            let style = client.style(PortNames::none(), options.more());
            let request = StatsRequest::FlowMonitor(vec![watch]);
            let show = |text: &str| {
                print!("{}", options.painted(text));
                host::output::flush();
                Ok(())
            };
            if options.args.more > 0 {
                client.show_exchange(request, style, show)?;
            } else {
                client.show_statistics(request, style, show)?;
            }
        } else if word == "invalid_ttl" {
            if client.version() > Version::V12 {
                return fail!(
                    "invalid_ttl requires one of the OpenFlow versions OpenFlow10, OpenFlow11, OpenFlow12 but none is \
                     enabled (use -O)"
                );
            }
            let wanted = SwitchConfig { invalid_ttl_to_controller: Some(true), ..config(&mut client)? };
            client.command(&Message::SetConfig(wanted))?;
        } else if word == "resume" {
            resume = true;
        } else if let Ok(miss_send_len) = word.parse() {
            has_length = true;
            let wanted = SwitchConfig { miss_send_len, ..config(&mut client)? };
            client
                .command(&Message::SetConfig(SwitchConfig { invalid_ttl_to_controller: None, ..wanted }))?;
        } else {
            return fail!("{word}: unsupported \"monitor\" argument");
        }
    }
    if resume && !has_length {
        // Packets come back whole.
        let wanted =
            SwitchConfig { miss_send_len: u16::MAX, invalid_ttl_to_controller: None, ..config(&mut client)? };
        client.command(&Message::SetConfig(wanted))?;
    }
    let forms = match options.args.packet_in_format.as_deref() {
        Some("standard" | "openflow10") => &[PacketInForm::Standard][..],
        Some("nxt_packet_in" | "nxm") => &[PacketInForm::Nxt],
        Some("nxt_packet_in2") => &[PacketInForm::Nxt2],
        Some(other) => return fail!("{other}: unknown packet-in format"),
        None => &[PacketInForm::Nxt2, PacketInForm::Nxt, PacketInForm::Standard],
    };
    let mut refused = None;
    for &form in forms {
        match client.command(&Message::SetPacketInFormat(form)) {
            Ok(()) => {
                refused = None;
                break;
            }
            Err(failure) => refused = Some(failure),
        }
    }
    // A switch that knows no other form than the standard's need not know how to be asked for it.
    if let Some(failure) = refused
        && options.args.packet_in_format.is_some()
    {
        return Err(failure);
    }
    print_all(options, &mut client, resume)
}

/// `[!initial][,!add][,!delete][,!modify][,!actions][,!own][,out_port=PORT][,out_group=GROUP][,table=TABLE][,FIELD=VALUE]...`
fn parse_watch(text: &str, id: u32, names: &PortNames) -> Result<FlowMonitorRequest, Failure> {
    const NAMES: [(&str, FlowMonitorFlags); 6] = [
        ("initial", FlowMonitorFlags::INITIAL),
        ("add", FlowMonitorFlags::ADD),
        ("delete", FlowMonitorFlags::DELETE),
        ("modify", FlowMonitorFlags::MODIFY),
        ("actions", FlowMonitorFlags::ACTIONS),
        ("own", FlowMonitorFlags::OWN),
    ];
    let mut request = FlowMonitorRequest {
        id,
        flags: FlowMonitorFlags::all(),
        out_port: None,
        out_group: None,
        table_id: TABLE_ALL,
        matching: Default::default(),
        command: Default::default(),
    };
    let mut rest = String::new();
    for (key, value) in KeyValues::new(text) {
        if let Some((_, flag)) = NAMES.iter().find(|(name, _)| key.strip_prefix('!') == Some(name)) {
            request.flags -= *flag;
        } else if key == "table" {
            request.table_id = value.parse().map_err(|_| Failure(format!("unknown table \"{value}\"")))?;
        } else if key == "out_port" {
            match names.parse(value) {
                Some(port) => request.out_port = Some(port),
                None => return fail!("{value} is not a valid OpenFlow port"),
            }
        } else if key == "out_group" {
            match value.parse() {
                Ok(group) => request.out_group = Some(group),
                Err(_) => return fail!("{value} is not a valid OpenFlow group"),
            }
        } else {
            rest += &if value.is_empty() { format!("{key},") } else { format!("{key}={value},") };
        }
    }
    let rest = rest.trim_end_matches(',');
    request.matching = parse_match(rest, names).map_err(|error| Failure(format!("{rest}: {error}")))?;
    Ok(request)
}

pub fn snoop(options: &Options) -> Result<ExitCode, Failure> {
    let mut client = Client::listen(options.target(), options.versions, &options.args.tls)?;
    print_all(options, &mut client, false)
}

/// Sends an echo request and checks that its answer says the same.
fn echo(client: &mut Client, data: Vec<u8>) -> Result<u32, Failure> {
    let (xid, reply) = client.transact(&Message::EchoRequest(data.clone()))?;
    match reply {
        Message::EchoReply(back) if back == data => Ok(xid),
        Message::Error(_) => Err(client.refused(xid, &reply)),
        _ => fail!("reply does not match request"),
    }
}

pub fn probe(options: &Options) -> Result<ExitCode, Failure> {
    let mut client = options.connect()?;
    echo(&mut client, Vec::new())?;
    Ok(ExitCode::SUCCESS)
}

fn payload(options: &Options, idx: usize, default: usize) -> Result<Vec<u8>, Failure> {
    let length = match options.word(idx) {
        None => default,
        Some(text) => text.parse().map_err(|_| Failure(format!("{text}: not a number of bytes")))?,
    };
    if length > 65_535 - 8 {
        return fail!("payload must be between 0 and {} bytes", 65_535 - 8);
    }
    Ok((0..length).map(|i| (i * 197) as u8).collect())
}

pub fn ping(options: &Options) -> Result<ExitCode, Failure> {
    let target = options.target();
    let data = payload(options, 2, 64)?;
    let mut client = options.connect()?;
    for _ in 0..10 {
        let start = Instant::now();
        let xid = echo(&mut client, data.clone())?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        println!("{} bytes from {target}: xid={xid:08x} time={ms:.1} ms", data.len());
    }
    Ok(ExitCode::SUCCESS)
}

pub fn benchmark(options: &Options) -> Result<ExitCode, Failure> {
    let data = payload(options, 2, 0)?;
    let count: u32 = match options.word(3).unwrap_or("").parse() {
        Ok(count) if count > 0 => count,
        _ => return fail!("benchmark: the number of packets must be at least 1"),
    };
    let mut client = options.connect()?;
    let size = data.len() as u64 + 8;
    println!(
        "Sending {count} packets * {size} bytes (with header) = {} bytes total",
        size * u64::from(count)
    );
    let start = Instant::now();
    for _ in 0..count {
        echo(&mut client, data.clone())?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let (packets, bytes) = (f64::from(count) / seconds, size as f64 * f64::from(count) / seconds);
    println!("Finished in {:.1} ms ({packets:.0} packets/s) ({bytes:.0} bytes/s)", seconds * 1e3);
    Ok(ExitCode::SUCCESS)
}
