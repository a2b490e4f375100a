//! Two namespaces: the switch's, with an end of a veth pair for each network interface of a topology (`p0`,
//! `p1` …), and the generator's, with the other ends (`e0`, `e1` …). Where the run names interfaces of the
//! machine, these take the place of veth pairs, under the same names.

use super::cable::Cable;
use crate::machine::interface::Interface;
use crate::machine::lease::{self, Resource};
use crate::process::run;
use std::collections::BTreeMap;
use std::process::Command;

/// The address of `p0`, to which frames go, so that a switch that routes takes them.
pub const MAC: &str = "02:00:00:00:00:02";
/// The address of `p1`, to which frames of the other direction go.
pub const MAC_BACK: &str = "02:00:00:00:00:01";

/// See the module documentation. Gone when dropped.
pub struct Net {
    /// The switch's namespace.
    pub switch: String,
    /// The generator's.
    pub outside: String,
    /// Borrowed from the machine.
    interfaces: Vec<Interface>,
}

impl Net {
    /// Creates both, with these pairs, MTU and number of queues. With `is_loop`, one pair leads from the
    /// generator to itself, `e0` and `e1`. Cables take the place of pairs, in their order.
    pub fn new(
        pairs: &[usize],
        is_loop: bool,
        mtu: u16,
        queues: usize,
        cables: &[Cable],
    ) -> Result<Net, String> {
        let prefix = format!("xpb{}", std::process::id());
        let (switch, outside) = (format!("{prefix}s"), format!("{prefix}o"));
        let mut net = Net { switch, outside, interfaces: Vec::new() };
        for name in [&net.switch, &net.outside] {
            lease::note(&Resource::Namespace(name))?;
            run(Command::new("ip").args(["netns", "add", name]))?;
            // No neighbour discovery by the kernel among the counted packets.
            net.on(name, "sysctl -qw net.ipv6.conf.default.disable_ipv6=1")?;
        }
        let mut switch_lines = String::new();
        let mut outside_lines = String::new();
        let (switch, outside) = (net.switch.clone(), net.outside.clone());
        if is_loop {
            net.connect((&outside, "e0"), (&outside, "e1"), (mtu, queues), cables.first())?;
            outside_lines += "link set e0 up\nlink set e1 up\n";
        }
        for (nth, n) in pairs.iter().enumerate() {
            let (e, p) = (format!("e{n}"), format!("p{n}"));
            net.connect((&outside, &e), (&switch, &p), (mtu, queues), cables.get(nth))?;
            switch_lines += &format!("link set p{n} up\n");
            outside_lines += &format!("link set e{n} up\n");
        }
        // Before they are up: not every card changes its address then.
        for (port, mac) in [(0, MAC), (1, MAC_BACK)] {
            if pairs.contains(&port) {
                net.batch(&net.switch, &format!("link set p{port} address {mac}"))?;
            }
        }
        net.batch(&net.switch, &switch_lines)?;
        net.batch(&net.outside, &outside_lines)?;
        for (namespace, letter) in [(&net.switch, 'p'), (&net.outside, 'e')] {
            net.without_offloads(
                namespace,
                &pairs.iter().map(|n| format!("{letter}{n}")).collect::<Vec<_>>(),
            )?;
        }
        Ok(net)
    }

    /// None, for what only looks at it.
    #[cfg(test)]
    pub fn nowhere() -> std::mem::ManuallyDrop<Net> {
        let net = Net { switch: String::new(), outside: String::new(), interfaces: Vec::new() };
        std::mem::ManuallyDrop::new(net)
    }

    /// Connects two interfaces, each in its namespace: by a cable, if there is one.
    fn connect(
        &mut self,
        generator: (&str, &str),
        other: (&str, &str),
        (mtu, queues): (u16, usize),
        cable: Option<&Cable>,
    ) -> Result<(), String> {
        let Some(Cable { outside, switch }) = cable else {
            return self.pair(generator, other, mtu, queues);
        };
        for (original, (namespace, name)) in [(outside, generator), (switch, other)] {
            let interface = Interface::find(original, namespace, name)?;
            lease::note(&Resource::Interface(&interface))?;
            self.interfaces.push(interface.clone());
            interface.take(mtu, queues)?;
        }
        Ok(())
    }

