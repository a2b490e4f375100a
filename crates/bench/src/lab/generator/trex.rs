//! A TRex server in its stateless mode (`trex@HOST:PORT`), driven by its JSON-RPC over ZeroMQ. Its ports are
//! the places of the topology in their order: port 0 leads to the switch's port 0.
//!
//! TRex numbers nothing that Crosspoint could read, so what comes back is counted by its ports.
//!
//! Source: TRex's RPC server specification (trex-tgn.cisco.com/trex/doc/trex_rpc_server_spec.html).

use super::zmtp::Requester;
use super::{Generator, Load, Offering, Stage};
use crate::lab::meter::Meter;
use crate::lab::topology::Topology;
use crate::lab::traffic::Sent;
use crate::lab::traffic::pattern::{Order, Pattern, Protocol, Vary};
use crate::measure::frames::addresses;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// What the error begins with where there is no server.
pub const UNREACHABLE: &str = "no TRex server answers at ";
/// Version of the interface that is asked for.
const API: (u32, u32) = (5, 1);
/// The prefix of a compressed TRex message.
const COMPRESSED: [u8; 4] = [0xab, 0xe8, 0x5c, 0xea];
/// Flows at most: each is two entries of a list.
const FLOWS_MAX: u32 = 100_000;
/// How long to wait for late packets.
const DRAIN: Duration = Duration::from_millis(300);
/// How much longer than asked for TRex may send.
const OVERTIME: Duration = Duration::from_secs(5);

/// See the module documentation.
pub struct Trex {
    name: String,
    address: String,
}

impl Trex {
    /// For a server at HOST:PORT; 4501 is TRex's own default.
    pub fn at(name: &str, address: &str) -> Result<Trex, String> {
        let is_good =
            address.rsplit_once(':').is_some_and(|(h, port)| !h.is_empty() && port.parse::<u16>().is_ok());
        match is_good {
            true => Ok(Trex { name: name.into(), address: address.into() }),
            false => Err(format!("{name}: expected trex@HOST:PORT (TRex listens at port 4501)")),
        }
    }
}

impl Generator for Trex {
    fn name(&self) -> &str {
        &self.name
    }

    fn refuses_topology(&self, topology: &Topology, _is_paced: bool) -> Option<String> {
        (topology.has_switch() || topology.has_guests()).then(|| {
            "a TRex server's ports are not those that the runner makes: it can run `loop` alone".into()
        })
    }

    fn refuses(&self, load: &Load, _stage: &Stage) -> Option<String> {
        let pattern = &load.pattern;
        let is_plain = pattern.protocol == Protocol::Udp
            && pattern.vary == Vary::L3
            && pattern.order == Order::Sequential
            && !pattern.ipv6;
        if !is_plain {
            return Some(format!(
                "the adapter for TRex sends UDP over IPv4 with addresses that vary, not {pattern}"
            ));
        }
        None
    }

    fn refuses_flows(&self, load: &Load, _topology: &Topology) -> Option<String> {
        (load.flows > FLOWS_MAX).then(|| format!("the adapter for TRex sends at most {FLOWS_MAX} flows"))
    }

    fn caution(&self) -> Option<&'static str> {
        Some(
            "trex is driven as its documentation says, which was tried only with a stand-in: check its figures",
        )
    }

    fn start(&self, stage: &Stage) -> Result<Box<dyn Offering>, String> {
        let requester = Requester::connect(&self.address)
            .map_err(|why| format!("{UNREACHABLE}{why}; start it with `t-rex-64 -i`"))?;
        let mut server = Server { requester, id: 0, api: String::new() };
        let (major, minor) = API;
        let synced = server.call("api_sync_v2", json!({ "name": "STL", "major": major, "minor": minor }))?;
        server.api = synced["api_h"].as_str().ok_or("TRex gave no handle of its interface")?.to_string();
        let mut handlers = Vec::new();
        for port in 0..stage.places.len() {
            let user = json!({ "port_id": port, "user": "crosspoint", "session_id": std::process::id(), "force": true });
            let handler = server.call("acquire", user)?;
            handlers.push(handler.as_str().ok_or("TRex gave no handle of a port")?.to_string());
        }
        let (sources, outputs, copies) = (stage.sources.clone(), stage.outputs.clone(), stage.copies);
        Ok(Box::new(Started { server, handlers, sources, outputs, copies, load: None }))
    }
}

struct Server {
    requester: Requester,
    id: u64,
    api: String,
}

