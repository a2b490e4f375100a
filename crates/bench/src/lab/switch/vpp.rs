//! FD.io's VPP: its host interfaces (packet sockets) and vhost-user, with a cross-connect for each hop.
//!
//! Source: FD.io's documentation of `startup.conf` and of the debug commands (s3-docs.fd.io/vpp). Debian has
//! no package of VPP, so this has only been run against a stand-in, which is part of its tests; a run with it
//! says so.

use super::{
    Ask, BATCH, GUEST_OFFLOADS, HUGE_PAGES, MTU_USUAL, Running, Setup, Switch, Twice, guest_offloads,
};
use crate::daemon::in_namespace;
use crate::lab::net::{SocketReader, lost_in_ring};
use crate::machine::huge_pages;
use crate::process::{Process, TempDir, run, wait_for};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// See the module documentation.
pub struct Vpp;

/// Names the directory with the programs, if it is not the usual one.
const PROGRAMS: &str = "CROSSPOINT_VPP";
/// Until it answers.
const START: Duration = Duration::from_secs(20);
/// Packets in one of its frames, VLIB_FRAME_SIZE, which cannot be configured.
const FRAME: &str = "256";
/// Its names of drops at an interface.
const DROPS: [&str; 5] = ["drops", "rx-miss", "rx-no-buf", "rx-error", "tx-error"];

/// Its names of packets received and sent.
const RX: &str = "rx packets";
const TX: &str = "tx packets";

fn program(name: &str) -> PathBuf {
    std::env::var_os(PROGRAMS).map_or_else(|| PathBuf::from("/usr/bin"), PathBuf::from).join(name)
}

impl Switch for Vpp {
    fn name(&self) -> &str {
        "vpp"
    }

    fn words(&self) -> &str {
        "FD.io's VPP"
    }

    fn refuses(&self, ask: &Ask) -> Option<String> {
        let missing = ["vpp", "vppctl"].map(program).into_iter().find(|path| !path.exists());
        if let Some(path) = missing {
            let path = path.display();
            return Some(format!("{path} is missing: Debian has no package, FD.io's repository has one"));
        }
        let hops = ask.topology.hops;
        let is_one = |n: usize| hops[n].to.len() == 1 && hops[..n].iter().all(|hop| hop.from != hops[n].from);
        (!(0..hops.len()).all(is_one))
            .then(|| "VPP's cross-connect leads from each port to one other".to_string())
    }

    fn caution(&self) -> Option<&'static str> {
        Some(
            "vpp is driven as its documentation says, which has been tried with a stand-in alone: check its figures",
        )
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let dir = TempDir::new("vpp")?;
        let conf = dir.0.join("startup.conf");
        std::fs::write(&conf, startup(&dir.0, setup.control_cpu(), &setup.worker_cpus()))
            .map_err(|e| format!("{}: {e}", conf.display()))?;
        let log = File::create(dir.0.join("stderr")).map_err(|e| e.to_string())?;
        let mut command = in_namespace(Some(&setup.net.switch), &program("vpp"));
        command.arg("-c").arg(&conf).current_dir(&dir.0);
        let process = Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log))?;
        let workers = workers(setup.control_cpu(), &setup.worker_cpus()).len().max(1);
        let sockets = setup.net.socket_reader();
        let mut vpp = Started { process, dir, sockets, ports: Vec::new(), version: String::new(), workers };
        vpp.version = vpp.answers()?;
        for index in 0..setup.topology.ports.len() {
            let made = match setup.sockets.get(&index) {
                // It connects; the guest listens.
                Some(path) => vpp.ask(&format!("create vhost-user socket {}", path.display()))?,
                None => {
                    let queues = match workers {
                        1 => String::new(),
                        n => format!(" num-rx-queues {n} num-tx-queues {n}"),
                    };
                    vpp.ask(&format!("create host-interface name {}{queues}", setup.port(index)))?
                }
            };
            // One word is a name, more are what is wrong.
            if made.is_empty() || made.contains(char::is_whitespace) {
                return Err(format!("VPP refuses {}: {made}", setup.port(index)));
            }
            if setup.mtu != MTU_USUAL {
                vpp.tell(&format!("set interface mtu packet {} {made}", setup.mtu))?;
            }
            vpp.tell(&format!("set interface state {made} up"))?;
            let interface = (!setup.sockets.contains_key(&index)).then(|| setup.port(index));
            vpp.ports.push((made, interface));
        }
        for hop in setup.topology.hops {
            let (from, to) = (&vpp.ports[hop.from].0, &vpp.ports[hop.to[0]].0);
            vpp.tell(&format!("set interface l2 xconnect {from} {to}"))?;
        }
        Ok(Box::new(vpp))
    }
}

