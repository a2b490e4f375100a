//! Manual pages and completion scripts, from the same [description](host::manual::Manual) as `--help`:
//! [`page`] writes roff, [`complete`] hands the tables to clap_complete, and [`own`] describes `crosspoint`'s
//! own subcommands, which clap parses.

pub mod complete;
pub mod own;
pub mod page;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::PROGRAMS;
    use clap::CommandFactory;

    #[test]
    fn every_program_has_examples_and_says_what_each_command_and_option_does() {
        let own = own::subcommands(&crate::Cli::command());
        let stock = PROGRAMS.iter().map(|program| (program.name.to_string(), (program.manual)()));
        for (name, manual) in stock.chain(own) {
            assert!(!manual.brief.is_empty() && !manual.usage.is_empty(), "{name}");
            assert!(!manual.examples.is_empty(), "{name} has no examples");
            for row in manual.commands.iter().flat_map(|group| &group.rows) {
                assert!(!row.what.is_empty(), "{name}: {} does not say what it does", row.usage);
            }
            for flag in manual.options.iter().flat_map(|group| &group.rows) {
                assert!(!flag.help.is_empty(), "{name}: --{} does not say what it does", flag.long);
            }
        }
    }
}