    /// The drivers of borrowed interfaces. `None`: all are veth pairs.
    pub fn drivers(&self) -> Result<Option<String>, String> {
        let mut all = self.interfaces.iter().map(Interface::driver).collect::<Result<Vec<_>, _>>()?;
        all.sort_unstable();
        all.dedup();
        Ok((!all.is_empty()).then(|| all.join(" and ")))
    }

    fn pair(&self, a: (&str, &str), b: (&str, &str), mtu: u16, queues: usize) -> Result<(), String> {
        let (mtu, queues) = (mtu.to_string(), queues.to_string());
        let settings = ["mtu", &mtu, "numrxqueues", &queues, "numtxqueues", &queues];
        let mut command = Command::new("ip");
        command.args(["link", "add", a.1, "netns", a.0]).args(settings).args(["type", "veth"]);
        command.args(["peer", "name", b.1, "netns", b.0]).args(settings);
        run(&mut command).map(drop)
    }

    /// Runs lines of `ip` in one of the namespaces.
    pub fn batch(&self, namespace: &str, lines: &str) -> Result<(), String> {
        for line in lines.lines() {
            run(Command::new("ip").args(["-n", namespace]).args(line.split_whitespace()))?;
        }
        Ok(())
    }

    /// Takes from interfaces what spares the kernel checksums and segments: some switches would use it,
    /// others take it away themselves.
    pub fn without_offloads(&self, namespace: &str, interfaces: &[String]) -> Result<(), String> {
        for name in interfaces {
            let off = format!("ethtool -K {name} rx off tx off sg off tso off gso off gro off");
            match self.on(namespace, &off) {
                // Some cards cannot do without; the condition `offloads` says what is left.
                Err(_) if self.interfaces.iter().any(|borrowed| borrowed.name == *name) => {}
                done => drop(done?),
            }
        }
        Ok(())
    }

    /// The offloads that are on at interfaces of the switch's namespace, at taps too.
    pub fn offloads(&self) -> Result<String, String> {
        let links = run(Command::new("ip").args(["-n", &self.switch, "-br", "link"]))?;
        let names = links.lines().filter_map(|line| line.split(['@', ' ']).next());
        let is_port = |name: &&str| {
            let number = name.trim_start_matches("vm").trim_start_matches('p');
            number.len() < name.len() && number.parse::<usize>().is_ok()
        };
        let mut all = Vec::new();
        for name in names.filter(is_port) {
            all.push(offloads_on(&self.on(&self.switch, &format!("ethtool -k {name}"))?));
        }
        all.sort_unstable();
        all.dedup();
        Ok(if all.is_empty() { "no interfaces".into() } else { all.join("; ") })
    }

    /// Takes over a tap device that the generator has made outside.
    pub fn take_tap(&self, name: &str) -> Result<(), String> {
        self.batch(&self.outside, &format!("link set {name} netns {}", self.switch))?;
        self.without_offloads(&self.switch, &[name.to_string()])?;
        self.batch(&self.switch, &format!("link set {name} up"))
    }

    /// Runs a command in one of the namespaces.
    pub fn on(&self, namespace: &str, line: &str) -> Result<String, String> {
        run(Command::new("ip").args(["netns", "exec", namespace]).args(line.split_whitespace()))
    }

