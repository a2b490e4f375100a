//! Commands about the switch and its ports.

use super::client::{Answer, Client, Failure, fail};
use super::context::Options;
use base::OfPort;
use openflow::message::{FragHandling, PortConfig, PortMod, StatsRequest, SwitchConfig};
use openflow::text::{PortNames, frag_name};
use openflow::{Message, Version};
use std::process::ExitCode;

/// Prints the reply to a request.
pub(super) fn print_reply(options: &Options, client: &mut Client, request: &Message) -> Result<(), Failure> {
    let (xid, reply) = client.ask(request)?;
    print_received(options, client, xid, &reply)
}

fn print_received(options: &Options, client: &Client, xid: u32, reply: &Answer) -> Result<(), Failure> {
    if let Ok(error @ Message::Error(_)) = reply {
        return Err(client.refused(xid, error));
    }
    print_text(options, client, xid, reply)
}

fn print_text(options: &Options, client: &Client, xid: u32, reply: &Answer) -> Result<(), Failure> {
    let text = client.answer_text(xid, reply, client.style(PortNames::none(), options.more()));
    print!("{}", options.painted(&text));
    client.check_shown(reply, &text)
}

/// Prints all parts of the reply to a request for statistics.
pub(super) fn print_statistics(
    options: &Options,
    client: &mut Client,
    request: StatsRequest,
) -> Result<ExitCode, Failure> {
    let names = if options.shows_names() { shown_names(options)? } else { PortNames::default() };
    let style = client.style(&names, options.more());
    client.show_statistics(request, style, |text| {
        print!("{}", options.painted(text));
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn shown_names(options: &Options) -> Result<PortNames, Failure> {
    let mut client = options.connect()?;
    options.names_of(&mut client)
}

pub fn show(options: &Options) -> Result<ExitCode, Failure> {
    let mut client = options.connect()?;
    let (xid, mut reply) = client.ask(&Message::FeaturesRequest)?;
    let mut has_all_ports = true;
    if let Ok(Message::FeaturesReply(features)) = &mut reply
        && !features.has_all_ports(client.version())
    {
        has_all_ports = false;
        features.ports.clear();
    }
    print_received(options, &client, xid, &reply)?;
    if !has_all_ports {
        print_statistics(options, &mut client, StatsRequest::PortDesc(None))?;
    }
    client.skip_xid();
    print_reply(options, &mut client, &Message::GetConfigRequest)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints statistics of the switch.
pub fn ask(options: &Options, request: StatsRequest) -> Result<ExitCode, Failure> {
    print_statistics(options, &mut options.connect()?, request)
}

/// A port given by number, reserved name or the name that the switch has for it; and the client that was
/// asked.
fn port_argument(options: &Options, idx: usize) -> Result<(Option<OfPort>, Client), Failure> {
    let mut client = options.connect()?;
    let Some(text) = options.word(idx) else { return Ok((None, client)) };
    if let Some(port) = PortNames::none().parse(text) {
        return Ok((Some(port), client));
    }
    let found = if options.takes_names() { options.names_of(&mut client)?.parse(text) } else { None };
    let Some(port) = found else {
        return fail!("{}: unknown port `{text}'", options.target());
    };
    client.skip_xid();
    Ok((Some(port), client))
}

/// Prints statistics of a port or of all.
pub fn ask_of_port(
    options: &Options,
    request: fn(Option<OfPort>) -> StatsRequest,
) -> Result<ExitCode, Failure> {
    let (port, mut client) = port_argument(options, 2)?;
    print_statistics(options, &mut client, request(port.filter(|&p| p != OfPort::NONE)))
}

fn queue_argument(options: &Options) -> Result<Option<u32>, Failure> {
    let all = |text: &&str| ["", "all", "any"].iter().any(|all| text.eq_ignore_ascii_case(all));
    match options.word(3).filter(|text| !all(text)) {
        Some(text) => text.parse().map(Some).map_err(|_| Failure(format!("{text} is not a valid queue"))),
        None => Ok(None),
    }
}

pub fn queue_stats(options: &Options) -> Result<ExitCode, Failure> {
    let all = options.word(2).is_some_and(|text| text.is_empty() || text.eq_ignore_ascii_case("all"));
    let (port, mut client) = if all { (None, options.connect()?) } else { port_argument(options, 2)? };
    let queue_id = queue_argument(options)?;
    let port = port.filter(|&p| p != OfPort::NONE && p != OfPort::ALL);
    print_answer(options, &mut client, &Message::StatsRequest(StatsRequest::Queue { port, queue_id }))
}

/// Prints what the switch answers, a refusal too.
fn print_answer(options: &Options, client: &mut Client, request: &Message) -> Result<ExitCode, Failure> {
    let (xid, reply) = client.ask(request)?;
    print_text(options, client, xid, &reply)?;
    Ok(ExitCode::SUCCESS)
}

pub fn queue_get_config(options: &Options) -> Result<ExitCode, Failure> {
    let (port, mut client) = port_argument(options, 2)?;
    let port = port.filter(|&p| p != OfPort::NONE);
    let queue_id = queue_argument(options)?;
    if client.version() >= Version::V14 {
        let request = StatsRequest::QueueDesc { port, queue_id };
        return print_answer(options, &mut client, &Message::StatsRequest(request));
    }
    if port.is_none() && client.version() == Version::V10 {
        // OpenFlow 1.0 asks one port at a time.
        for desc in client.ports()?.iter().filter(|desc| desc.port < OfPort::MAX) {
            let request = Message::QueueGetConfigRequest { port: Some(desc.port) };
            print_answer(options, &mut client, &request)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    print_answer(options, &mut client, &Message::QueueGetConfigRequest { port })
}

/// Arguments of `mod-port`: name, bits, whether they are set.
const ACTS: [(&str, PortConfig, bool); 14] = [
    ("up", PortConfig::PORT_DOWN, false),
    ("down", PortConfig::PORT_DOWN, true),
    ("stp", PortConfig::NO_STP, false),
    ("no-stp", PortConfig::NO_STP, true),
    ("receive", PortConfig::NO_RECV, false),
    ("no-receive", PortConfig::NO_RECV, true),
    ("receive-stp", PortConfig::NO_RECV_STP, false),
    ("no-receive-stp", PortConfig::NO_RECV_STP, true),
    ("flood", PortConfig::NO_FLOOD, false),
    ("no-flood", PortConfig::NO_FLOOD, true),
    ("forward", PortConfig::NO_FWD, false),
    ("no-forward", PortConfig::NO_FWD, true),
    ("packet-in", PortConfig::NO_PACKET_IN, false),
    ("no-packet-in", PortConfig::NO_PACKET_IN, true),
];

pub fn mod_port(options: &Options) -> Result<ExitCode, Failure> {
    let (port, act) = (options.word(2).unwrap_or(""), options.word(3).unwrap_or(""));
    // `noflood` is `no-flood`.
    let is_act = |name: &str| {
        name.eq_ignore_ascii_case(act) || name.replacen("no-", "no", 1).eq_ignore_ascii_case(act)
    };
    let Some(&(_, mask, set)) = ACTS.iter().find(|(name, ..)| is_act(name)) else {
        return fail!("unknown mod-port command '{act}'");
    };
    let mut client = options.connect()?;
    let number = PortNames::none().parse(port);
    let ports = client.ports()?;
    let Some(desc) = ports.iter().find(|d| Some(d.port) == number || d.name == port) else {
        return fail!("{}: couldn't find port `{port}'", options.target());
    };
    let port_mod = PortMod {
        port: desc.port,
        hw_addr: desc.hw_addr,
        config: if set { mask } else { PortConfig::empty() },
        mask,
        advertise: Default::default(),
        unknown: None,
    };
    client.command(&Message::PortMod(port_mod))?;
    Ok(ExitCode::SUCCESS)
}

/// The switch's configuration.
pub fn config(client: &mut Client) -> Result<SwitchConfig, Failure> {
    match client.request(&Message::GetConfigRequest)? {
        Message::GetConfigReply(config) => Ok(config),
        _ => fail!("reply of another kind"),
    }
}

pub fn get_frags(options: &Options) -> Result<ExitCode, Failure> {
    let mut client = options.connect()?;
    println!("{}", frag_name(config(&mut client)?.frag));
    Ok(ExitCode::SUCCESS)
}

pub fn set_frags(options: &Options) -> Result<ExitCode, Failure> {
    const ALL: [FragHandling; 4] =
        [FragHandling::Normal, FragHandling::Drop, FragHandling::Reassemble, FragHandling::NxMatch];
    let text = options.word(2).unwrap_or("");
    let Some(frag) = ALL.into_iter().find(|&f| frag_name(f).eq_ignore_ascii_case(text)) else {
        return fail!("{text}: unknown fragment handling mode");
    };
    let mut client = options.connect()?;
    let before = config(&mut client)?;
    if before.frag == frag {
        return Ok(ExitCode::SUCCESS);
    }
    client.command(&Message::SetConfig(SwitchConfig { frag, ..before }))?;
    if config(&mut client)?.frag != frag {
        return fail!(
            "{}: setting fragment handling mode failed (this switch probably doesn't support mode \"{text}\")",
            options.target()
        );
    }
    Ok(ExitCode::SUCCESS)
}