impl Server {
    fn call(&mut self, method: &str, mut params: Value) -> Result<Value, String> {
        self.id += 1;
        if !self.api.is_empty() {
            params["api_h"] = json!(self.api);
        }
        let request = json!({ "jsonrpc": "2.0", "id": self.id, "method": method, "params": params });
        let answer =
            self.requester.ask(request.to_string().as_bytes()).map_err(|e| format!("TRex: {method}: {e}"))?;
        if answer.starts_with(&COMPRESSED) {
            return Err(format!("TRex: {method}: the answer is compressed, which the adapter does not read"));
        }
        let mut answer: Value =
            serde_json::from_slice(&answer).map_err(|e| format!("TRex: {method}: no JSON: {e}"))?;
        if let Some(error) = answer.get("error") {
            let said =
                error["specific_err"].as_str().or(error["message"].as_str()).unwrap_or("no reason given");
            return Err(format!("TRex refuses {method}: {said}"));
        }
        if answer["id"] != json!(self.id) {
            return Err(format!("TRex: {method}: an answer to another request"));
        }
        Ok(answer["result"].take())
    }
}

struct Started {
    server: Server,
    handlers: Vec<String>,
    sources: Vec<(usize, bool)>,
    outputs: Vec<usize>,
    copies: u64,
    load: Option<(Load, Instant, Counts, Meter)>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    sent: u64,
    received: u64,
}

impl Started {
    fn call(&mut self, method: &str, port: usize, mut params: Value) -> Result<Value, String> {
        params["port_id"] = json!(port);
        params["handler"] = json!(self.handlers[port]);
        self.server.call(method, params)
    }

    fn counts(&mut self) -> Result<Counts, String> {
        let mut counts = Counts::default();
        for port in 0..self.handlers.len() {
            let stats = self.call("get_port_stats", port, json!({}))?;
            let of = |name: &str| {
                stats[name].as_u64().ok_or_else(|| format!("TRex tells no {name} of port {port}"))
            };
            if self.sources.iter().any(|(n, _)| *n == port) {
                counts.sent += of("opackets")?;
            }
            if self.outputs.contains(&port) {
                counts.received += of("ipackets")?;
            }
        }
        Ok(counts)
    }
}

impl Offering for Started {
    fn begin(&mut self, load: &Load, pids: &[u32]) -> Result<(), String> {
        let sources = self.sources.clone();
        for (port, is_back) in &sources {
            self.call("remove_all_streams", *port, json!({}))?;
            let stream = stream(load, *is_back, sources.len() as u64)?;
            self.call("add_stream", *port, json!({ "stream_id": 1, "stream": stream }))?;
        }
        let before = self.counts()?;
        let meter = Meter::start(pids);
        for (port, _) in &sources {
            let mul = json!({ "type": "raw", "op": "abs", "value": 1.0 });
            let params =
                json!({ "duration": load.seconds, "mul": mul, "force": true, "core_mask": u64::MAX });
            self.call("start_traffic", *port, params)?;
        }
        self.load = Some((load.clone(), Instant::now(), before, meter));
        Ok(())
    }

