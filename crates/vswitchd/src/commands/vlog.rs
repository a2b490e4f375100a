//! `vlog/*`: what is logged, and where.

use crate::log::{self, Destination, Setting};
use crate::state::Vswitch;
use std::fmt::Write;

pub fn set(_: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let settings: Vec<Setting> = args.iter().map(|a| Setting::parse(a)).collect::<Result<_, _>>()?;
    settings.iter().for_each(log::set);
    Ok(String::new())
}

pub fn list(_: &mut Vswitch, _: &[String]) -> Result<String, String> {
    let names = Destination::ALL.map(Destination::name);
    let mut text = format!("                 {}    {}    {}\n", names[0], names[1], names[2]);
    text.push_str("                 -------    ------    ------\n");
    for (module, levels) in log::levels() {
        let [console, syslog, file] = levels.map(|l| l.short_name());
        let _ = writeln!(text, "{module:<16}  {console:>4}       {syslog:>4}       {file:>4}");
    }
    Ok(text)
}

pub fn reopen(_: &mut Vswitch, _: &[String]) -> Result<String, String> {
    log::reopen_file().map(|()| String::new())
}

pub fn close(_: &mut Vswitch, _: &[String]) -> Result<String, String> {
    log::close_file();
    Ok(String::new())
}
