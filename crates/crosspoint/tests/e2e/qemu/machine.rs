//! Virtual machines under test: QEMU as the README starts it, by emulation, with Debian's kernel, and a
//! system in memory that is made of busybox, iperf3, ethtool and the modules of a virtio network card.
//! Commands go to it over its serial line.

use crate::qemu::rig::PATIENCE;
use bench::guest_system::{Boot, Contents};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

/// The guest's first program: it loads the driver, and then does what it is told line by line.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/usr/sbin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
load() { for m in $(cat /modules/order); do insmod /modules/$m; done; }
load
echo 2 > /proc/sys/kernel/printk
ip link set lo up
stty -F /dev/ttyS0 -echo
exec </dev/ttyS0 >/dev/ttyS0 2>&1
echo "guest is up"
while read -r line; do eval "$line" </dev/null; echo "guest returned $?"; done
"#;

static BOOT: LazyLock<Boot> = LazyLock::new(|| {
    let kernel = &testkit::guest_kernel();
    let modules = &["virtio_pci", "virtio_net"];
    let programs = &["/usr/bin/iperf3", "/usr/sbin/ethtool"];
    let contents = Contents { kernel, modules, programs, init: INIT };
    // Beside the kernel, where it may stay.
    contents.write(&kernel.join("initramfs")).unwrap()
});

/// The command of a document that starts a virtual machine on a socket: the indented lines from the one
/// that names the program on, as long as they end in a backslash. `nth` counts from 0.
pub fn documented_command(document: &str, nth: usize) -> Vec<String> {
    let text = fs::read_to_string(testkit::root().join(document)).unwrap();
    let start = text.match_indices("    qemu-system-x86_64 ").nth(nth);
    let (start, _) = start.unwrap_or_else(|| panic!("{document} starts no virtual machine {nth}"));
    let mut words = Vec::new();
    for line in text[start..].lines() {
        words.extend(line.trim_end_matches('\\').split_whitespace().map(str::to_owned));
        if !line.ends_with('\\') {
            break;
        }
    }
    words
}

/// A running virtual machine; it ends with the value.
pub struct Machine {
    name: String,
    child: Child,
    stdin: ChildStdin,
    /// All that came over the serial line.
    said: Arc<Mutex<String>>,
    /// How much of it was asked for by finished commands.
    read: usize,
    monitor: PathBuf,
}

impl Machine {
    /// Starts QEMU by a documented command, of whose words these are replaced: text by text. The disk gives
    /// way to our system, hardware acceleration to emulation. Without MSI-X, since emulation has none for
    /// such a card, and without a program to boot from it.
    pub fn start(
        dir: &Path,
        name: &str,
        command: &[String],
        replaced: &[(&str, &str)],
        more: &[&str],
    ) -> Machine {
        let mut words: Vec<String> = Vec::new();
        let mut command = command.iter();
        while let Some(word) = command.next() {
            match word.as_str() {
                "-enable-kvm" => words.extend(["-accel", "tcg", "-cpu", "max"].map(str::to_owned)),
                "-drive" => {
                    command.next();
                }
                _ => {
                    let word = replaced.iter().fold(word.clone(), |word, (a, b)| word.replace(a, b));
                    let is_card = word.starts_with("virtio-net-pci,");
                    words.push(if is_card { format!("{word},vectors=0,romfile=") } else { word });
                }
            }
        }
        let monitor = dir.join(format!("{name}.monitor"));
        let errors = fs::File::create(dir.join(format!("{name}.errors"))).unwrap();
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .args(["-nodefaults", "-nographic", "-no-reboot", "-serial", "stdio"])
            .arg("-kernel")
            .arg(&BOOT.kernel)
            .arg("-initrd")
            .arg(&BOOT.initramfs)
            // An emulated timer that comes late, on a machine that is busy, is no broken timer.
            .args(["-append", "console=ttyS0 quiet panic=-1 no_timer_check tsc=reliable"])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", monitor.display())])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("qemu-system-x86_64, of qemu-system-x86");
        let said: Arc<Mutex<String>> = Arc::default();
        let (to, mut from) = (said.clone(), child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..n]).replace('\r', ""));
            }
        });
        let stdin = child.stdin.take().unwrap();
        Machine { name: name.into(), child, stdin, said, read: 0, monitor }
    }

    /// Its monitor.
    pub fn monitor(&self) -> Monitor {
        let stream = UnixStream::connect(&self.monitor).unwrap();
        let mut monitor = Monitor { stream: BufReader::new(stream) };
        monitor.read();
        monitor.ask("qmp_capabilities", "{}");
        monitor
    }

    /// What came over the serial line since the last command, once `end` is in it with a whole line.
    #[track_caller]
    fn wait_for(&mut self, end: &str) -> (String, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = self.said.lock().unwrap();
            let new = &said[self.read..];
            if let Some(at) = new.find(end)
                && let Some(len) = new[at..].find('\n')
            {
                let found = (new[..at].to_owned(), new[at + end.len()..at + len].trim().to_owned());
                self.read += at + len;
                return found;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{}: no {end:?} ({ended:?}); it said:\n{said}",
                self.name
            );
            drop(said);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it takes commands.
    #[track_caller]
    pub fn wait_until_it_is_up(&mut self) {
        self.wait_for("guest is up");
    }

    /// Runs a command line within the guest; its output, if it succeeds.
    #[track_caller]
    pub fn run(&mut self, line: &str) -> String {
        let (out, code) = self.try_run(line);
        assert_eq!(code, "0", "{}: {line}\n{out}", self.name);
        out
    }

    /// Runs a command line within the guest: its output and its code.
    #[track_caller]
    pub fn try_run(&mut self, line: &str) -> (String, String) {
        self.stdin.write_all(format!("{line}\n").as_bytes()).expect("the guest's serial line takes it");
        self.wait_for("guest returned ")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only where it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let errors = fs::read_to_string(self.monitor.with_extension("errors")).unwrap_or_default();
            eprintln!("{}: {errors}\n{}", self.name, self.said.lock().unwrap());
        }
    }
}

/// The monitor of a machine: QEMU's QMP, one object in each line.
pub struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    fn read(&mut self) -> String {
        let mut line = String::new();
        assert!(self.stream.read_line(&mut line).unwrap() > 0, "the monitor is gone");
        line
    }

    /// Has a command done; what it returned.
    #[track_caller]
    pub fn ask(&mut self, command: &str, arguments: &str) -> String {
        let request = format!("{{\"execute\":\"{command}\",\"arguments\":{arguments}}}\n");
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        loop {
            let line = self.read();
            assert!(!line.contains("\"error\""), "{command}: {line}");
            if line.contains("\"return\"") {
                return line;
            }
        }
    }
}