    /// Packets that the kernel counts as dropped at each end of each pair, and at tap devices. Those that a
    /// device's queue of packets to send had no room for are in no counter of the device: a tap has such a
    /// queue, a veth has none unless it was given one.
    pub fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        let mut counts = BTreeMap::new();
        for namespace in [&self.switch, &self.outside] {
            let text = run(Command::new("ip").args(["-n", namespace, "-s", "-j", "link"]))?;
            let links: serde_json::Value =
                serde_json::from_str(&text).map_err(|e| format!("ip -s -j link: {e}"))?;
            for link in links.as_array().into_iter().flatten() {
                let name = link["ifname"].as_str().unwrap_or_default();
                let number = name.trim_start_matches(|c: char| c.is_ascii_lowercase());
                if number.parse::<usize>().is_err() || !name.starts_with(['p', 'e', 'v']) {
                    continue;
                }
                for direction in ["rx", "tx"] {
                    let count = link["stats64"][direction]["dropped"].as_u64().unwrap_or(0);
                    counts.insert(format!("kernel {name}: {direction}_dropped"), count);
                }
            }
            for (name, drops) in
                queue_drops(&run(Command::new("tc").args(["-n", namespace, "-s", "-j", "qdisc"]))?)?
            {
                if let Some(count) = counts.get_mut(&format!("kernel {name}: tx_dropped")) {
                    *count += drops;
                }
            }
        }
        Ok(counts)
    }

    /// Reads what packet sockets in the switch's namespace drop.
    pub fn socket_reader(&self) -> SocketReader {
        SocketReader { namespace: self.switch.clone() }
    }
}

/// See [`Net::socket_reader`].
pub struct SocketReader {
    namespace: String,
}

impl SocketReader {
    /// Packets that the kernel has received at interfaces of the switch's namespace, by their names.
    pub fn received(&self) -> Result<BTreeMap<String, u64>, String> {
        self.counts("rx", "packets")
    }

    /// Packets that it has sent there. A tap device has sent what was read from it.
    pub fn sent(&self) -> Result<BTreeMap<String, u64>, String> {
        self.counts("tx", "packets")
    }

    /// Packets that devices there refused.
    pub fn refused(&self) -> Result<BTreeMap<String, u64>, String> {
        self.counts("tx", "dropped")
    }

    fn counts(&self, direction: &str, what: &str) -> Result<BTreeMap<String, u64>, String> {
        let text = run(Command::new("ip").args(["-n", &self.namespace, "-s", "-j", "link"]))?;
        let links: serde_json::Value =
            serde_json::from_str(&text).map_err(|e| format!("ip -s -j link: {e}"))?;
        let one = |link: &serde_json::Value| {
            Some((link["ifname"].as_str()?.to_string(), link["stats64"][direction][what].as_u64()?))
        };
        Ok(links.as_array().into_iter().flatten().filter_map(one).collect())
    }

    /// Packets for which the queues of packet sockets had no room: `kernel p0: packet socket full`. The
    /// kernel counts them at the socket alone.
    pub fn drops(&self) -> Result<BTreeMap<String, u64>, String> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, "ss", "-0", "-a", "-n", "-m"]);
        Ok(parse_socket_drops(&run(&mut command)?))
    }
}

/// Packets lost between the kernel and a switch that uses an interface through a packet ring, by place.
/// Poll-mode drivers do not report packets for which their ring had no room: that is the number that the
/// kernel has received and the switch has not. Packets that a device refused when the ring was last sent wait
/// there for the next frame. `came`: to the kernel, and on to the switch; `went`: from the switch, and on
/// from the kernel.
pub fn lost_in_ring(interface: &str, came: (u64, u64), went: (u64, u64)) -> [(String, u64); 2] {
    [
        (format!("kernel {interface}: packet ring full"), came.0.saturating_sub(came.1)),
        (format!("kernel {interface}: held in the packet ring"), went.0.saturating_sub(went.1)),
    ]
}