    fn finish(&mut self) -> Result<Sent, String> {
        let (load, start, before, meter) = self.load.take().ok_or("nothing was offered")?;
        let length = Duration::from_secs_f64(load.seconds);
        if load.burst.is_none() {
            std::thread::sleep(length.saturating_sub(start.elapsed()));
        }
        for (port, _) in self.sources.clone() {
            while self.call("get_port_status", port, json!({}))?["state"] == "TX" {
                if start.elapsed() > length + OVERTIME {
                    self.call("stop_traffic", port, json!({}))?;
                    return Err("TRex did not stop in time".into());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let seconds = start.elapsed().as_secs_f64().min(load.seconds);
        let used = meter.end();
        std::thread::sleep(DRAIN);
        let after = self.counts()?;
        let (went, came) = (after.sent - before.sent, after.received - before.received);
        let mut sent = Sent { seconds, used, ..Sent::default() };
        let intended = load.burst.or(load.rate.map(|rate| (rate as f64 * load.seconds).round() as u64));
        sent.account.offered = intended.unwrap_or(went).max(went);
        sent.account.not_sent = sent.account.offered - went;
        sent.account.received = came.min(went * self.copies);
        sent.account.foreign = came - sent.account.received;
        sent.account.copies = self.copies;
        sent.received_in_time = sent.account.received;
        sent.sent_pps = went as f64 / seconds;
        Ok(sent)
    }

    fn again(&mut self) -> Result<Option<Sent>, String> {
        Ok(None)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for port in 0..self.handlers.len() {
            // The server may be gone; others may take the ports by force then.
            let _ = self.call("release", port, json!({}));
        }
    }
}

/// A stream as TRex describes one: a packet, how fast, and what changes in it.
fn stream(load: &Load, is_back: bool, sources: u64) -> Result<Value, String> {
    let packet = load.pattern.frames(0, load.size, is_back)?.remove(0);
    let rate = match load.rate.filter(|_| load.burst.is_none()) {
        Some(rate) => json!({ "type": "pps", "value": rate as f64 / sources as f64 }),
        None => json!({ "type": "percentage", "value": 100.0 }),
    };
    let mode = match load.burst {
        Some(frames) => json!({ "type": "single_burst", "total_pkts": frames / sources, "rate": rate }),
        None => json!({ "type": "continuous", "rate": rate }),
    };
    let start = if load.pattern.vlan { 18 } else { 14 };
    Ok(json!({
        "enabled": true, "self_start": true, "flags": 0, "action_count": 0, "isg": 0.0, "random_seed": 0,
        "next_stream_id": -1, "core_id": -1, "mode": mode, "flow_stats": { "enabled": false },
        "packet": { "binary": base64(&packet), "meta": "" },
        "vm": { "instructions": instructions(&load.pattern, load.flows, start, is_back) },
    }))
}

/// Source and destination addresses go through two lists in step, so that they are those of our own flows.
fn instructions(pattern: &Pattern, flows: u32, ip: usize, is_back: bool) -> Vec<Value> {
    if flows < 2 || pattern.vary != Vary::L3 {
        return Vec::new();
    }
    let mut all = Vec::new();
    for (name, at) in [("src", ip + 12), ("dst", ip + 16)] {
        let is_first = (name == "src") != is_back;
        let value = |n: u32| {
            let (src, dst) = addresses(n as usize);
            if is_first { src.to_bits() } else { dst.to_bits() }
        };
        let list: Vec<u32> = (0..flows).map(value).collect();
        all.push(json!({ "type": "flow_var", "name": name, "size": 4, "op": "inc", "step": 1, "value_list": list }));
        all.push(json!({
            "type": "write_flow_var", "name": name, "pkt_offset": at, "add_value": 0, "is_big_endian": true
        }));
    }
    all.push(json!({ "type": "fix_checksum_ipv4", "pkt_offset": ip }));
    all
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let of = |n: usize| u32::from(chunk.get(n).copied().unwrap_or(0));
        let word = of(0) << 16 | of(1) << 8 | of(2);
        for n in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * n) & 63) as usize] as char;
            text.push(if n <= chunk.len() { letter } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::generator::Place;
    use crate::lab::net::Net;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A server that speaks TRex's JSON-RPC: it sends what its streams say, and loses one packet in ten.
    fn server(calls: Sender<(String, Value)>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || serve(listener.accept().unwrap().0, &calls));
        address
    }

