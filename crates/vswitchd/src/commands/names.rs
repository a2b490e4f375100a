//! The datapath's names, and options among the words of its commands.

use crate::plane::ForwardingPlane;

impl ForwardingPlane {
    /// The datapath's name as `dpctl` shows it, without its type.
    pub(super) fn short_name(&self) -> &'static str {
        if self.is_dummy { "ovs-dummy" } else { "ovs-netdev" }
    }

    /// The datapath's type as `dpctl` shows it.
    pub(super) fn type_name(&self) -> &'static str {
        if self.is_dummy { "dummy" } else { "netdev" }
    }

    /// The datapath's name as `dpctl` shows it.
    pub(super) fn name(&self) -> String {
        format!("{}@{}", self.type_name(), self.short_name())
    }

    /// Whether the datapath has that name.
    pub(super) fn is_named(&self, text: &str) -> bool {
        text == self.name() || text == self.short_name()
    }
}

/// Splits options from names.
pub(super) fn options<'a>(
    args: &'a [String],
    known: &[&str],
) -> Result<(Vec<&'a str>, Vec<&'a str>), String> {
    let (options, names): (Vec<_>, Vec<_>) =
        args.iter().map(String::as_str).partition(|a| a.starts_with('-'));
    match options.iter().find(|o| !known.contains(o)) {
        Some(unknown) => Err(format!("unknown option {unknown}")),
        None => Ok((options, names)),
    }
}
