//! The options that all daemons have, for the subcommands of `crosspoint`.

use host::daemonize::Options;

/// See `host::daemonize`.
#[derive(clap::Args)]
#[command(next_help_heading = "Daemon options")]
pub struct DaemonArgs {
    /// Run in the background; return once the switch serves.
    #[arg(long)]
    detach: bool,
    /// Restart the switch if it crashes.
    #[arg(long)]
    monitor: bool,
    /// With --detach, stay in the current directory.
    #[arg(long)]
    no_chdir: bool,
    /// Write a pid file (default: ovs-vswitchd.pid in $OVS_RUNDIR).
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pidfile: Option<String>,
    /// Start even if another process holds the pid file.
    #[arg(long)]
    overwrite_pidfile: bool,
    /// Accepted for compatibility: the switch is never confined.
    #[arg(long, hide = true)]
    no_self_confinement: bool,
    /// Give up root and run as this user.
    #[arg(long, value_name = "USER[:GROUP]")]
    user: Option<String>,
    /// Log to a file too (default: ovs-vswitchd.log in $OVS_LOGDIR).
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    log_file: Option<String>,
    /// Set log levels: [MODULE][:DESTINATION][:LEVEL], or PATTERN:DESTINATION:PATTERN.
    #[arg(short, long, value_name = "SPEC")]
    verbose: Vec<String>,
    /// How messages reach the system log: libc, unix:FILE, udp:IP:PORT or null (default: $OVS_SYSLOG_METHOD,
    /// or libc).
    #[arg(long, value_name = "METHOD")]
    syslog_method: Option<String>,
    /// Also send system log messages to this collector over UDP.
    #[arg(long, value_name = "HOST:PORT")]
    syslog_target: Option<String>,
}

impl DaemonArgs {
    /// Hands them over. The error ends the program.
    pub fn apply(&self, options: &mut Options) -> Result<(), String> {
        let flags = [
            ("detach", self.detach),
            ("monitor", self.monitor),
            ("no-chdir", self.no_chdir),
            ("overwrite-pidfile", self.overwrite_pidfile),
            ("no-self-confinement", self.no_self_confinement),
        ];
        for (name, _) in flags.iter().filter(|(_, given)| *given) {
            options.take(name, None)?;
        }
        let values = [
            ("pidfile", &self.pidfile),
            ("user", &self.user),
            ("log-file", &self.log_file),
            ("syslog-method", &self.syslog_method),
            ("syslog-target", &self.syslog_target),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                options.take(name, Some(value))?;
            }
        }
        self.verbose.iter().try_for_each(|spec| options.take("verbose", Some(spec)).map(drop))
    }
}
