//! Options among the words of commands.

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
