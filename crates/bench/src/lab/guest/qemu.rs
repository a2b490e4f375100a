//! A virtual machine of QEMU's: Debian's kernel, whose bridge sends frames back. Uses hardware virtualisation
//! if this machine has it, else emulation, which is slow.

use super::system::Contents;
use super::{Guest, Place, Rings};
use crate::process::Process;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// See the module documentation.
pub struct Qemu;

/// Names the kernel's directory.
const KERNEL: &str = "CROSSPOINT_GUEST_KERNEL";
const PROGRAM: &str = "/usr/bin/qemu-system-x86_64";
/// Maximum of QEMU's device.
const DESCRIPTORS_MAX: u16 = 1024;
/// How long the kernel may take to boot: seconds, except with emulation next to other load.
const BOOT: Duration = Duration::from_secs(100);
/// Until the hardware has booted a kernel, which takes it a second, or has failed to.
const KVM_BOOTS: Duration = Duration::from_secs(10);
/// The batch of the kernel's driver.
const BURST: u16 = 64;

/// A bridge with one port, which sends frames back to where they came from ("hairpin"). Nothing in the
/// machine has an address, so it sends no frames of its own.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys
for module in $(cat /modules/order); do insmod /modules/$module; done
ip link set eth0 promisc on mtu MTU up
brctl addbr br0
echo 0 >/sys/class/net/br0/bridge/forward_delay
brctl addif br0 eth0
echo 1 >/sys/class/net/eth0/brport/hairpin_mode
ip link set br0 mtu MTU up
while :; do sleep 3600; done
";

impl Guest for Qemu {
    fn name(&self) -> &'static str {
        "qemu"
    }

    fn rings(&self, wanted: Rings) -> Rings {
        let most = |descriptors: u16| descriptors.min(DESCRIPTORS_MAX);
        Rings { rx: most(wanted.rx), tx: most(wanted.tx), burst: BURST }
    }

    /// One, whatever is requested.
    fn queues(&self, _wanted: usize) -> usize {
        1
    }

    fn boots_within(&self) -> Duration {
        BOOT
    }

    fn refuses(&self) -> Option<String> {
        for (path, package) in [(PROGRAM, "qemu-system-x86"), ("/bin/busybox", "busybox-static")] {
            if !Path::new(path).exists() {
                return Some(format!("{path} is missing: install {package}"));
            }
        }
        kernel().err()
    }

    fn conditions(&self) -> Vec<(&'static str, String)> {
        let name = |has_kvm: &bool| if *has_kvm { KVM[0] } else { TCG[0] };
        let known = HAS_KVM.get().and_then(|known| known.as_ref().ok()).map(name);
        known.map(|name| ("guest accelerator", name.to_string())).into_iter().collect()
    }

    fn start(&self, place: &Place) -> Result<Process, String> {
        let kernel = kernel()?;
        let modules = ["virtio_pci", "virtio_net", "bridge"];
        let contents = Contents {
            kernel: &kernel,
            modules: &modules,
            programs: &[],
            init: &INIT.replace("MTU", &place.mtu.to_string()),
        };
        let boot = contents.write(&place.socket.with_extension("initramfs"))?;
        let has_kvm = has_kvm(&boot.kernel)?;
        let mut command = bare(if has_kvm { KVM } else { TCG });
        command.args(["-m", "256M", "-no-reboot", "-kernel"]).arg(boot.kernel);
        command.arg("-initrd").arg(boot.initramfs);
        // No frames of its own; and no clock source that is abandoned because a busy machine was late.
        command.args(["-append", "quiet panic=-1 ipv6.disable=1 no_timer_check tsc=reliable"]);
        command.args([
            "-object",
            "memory-backend-memfd,id=mem,size=256M,share=on",
            "-numa",
            "node,memdev=mem",
        ]);
        let chardev = format!("socket,id=vhost0,path={},server=on,wait=off", place.socket.display());
        command.args(["-chardev", &chardev, "-netdev", "vhost-user,id=net0,chardev=vhost0"]);
        let Rings { rx, tx, .. } = self.rings(place.rings);
        // Emulation offers no MSI-X for such a card.
        let vectors = if has_kvm { "" } else { ",vectors=0" };
        let sizes = format!("rx_queue_size={rx},tx_queue_size={tx}");
        command.args([
            "-device",
            &format!("virtio-net-pci,netdev=net0,romfile=,host_mtu={},{sizes}{vectors},{ALIKE}", place.mtu),
        ]);
        Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
    }
}

/// Without what one switch offers and another one does not: the machine only forwards, and all switches get
/// the same card.
const ALIKE: &str = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,\
                     guest_ufo=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off";

/// QEMU's accelerators, and the processors that go with them.
const KVM: [&str; 2] = ["kvm", "host"];
const TCG: [&str; 2] = ["tcg", "max"];

/// A machine with no device but its processor.
fn bare([accelerator, cpu]: [&str; 2]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["-accel", accelerator, "-cpu", cpu, "-nodefaults", "-nographic"]);
    command
}

static HAS_KVM: OnceLock<Result<bool, String>> = OnceLock::new();

/// Whether hardware virtualisation works. That `/dev/kvm` can be opened, or a virtual processor created,
/// proves little: within a virtual machine, it may then hang for ever. So a kernel boots, finds no init
/// program, and ends the machine.
fn has_kvm(kernel: &Path) -> Result<bool, String> {
    let attempt = || {
        let mut command = bare(KVM);
        command.args(["-m", "256M", "-no-reboot", "-append", "quiet panic=-1", "-kernel"]).arg(kernel);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Process::spawn(&mut command)?;
        let start = Instant::now();
        while start.elapsed() < KVM_BOOTS {
            if let Some(status) = process.0.try_wait().map_err(|e| e.to_string())? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(false)
    };
    HAS_KVM.get_or_init(attempt).clone()
}

/// The directory with the kernel: the one that is named, or this machine's own.
fn kernel() -> Result<PathBuf, String> {
    let dir = std::env::var_os(KERNEL).map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let has_kernel = std::fs::read_dir(dir.join("boot")).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("vmlinuz"))
    });
    if has_kernel && dir.join("lib/modules").is_dir() {
        return Ok(dir);
    }
    let lacks = format!("{} has no boot/vmlinuz-* and lib/modules", dir.display());
    Err(format!("{lacks}: set {KERNEL} to a directory with them (scripts/guest-kernel fetches Debian's)"))
}