    fn read_frame(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 1];
        stream.read_exact(&mut head).ok()?;
        let mut size = vec![0; if head[0] & 2 == 0 { 1 } else { 8 }];
        stream.read_exact(&mut size).ok()?;
        let size = size.iter().fold(0usize, |size, byte| size << 8 | usize::from(*byte));
        let mut body = vec![0; size];
        stream.read_exact(&mut body).ok()?;
        Some((head[0], body))
    }

    fn serve(mut stream: TcpStream, calls: &Sender<(String, Value)>) {
        let mut greeting = [0u8; 64];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!((greeting[0], greeting[9], greeting[10]), (0xff, 0x7f, 3));
        // Ours differs from the client's only in who is who.
        stream.write_all(&greeting).unwrap();
        let (flags, ready) = read_frame(&mut stream).unwrap();
        assert!(flags == 4 && ready.ends_with(b"REQ"));
        stream.write_all(b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06ROUTER").unwrap();
        let (mut packets, mut sent) = (0u64, 0u64);
        while let Some((flags, empty)) = read_frame(&mut stream) {
            assert_eq!((flags, empty.len()), (1, 0), "a delimiter comes first");
            let (_, body) = read_frame(&mut stream).unwrap();
            let request: Value = serde_json::from_slice(&body).unwrap();
            let (method, params) = (request["method"].as_str().unwrap(), &request["params"]);
            let mode = &params["stream"]["mode"];
            let result = match method {
                "api_sync_v2" => json!({ "api_h": "h7" }),
                "acquire" => json!(format!("port{}", params["port_id"])),
                _ if params["api_h"] != "h7" => panic!("{request}"),
                "add_stream" => {
                    packets = match mode["type"].as_str().unwrap() {
                        "single_burst" => mode["total_pkts"].as_u64().unwrap(),
                        _ => mode["rate"]["value"].as_f64().unwrap() as u64,
                    };
                    json!({})
                }
                "start_traffic" => {
                    sent += (packets as f64 * params["duration"].as_f64().unwrap()) as u64;
                    json!({})
                }
                "get_port_stats" => json!({ "opackets": sent, "ipackets": sent / 10 * 9 }),
                "get_port_status" => json!({ "state": "IDLE" }),
                _ => json!({}),
            };
            let answer = match method {
                "remove_all_streams" if params["handler"] != "port0" => {
                    json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "message": "not yours" } })
                }
                _ => json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }),
            };
            calls.send((method.to_string(), params.clone())).unwrap();
            let answer = answer.to_string();
            let mut bytes = vec![1, 0, 2];
            bytes.extend((answer.len() as u64).to_be_bytes());
            bytes.extend(answer.as_bytes());
            stream.write_all(&bytes).unwrap();
        }
    }

    fn with_stage<T>(test: impl FnOnce(&Stage) -> T) -> T {
        let net = Net::nowhere();
        let places = ["e0", "e1"].map(|n| Place::Interface(n.into())).to_vec();
        test(&Stage {
            net: &net,
            places,
            sources: vec![(0, false)],
            outputs: vec![1],
            copies: 1,
            descriptors: 256,
            cpu: None,
        })
    }

    fn load(rate: Option<u64>, burst: Option<u64>) -> Load {
        Load { size: 128, flows: 3, rate, seconds: 0.1, burst, pattern: Pattern::default() }
    }

    #[test]
    fn a_trex_server_is_told_what_to_send_and_asked_what_came_back() {
        let (calls, called): (_, Receiver<(String, Value)>) = channel();
        let trex = Trex::at("trex@x", &server(calls)).unwrap();
        with_stage(|stage| {
            let mut offering = trex.start(stage).unwrap();
            offering.begin(&load(Some(10_000), None), &[]).unwrap();
            let sent = offering.finish().unwrap();
            assert_eq!((sent.account.offered, sent.account.received), (1_000, 900));
            assert_eq!((sent.account.not_sent, sent.account.lost()), (0, 100));
            assert!(offering.again().unwrap().is_none());
        });
        let called: Vec<(String, Value)> = called.try_iter().collect();
        let names: Vec<&str> = called.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[..4], ["api_sync_v2", "acquire", "acquire", "remove_all_streams"]);
        assert_eq!(names[names.len() - 2..], ["release", "release"]);
        let stream = &called.iter().find(|(name, _)| name == "add_stream").unwrap().1["stream"];
        assert_eq!(stream["mode"]["rate"], json!({ "type": "pps", "value": 10_000.0 }));
        let list = &stream["vm"]["instructions"][2]["value_list"];
        assert_eq!(*list, json!([0x0b00_0055u32, 0x0b00_0054, 0x0b00_0057]), "as our own flows have them");
    }

    #[test]
    fn what_trex_refuses_is_said_in_its_words_and_what_it_cannot_do_before_it_is_asked() {
        let (calls, _called) = channel();
        let trex = Trex::at("trex@x", &server(calls)).unwrap();
        with_stage(|stage| {
            let mut offering = trex
                .start(&Stage {
                    sources: vec![(1, false)],
                    places: stage.places.clone(),
                    outputs: vec![0],
                    ..*stage
                })
                .unwrap();
            let error = offering.begin(&load(None, Some(5)), &[]).unwrap_err();
            assert_eq!(error, "TRex refuses remove_all_streams: not yours");
            let zipf = Load { pattern: "udp+zipf".parse().unwrap(), ..load(None, None) };
            assert!(trex.refuses(&zipf, stage).unwrap().contains("not udp+zipf"));
        });
        assert!(Trex::at("trex@x", "nowhere").is_err());
    }

    #[test]
    fn packets_are_written_in_base_64() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob"].map(|t| base64(t.as_bytes())),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
    }
}
