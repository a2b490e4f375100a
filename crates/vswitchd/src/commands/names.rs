//! Options among the words of commands.

/// What every `dpctl` command takes, as in Open vSwitch. In most commands it changes nothing.
pub(super) const OF_DPCTL: &[&str] =
    &["-m", "--more", "-s", "--statistics", "--clear", "--may-create", "--names", "--no-names"];

/// Splits options from names. Several of one letter may share a hyphen.
pub(super) fn options<'a>(
    args: &'a [String],
    known: &[&'static str],
) -> Result<(Vec<&'static str>, Vec<&'a str>), String> {
    let (given, names): (Vec<&str>, Vec<&str>) =
        args.iter().map(String::as_str).partition(|arg| arg.len() > 1 && arg.starts_with('-'));
    let mut options = Vec::new();
    let mut take = |option: &str| {
        let known = known.iter().find(|known| **known == option);
        options.push(*known.ok_or_else(|| format!("Unrecognized option {option}"))?);
        Ok::<(), String>(())
    };
    for option in given {
        if option.starts_with("--") {
            take(option)?;
        } else {
            option[1..].chars().try_for_each(|letter| take(&format!("-{letter}")))?;
        }
    }
    Ok((options, names))
}