/// The offloads of checksums and segmentation that `ethtool -k` reports as on.
fn offloads_on(text: &str) -> String {
    let names = [
        ("rx-checksumming", "rx"),
        ("tx-checksumming", "tx"),
        ("scatter-gather", "sg"),
        ("tcp-segmentation-offload", "tso"),
        ("generic-segmentation-offload", "gso"),
        ("generic-receive-offload", "gro"),
        ("large-receive-offload", "lro"),
    ];
    let is_on =
        |name: &str| text.lines().any(|l| l.strip_prefix(name).is_some_and(|v| v.starts_with(": on")));
    let on: Vec<&str> = names.iter().filter(|(name, _)| is_on(name)).map(|(_, short)| *short).collect();
    if on.is_empty() { "none".into() } else { on.join(" ") }
}

/// By interface, what `tc -s -j qdisc` reports as dropped at the queue of packets to send. The queue at the
/// root counts what others below it drop too.
fn queue_drops(text: &str) -> Result<Vec<(String, u64)>, String> {
    let queues: serde_json::Value = serde_json::from_str(text).map_err(|e| format!("tc -s -j qdisc: {e}"))?;
    let is_root = |queue: &&serde_json::Value| queue["root"].as_bool() == Some(true);
    let one =
        |queue: &serde_json::Value| Some((queue["dev"].as_str()?.to_string(), queue["drops"].as_u64()?));
    Ok(queues.as_array().into_iter().flatten().filter(is_root).filter_map(one).collect())
}

fn parse_socket_drops(text: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in text.lines().skip(1) {
        let mut words = line.split_whitespace();
        let interface = words.find_map(|w| w.strip_prefix("*:")).unwrap_or_default().to_string();
        let memory = line.split("skmem:(").nth(1).and_then(|m| m.split(')').next()).unwrap_or_default();
        let drops = memory.split(',').find_map(|f| f.strip_prefix('d')?.parse::<u64>().ok());
        if let Some(drops) = drops.filter(|_| !interface.is_empty()) {
            *counts.entry(format!("kernel {interface}: packet socket full")).or_default() += drops;
        }
    }
    counts
}

impl Drop for Net {
    fn drop(&mut self) {
        let mut kept: Vec<&str> = Vec::new();
        for interface in &self.interfaces {
            if let Err(why) = interface.give_back() {
                // A virtual one would go with the namespace.
                kept.push(&interface.namespace);
                eprintln!("crosspoint bench: {why}; {} is kept for that", interface.namespace);
            }
        }
        for name in [&self.switch, &self.outside].into_iter().filter(|name| !kept.contains(&name.as_str())) {
            let _ = run(Command::new("ip").args(["netns", "del", name]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloads_are_those_that_are_on() {
        let text = "Features for p0:\nrx-checksumming: on\ntx-checksumming: off\n\ttx-checksum-ip-generic: off\n\
                    scatter-gather: off\ntcp-segmentation-offload: off\ngeneric-receive-offload: on [requested off]\n";
        assert_eq!(offloads_on(text), "rx gro");
        assert_eq!(offloads_on("rx-checksumming: off [fixed]\n"), "none");
    }

    #[test]
    fn drops_at_queues_of_packets_to_send_are_read() {
        let text = r#"[{"kind":"noqueue","handle":"0:","dev":"e0","root":true,"refcnt":2,"options":{},"drops":0},
            {"kind":"mq","handle":"1:","dev":"vm0","root":true,"options":{},"bytes":0,"packets":0,"drops":17},
            {"kind":"pfifo_fast","handle":"0:","dev":"vm0","parent":"1:1","drops":17}]"#;
        assert_eq!(queue_drops(text), Ok(vec![("e0".into(), 0), ("vm0".into(), 17)]));
        assert!(queue_drops("nothing").is_err());
    }

    #[test]
    fn drops_of_packet_sockets_are_read() {
        let text = "Netid State Recv-Q Send-Q Local Address:Port Peer Address:PortProcess\n\
                    p_raw UNCONN 0 0 *:p0 *  skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d17)\n\
                    p_raw UNCONN 0 0 *:p1 *  skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d0)\n";
        let counts = parse_socket_drops(text);
        assert_eq!(counts["kernel p0: packet socket full"], 17);
        assert_eq!(counts["kernel p1: packet socket full"], 0);
    }
}