/// The processors of its workers. Its main thread has one, which no worker can share.
fn workers(main: usize, cpus: &[usize]) -> Vec<String> {
    cpus.iter().filter(|cpu| **cpu != main).map(usize::to_string).collect()
}

/// Its configuration: all files in one directory, and no NIC.
fn startup(dir: &Path, main: usize, cpus: &[usize]) -> String {
    let dir = dir.display();
    let workers = workers(main, cpus);
    let workers = match workers.is_empty() {
        // Its main thread forwards.
        true => String::new(),
        false => format!(" corelist-workers {}", workers.join(",")),
    };
    format!(
        "unix {{ nodaemon runtime-dir {dir} log {dir}/vpp.log cli-listen {dir}/cli.sock }}\n\
         api-segment {{ prefix crosspoint-{} }}\n\
         statseg {{ socket-name {dir}/stats.sock }}\n\
         cpu {{ main-core {main}{workers} }}\n\
         plugins {{ plugin dpdk_plugin.so {{ disable }} }}\n",
        std::process::id()
    )
}

struct Started {
    // Ended before its directory goes.
    process: Process,
    dir: TempDir,
    sockets: SocketReader,
    /// Its name for each port, and the kernel's if there is one.
    ports: Vec<(String, Option<String>)>,
    version: String,
    workers: usize,
}

impl Started {
    /// Waits until it answers, and says which version it is.
    fn answers(&mut self) -> Result<String, String> {
        let start = Instant::now();
        let mut why = wait_for(&self.dir.0.join("cli.sock")).err();
        while start.elapsed() < START {
            if let Ok(Some(status)) = self.process.0.try_wait() {
                why = Some(status.to_string());
                break;
            }
            match self.ask("show version") {
                Ok(text) if !text.is_empty() => {
                    return Ok(text.lines().next().unwrap_or_default().to_string());
                }
                Ok(_) => why = Some("no answer to `show version`".into()),
                Err(error) => why = Some(error),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let said = std::fs::read_to_string(self.dir.0.join("stderr")).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(3)..].join(" / ");
        Err(format!("VPP does not start: {}; it said: {last}", why.unwrap_or_default()))
    }

    /// Its answer to a command.
    fn ask(&self, words: &str) -> Result<String, String> {
        let mut command = Command::new(program("vppctl"));
        command.arg("-s").arg(self.dir.0.join("cli.sock")).args(words.split(' '));
        run(&mut command).map(|text| text.trim().to_string())
    }

    /// A command that prints nothing if it succeeds.
    fn tell(&self, words: &str) -> Result<(), String> {
        match self.ask(words)? {
            said if said.is_empty() => Ok(()),
            said => Err(format!("VPP refuses `{words}`: {said}")),
        }
    }

    fn guest_offloads(&self) -> Option<String> {
        let guests = self.ports.iter().filter(|(_, interface)| interface.is_none());
        let features = |(name, _): &(String, _)| agreed(&self.ask(&format!("show vhost-user {name}")).ok()?);
        let all: Vec<Option<String>> = guests.map(features).collect();
        (!all.is_empty()).then(|| guest_offloads(all.into_iter()))
    }
}

impl Running for Started {
    fn identity(&self) -> BTreeMap<String, String> {
        let pairs = [
            ("version", self.version.as_str()),
            ("port_type", "host-interface (af_packet)"),
            ("adapter", "tried with a stand-in alone"),
        ];
        pairs.map(|(k, v)| (k.to_string(), v.to_string())).into()
    }

    fn conditions(&self) -> Vec<(&'static str, String)> {
        let workers = self.workers.to_string();
        let mut all = vec![("workers", workers.clone()), ("queues", workers)];
        all.push((HUGE_PAGES, huge_pages::taken_by(self.process.id())));
        all.push((BATCH, FRAME.to_string()));
        all.extend(self.guest_offloads().map(|told| (GUEST_OFFLOADS, told)));
        all
    }

    fn process(&self) -> Option<&Process> {
        Some(&self.process)
    }

    fn process_mut(&mut self) -> Option<&mut Process> {
        Some(&mut self.process)
    }

    fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        // Before its own, so that what comes meanwhile is not taken for lost.
        let received = self.sockets.received()?;
        let told = counters(&self.ask("show interface")?);
        let sent = self.sockets.sent()?;
        let mut drops = BTreeMap::new();
        for (name, interface) in &self.ports {
            let of = |counter: &str| told.get(&(name.clone(), counter)).copied().unwrap_or(0);
            for counter in DROPS {
                drops.insert(format!("switch {name}: {counter}"), of(counter));
            }
            let Some(interface) = interface else { continue };
            let kernel = |counts: &BTreeMap<String, u64>| counts.get(interface).copied().unwrap_or(0);
            drops.extend(lost_in_ring(interface, (kernel(&received), of(RX)), (of(TX), kernel(&sent))));
        }
        Ok(drops)
    }

    fn twice(&self) -> Twice {
        Twice { again: true, ..Twice::default() }
    }
}

/// The features that it has agreed on with a guest: `features (0x150408000):` of `show vhost-user`.
fn agreed(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("features (")).map(str::to_string);
    Some(line?.split(')').next()?.to_string())
}

/// Counters of `show interface` by interface and name. An interface's first counter is on its own line, the
/// others are below.
fn counters(text: &str) -> BTreeMap<(String, &'static str), u64> {
    let mut all = BTreeMap::new();
    let mut interface = "";
    for line in text.lines() {
        if !line.starts_with(char::is_whitespace) {
            interface = line.split_whitespace().next().unwrap_or_default();
        }
        let Some((rest, count)) = line.trim_end().rsplit_once(char::is_whitespace) else { continue };
        let name = DROPS.iter().chain(&[RX, TX]).find(|name| rest.trim_end().ends_with(*name));
        if let Some((name, count)) = name.zip(count.parse().ok()) {
            all.insert((interface.to_string(), *name), count);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_belong_to_the_interface_above() {
        let text = "              Name               Idx    State  MTU (L3/IP4/IP6/MPLS)     Counter          Count\n\
                    host-p0                           1      up          9000/0/0/0     rx packets    6569213\n\
                                                                                rx bytes      9928352943\n\
                                                                                drops               1498\n\
                    host-p1                           2     down         9000/0/0/0\n\
                    VirtualEthernet0/0/0              3      up          9000/0/0/0     tx packets         12\n\
                                                                                tx-error               3\n";
        let text = text
            .replace("\nrx bytes", "\n   rx bytes")
            .replace("\ndrops", "\n   drops")
            .replace("\ntx-error", "\n   tx-error");
        let told = counters(&text);
        let of = |interface: &str, name| told.get(&(interface.to_string(), name)).copied();
        assert_eq!(
            (of("host-p0", RX), of("host-p0", "drops"), of("host-p1", RX)),
            (Some(6_569_213), Some(1498), None)
        );
        assert_eq!(
            (of("VirtualEthernet0/0/0", TX), of("VirtualEthernet0/0/0", "tx-error")),
            (Some(12), Some(3))
        );
        assert_eq!(told.len(), 4);
    }

    #[test]
    fn the_features_agreed_on_are_not_those_offered() {
        let text = "Virtio vhost-user interfaces\nInterface: VirtualEthernet0/0/0 (ifindex 1)\n\
                    virtio_net_hdr_sz 12\n features mask (0xffffffffffffffff):\n features (0x150408000):\n   \
                    VIRTIO_NET_F_MRG_RXBUF (15)\n protocol features (0x3)\n";
        assert_eq!(agreed(text), Some("0x150408000".into()));
        assert_eq!(agreed("show vhost-user: unknown interface"), None);
    }

    #[test]
    fn its_main_thread_and_its_workers_share_no_processor() {
        let conf = |main, cpus: &[usize]| startup(Path::new("/tmp/x"), main, cpus);
        for (main, cpus, words) in [
            (0, &[1, 2][..], "cpu { main-core 0 corelist-workers 1,2 }"),
            (0, &[0], "cpu { main-core 0 }"),
            (4, &[4, 70], "cpu { main-core 4 corelist-workers 70 }"),
        ] {
            assert!(conf(main, cpus).contains(words), "{}", conf(main, cpus));
        }
    }
}
